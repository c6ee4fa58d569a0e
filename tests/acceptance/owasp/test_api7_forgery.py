"""API7, server side request forgery: an address that a client writes is asked by nobody."""

import asyncio
from typing import Any

import pytest

from tests.support.cluster.closed_cluster import ClosedCluster
from tests.unit.api.access.test_foreign_names import DOCUMENT, in_path, operations, plain

pytestmark = pytest.mark.anyio

HEADERS = (
    *("host", "x-forwarded-host", "x-forwarded-for", "x-real-ip", "forwarded", "referer"),
    *("location", "content-location", "origin", "via", "callback", "webhook-request-callback"),
    *("ce-source", "ce-dataschema", "link", "mq-reply-to", "curlew-client", "x-original-url"),
)


def texts(value: Any, url: str) -> Any:
    """The body with the address in place of every text."""
    if isinstance(value, dict):
        return {name: texts(each, url) for name, each in value.items()}
    if isinstance(value, list):
        return [texts(each, url) for each in value]
    return url if isinstance(value, str) else value


async def test_no_address_of_a_client_is_asked(target: ClosedCluster) -> None:
    asked: list[object] = []

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer.get_extra_info("peername"))
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
        place = url.removeprefix("http://").removesuffix("/x")
        for number, (method, path, operation) in enumerate(operations()):
            node = number % len(target.nodes)
            base = plain(method, path, operation)
            if base.operation_id in ("stream_topic", "stream_group"):
                continue
            where = in_path(base.path, "").replace("{own}", "alpha")
            body = {"json": texts(base.body, url)} if isinstance(base.body, dict) else {}
            await target.ask(node, "alpha", method, where, params={"url": url}, **body)
        for node in range(len(target.nodes)):
            for name in HEADERS:
                for value in (url, place):
                    await target.ask(
                        *(node, "alpha", "POST", "/v1/topics/alpha-in/messages"),
                        content=url,
                        headers={name: value},
                    )
            token = target.token(iss=url, jku=url)
            assert (await target.ask(node, token, "GET", "/v1/topics")).status_code == 401
        fetched = await target.ask(0, "root", "GET", "/v1/cluster")
        assert fetched.status_code == 200
    assert asked == []


def test_the_document_has_no_place_for_an_address_to_be_asked() -> None:
    """No member of a request is a URI but the source and schema of an event, which are stored."""
    found = []
    for _, path, operation in operations():
        for each in operation.get("parameters", ()):
            name = str(each.get("name", each.get("$ref"))).lower()
            if "url" in name or "uri" in name or "callback" in name:
                found.append((path, name))
    assert found == []
    assert "callbacks" not in str(DOCUMENT)
    assert "webhooks" not in DOCUMENT

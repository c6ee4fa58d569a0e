"""Every operation of the data plane answers what the document says, field by field.

Undeclared statuses, headers of ours, media types and members are faults, too: schemas of answers
are closed for this test.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from app.api import render_document
from app.api.formats.cloudevents import EVENT, EVENTS
from app.api.formats.media import ENVELOPE, FRAMES, NDJSON
from app.config import Config
from app.domain.message import Message
from app.node import Node
from app.node_app import NodeApp
from tests.support.clients.frames import request_frame
from tests.support.metadata.migrated_file import migrate_by_copy
from tests.support.whole_document import with_all_answers

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
T = "/v1/topics/orders"
G = T + "/groups/g/messages"
OPEN_SCHEMAS = {"Problem", "EntryProblem"}
ALWAYS = {"content-length", "content-type", "mq-request-id", "retry-after", "allow", "connection"}
ALWAYS |= {"accept-encoding", "content-encoding", "vary"}  # an answer is packed for who takes it so


class Checker:
    """Makes requests and holds each answer against its operation in the document."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._document: Json = with_all_answers(json.loads(render_document()))
        schemas = copy.deepcopy(self._document["components"]["schemas"])
        for name, schema in schemas.items():
            if schema.get("type") == "object" and name not in OPEN_SCHEMAS:
                schema.setdefault("additionalProperties", False)
        self._components = {"components": {"schemas": schemas}}
        self.seen: set[tuple[str, int]] = set()

    async def __call__(
        self, operation_id: str, method: str, url: str, status: int, **options: Any
    ) -> httpx.Response:
        answer = await self._client.request(method, url, **options)
        assert answer.status_code == status, answer.text
        operation = self._operation(operation_id, method, url)
        declared = operation["responses"].get(str(status))
        assert declared is not None, f"{operation_id} does not declare {status}"
        if reference := declared.get("$ref"):
            name = reference.removeprefix("#/components/responses/")
            declared = self._document["components"]["responses"][name]
        self._check_headers(declared, answer)
        self._check_body(declared, answer)
        self.seen.add((operation_id, status))
        return answer

    def _operation(self, operation_id: str, method: str, url: str) -> Json:
        for path, methods in self._document["paths"].items():
            operation: Json = methods.get(method.lower(), {})
            if operation.get("operationId") == operation_id:
                parts, template = url.partition("?")[0].split("/"), path.split("/")
                assert len(parts) == len(template)
                assert all(
                    p == t or t.startswith("{") for p, t in zip(parts, template, strict=True)
                )
                known = {each["name"] for each in operation["parameters"]}
                given = httpx.URL(url).params.keys()
                assert set(given) <= known, f"{operation_id} does not declare {given}"
                return operation
        raise AssertionError(f"{operation_id} is not in the document")

    def _check_headers(self, declared: Json, answer: httpx.Response) -> None:
        known = ALWAYS | {name.lower() for name in declared.get("headers", {})}
        properties = {name for name in answer.headers if name.startswith("mq-prop-")}
        assert set(answer.headers) - properties <= known

    def _check_body(self, declared: Json, answer: httpx.Response) -> None:
        content = declared.get("content", {})
        if not content:
            assert answer.content == b""
            return
        media_type = answer.headers["content-type"].partition(";")[0]
        assert media_type in content, f"{media_type} is not declared"
        if media_type.endswith(("/json", "+json")):
            assert answer.content.endswith(b"\n"), "use encode_line: a prompt follows in a shell"
            schema = {**content[media_type]["schema"], **self._components}
            jsonschema.validate(answer.json(), schema, jsonschema.Draft202012Validator)


@pytest.fixture
async def check(tmp_path: Path) -> AsyncIterator[Checker]:
    config = Config(data_dir=tmp_path)
    migrate_by_copy(config.database)
    node = await Node.open(config)
    transport = httpx.ASGITransport(NodeApp(node))
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost:8710"
        ) as client:
            (await client.put(T, json={"queues": 1, "flush": "async"})).raise_for_status()
            yield Checker(client)
    finally:
        await node.close()


async def test_send(check: Checker) -> None:
    url = T + "/messages"
    await check("send_message", "POST", url + "?tag=t&keys=a%20b", 201, content=b"x")
    envelope = {"body": [1], "properties": {"a": "b"}}
    await check("send_message", "POST", url, 201, json=envelope, headers={"Content-Type": ENVELOPE})
    event = {"specversion": "1.0", "id": "1", "source": "/a", "type": "b"}
    headers = {"Content-Type": EVENT}
    await check("send_message", "POST", url, 201, json=event, headers=headers)
    headers = {"Prefer": "respond-async"}
    await check("send_message", "POST", url, 202, content=b"x", headers=headers)
    await check("send_message", "POST", url + "?tag=%7C", 400, content=b"x")
    await check("send_message", "POST", "/v1/topics/none/messages", 404, content=b"x")
    await check("send_message", "POST", url, 415, content=b"", headers={"Content-Encoding": "br"})


async def test_minimal_send(check: Checker) -> None:
    answer = await check._client.post(
        T + "/messages", content=b"x", headers={"Prefer": "return=minimal"}
    )
    declared = check._document["paths"]["/v1/topics/{topic}/messages"]["post"]["responses"]["201"]
    check._check_headers(declared, answer)


async def test_batch(check: Checker) -> None:
    url = T + "/messages:batch"
    good, bad = {"text": "a", "id": "1"}, {"text": "a", "queue_id": 7}
    await check("send_batch", "POST", url + "?spread=true", 200, json={"messages": [good]})
    await check("send_batch", "POST", url, 207, json={"messages": [good, bad, {"x": 1}]})
    await check("send_batch", "POST", url, 404, json={"messages": [bad]})
    headers = {"Content-Type": NDJSON, "Prefer": "handling=strict"}
    await check("send_batch", "POST", url, 200, content=json.dumps(good), headers=headers)
    await check("send_batch", "POST", url + "?split=lines", 200, content=b"a\nb")
    frame = request_frame([Message(b"x")], "orders")
    headers = {"Content-Type": FRAMES}
    await check("send_batch", "POST", url, 200, content=frame, headers=headers)
    headers["Prefer"] = "return=representation"
    await check("send_batch", "POST", url, 200, content=frame, headers=headers)
    await check("send_batch", "POST", url, 400, content=frame[:-1], headers=headers)


async def test_pull(check: Checker) -> None:
    json_body = {"Content-Type": "application/json"}
    for body, headers in ((b"x", {}), (b"\xff", {}), (b'{"a":1}', json_body)):
        url = T + "/messages?tag=t&sharding_key=s"
        await check("send_message", "POST", url, 201, content=body, headers=headers)
    url = T + "/queues/0/messages"
    await check("pull_messages", "GET", url + "?offset=0", 200)
    await check("pull_messages", "GET", url + "?offset=0&body=base64", 200)
    await check("pull_messages", "GET", url + "?offset=3&wait=0", 200)
    await check("pull_messages", "GET", url + "?offset=99&clamp=true", 200)
    for accept in (NDJSON, FRAMES, EVENTS):
        await check(
            "pull_messages", "GET", url + "?offset=99&clamp=1", 200, headers={"Accept": accept}
        )
    sealed = await check("pull_messages", "GET", url + "?offset=0&until_offset=2", 200)
    headers = {"If-None-Match": sealed.headers["etag"]}
    await check("pull_messages", "GET", url + "?offset=0&until_offset=2", 304, headers=headers)
    await check("pull_messages", "GET", url + "?offset=0&until_timestamp_ms=1", 200)
    await check("pull_messages", "GET", url + "?tail=-1", 400)
    await check("pull_messages", "GET", url + "?offset=0", 406, headers={"Accept": "text/html"})
    await check("pull_messages", "GET", url + "?offset=4", 416)


async def test_streams(check: Checker) -> None:
    await check("send_message", "POST", T + "/messages?tag=t", 201, content=b"x")
    url = T + "/stream?at=earliest&duration=10ms"
    for accept in ("text/event-stream", NDJSON):
        headers = {"Accept": accept}
        await check("stream_topic", "GET", url + "&clamp=true&filter=t", 200, headers=headers)
        url_of_group = T + "/groups/g/stream?credit=1&duration=10ms&invisible=1s"
        await check("stream_group", "GET", url_of_group, 200, headers=headers)
    await check("stream_topic", "GET", T + "/stream?cursor=x", 400)
    await check("stream_topic", "GET", T + "/stream?offset=9", 416)
    await check("stream_topic", "GET", T + "/stream", 406, headers={"Accept": "text/html"})
    await check("stream_group", "GET", T + "/groups/g/stream?invisible=1ms", 400)


async def test_browse(check: Checker) -> None:
    url = T + "/messages"
    for body in (b"x", b"\xff", b"y"):
        await check("send_message", "POST", url + "?tag=t&keys=k", 201, content=body)
    answer = await check("browse_messages", "GET", url + "?page_size=2&tag=t&key=k", 200)
    cursor = answer.json()["next_cursor"]
    await check("browse_messages", "GET", f"{url}?tag=t&key=k&cursor={cursor}", 200)
    lines = {"Accept": NDJSON}
    answer = await check("browse_messages", "GET", url + "?page_size=1", 200, headers=lines)
    assert answer.headers["mq-next-cursor"]
    query = "?direction=forward&from_ms=1&until_ms=2&text=x&property=a=b&filter=t&body=base64"
    await check("browse_messages", "GET", url + query, 200)
    for bad in ("cursor=x", "page_size=0", "property=x", "text=", "filter=sql:(", "direction=up"):
        await check("browse_messages", "GET", f"{url}?{bad}", 400)
    await check("browse_messages", "GET", "/v1/topics/none/messages", 404)
    await check("browse_messages", "GET", url, 406, headers={"Accept": "text/html"})


async def test_request_and_reply(check: Checker) -> None:
    url = T + "/messages:request"
    for bad in ("?wait=0", "?wait=x", "?format=x", "?tag=%7C&wait=1"):
        await check("request_reply", "POST", url + bad, 400, content=b"x")
    answer = await check("request_reply", "POST", url + "?wait=10ms&tag=t", 504, content=b"x")
    problem = answer.json()
    assert (problem["code"], problem["outcome"]) == ("REPLY_TIMEOUT", "stored")
    late = f"/v1/replies/{problem['correlation_id']}"
    await check("reply_to_request", "POST", late, 410, content=b"y")
    await check("reply_to_request", "POST", "/v1/replies/x", 404, content=b"y")
    await check("reply_to_request", "POST", late + "?tag=%7C", 400, content=b"y")
    headers = {"Content-Type": EVENT}
    await check("reply_to_request", "POST", late, 415, json={}, headers=headers)
    await check("request_reply", "POST", url + "?wait=61", 400, content=b"x")
    await check("request_reply", "POST", "/v1/topics/none/messages:request", 404, content=b"x")
    headers = {"Prefer": "wait=5", "MQ-Tag": "t"}
    for query in ("", "?format=raw"):
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(
                check("request_reply", "POST", url + query, 200, content=b"x", headers=headers)
            )
            got = await check("receive_messages", "POST", G + ":receive?wait=5&max_messages=9", 200)
            correlation_id = got.json()["messages"][-1]["correlation_id"]
            reply = f"/v1/replies/{correlation_id}?tag=r&keys=a%20b"
            await check("reply_to_request", "POST", reply, 200, content=b"yes")
        assert b"yes" in (await asked).content


async def test_receive_and_settle(check: Checker) -> None:
    await check("send_message", "POST", T + "/messages", 201, content=b"1")
    url = G + ":receive"
    answer = await check("receive_messages", "POST", url + "?invisible=60s", 200)
    handle = answer.json()["messages"][0]["receipt_handle"]
    await check("receive_messages", "POST", url, 200, json={"max_messages": 2, "wait": 0})
    await check("receive_messages", "POST", url + "?format=raw", 204)
    await check("receive_messages", "POST", url, 400, json={"max_messages": 0})

    extend = {"receipt_handles": [handle], "invisible": "60s"}
    answer = await check("extend_messages", "POST", G + ":extend", 200, json=extend)
    handle = answer.json()["results"][0]["new_receipt_handle"]
    nack = {"receipt_handles": [handle, "x"], "delay": "0s"}
    await check("nack_messages", "POST", G + ":nack", 207, json=nack)
    raw_headers = {"mq-tag": "t", "mq-keys": "k", "mq-sharding-key": "s", "mq-prop-a": "b"}
    raw_headers |= {"mq-properties": '{"A":"b"}', "content-type": "application/octet-stream"}
    await check("send_message", "POST", T + "/messages", 201, content=b"2", headers=raw_headers)
    for _ in range(2):
        answer = await check("receive_messages", "POST", url + "?format=raw", 200)
    handle = answer.headers["mq-receipt-handle"]
    receipt = f"/v1/receipts/{handle}"
    change = "?action=extend&invisible=60s"
    answer = await check("change_receipt", "PATCH", receipt + change, 200)
    await check("change_receipt", "PATCH", receipt + change, 410)
    receipt = f"/v1/receipts/{answer.json()['receipt_handle']}"
    await check("change_receipt", "PATCH", receipt, 200, json={"action": "nack", "delay": "0s"})
    await check("send_message", "POST", T + "/messages", 201, content=b"3")
    dead = []
    for _ in range(2):
        answer = await check("receive_messages", "POST", url, 200)
        dead.append(answer.json()["messages"][0]["receipt_handle"])
    letters = {"receipt_handles": [dead[0]], "reason": "poison"}
    await check("dead_letter_messages", "POST", G + ":dead-letter", 200, json=letters)
    await check("dead_letter_messages", "POST", G + ":dead-letter", 410, json=letters)
    rejected = {"action": "dead_letter", "reason": "poison"}
    await check("change_receipt", "PATCH", f"/v1/receipts/{dead[1]}", 200, json=rejected)
    await check("send_message", "POST", T + "/messages", 201, content=b"4")
    answer = await check("receive_messages", "POST", url, 200)
    handle = answer.json()["messages"][0]["receipt_handle"]
    await check("ack_receipt", "DELETE", f"/v1/receipts/{handle}", 204)
    await check("ack_receipt", "DELETE", "/v1/receipts/x", 400)
    body = {"acks": [handle], "nacks": [], "extends": []}
    await check("settle_messages", "POST", G + ":settle", 200, json=body)
    await check("send_message", "POST", T + "/messages", 201, content=b"5")
    answer = await check("receive_messages", "POST", url, 200)
    handle = answer.json()["messages"][0]["receipt_handle"]
    step = {"acks": [handle], "sends": [{"topic": "orders", "text": "6", "id": "a"}]}
    await check("settle_messages", "POST", G + ":settle", 200, json=step)
    await check("settle_messages", "POST", G + ":settle", 410, json=step)
    await check("ack_messages", "POST", G + ":ack", 200, json={"receipt_handles": [handle]})
    await check("ack_messages", "POST", G + ":ack", 400, json={"receipt_handles": ["x"]})


async def test_control_plane(check: Checker) -> None:
    await check("put_topic", "PUT", "/v1/topics/new", 201, json={})
    await check("put_topic", "PUT", "/v1/topics/new", 200, json={"queues": 5})
    await check("put_topic", "PUT", "/v1/topics/new", 409, json={"queues": 1})
    await check("get_topic", "GET", "/v1/topics/new", 200)
    await check("list_topics", "GET", "/v1/topics?page_size=1", 200)
    await check("head_queue", "HEAD", "/v1/topics/new/queues/4", 200)
    await check("get_topic_stats", "GET", "/v1/topics/new/stats", 200)
    await check("get_topic_offsets", "GET", "/v1/topics/new/offsets?at=latest", 200)
    await check("delete_topic", "DELETE", "/v1/topics/new", 204)
    await check("put_group", "PUT", "/v1/groups/g", 201)
    await check("put_group", "PUT", "/v1/groups/g", 200, json={"start": 5})
    await check("get_group", "GET", "/v1/groups/g", 200)
    await check("list_groups", "GET", "/v1/groups", 200)
    commit = {"offsets": [{"queue_id": 0, "offset": 0}]}
    await check("commit_group_offsets", "PUT", "/v1/groups/g/offsets/orders", 200, json=commit)
    await check("get_group_offsets", "GET", "/v1/groups/g/offsets/orders", 200)
    await check("delete_group", "DELETE", "/v1/groups/g", 204)
    await check("get_group", "GET", "/v1/groups/g", 404)
    sent = await check("send_message", "POST", T + "/messages", 201, content=b"1")
    message = f"{T}/messages/{sent.json()['message_id']}"
    await check("get_message", "GET", message, 200)
    await check("get_message", "GET", message + "?format=raw", 200)
    await check("get_message", "GET", message, 304, headers={"If-None-Match": "*"})
    await check("get_message", "GET", message, 200, headers={"Accept": EVENT})
    await check("get_message", "GET", message, 406, headers={"Accept": "text/html"})
    for operation, path in (
        ("get_health", "/healthz"),
        ("get_readiness", "/readyz"),
        ("get_metrics", "/metrics"),
        ("get_limits", "/v1/limits"),
        ("list_error_codes", "/v1/error-codes"),
        ("list_nodes", "/v1/nodes"),
    ):
        await check(operation, "GET", path, 200)

"""API10, unsafe consumption of APIs: what comes from clients, proxies and neighbours is not
believed more than it has shown."""

import json

import pytest

from tests.support.cluster.closed_cluster import ClosedCluster, in_envelope, shake_hands
from tests.support.cluster.smuggled import SMUGGLED

pytestmark = pytest.mark.anyio

ENVELOPE = {
    "curlew-principal": "root",
    "curlew-roles": "admin",
    "curlew-versions": "9 9",
    "curlew-client": "127.0.0.1 1",
    "curlew-whole": "1",
    "mq-principal": "root",
    "x-forwarded-user": "root",
    "x-forwarded-for": "127.0.0.1",
    "x-ssl-client-s-dn": "CN=root",
    "ssl-client-cert": "x",
}
BREAKS = ("a\r\nset-cookie: x=y", "a\nset-cookie: x=y", "a\r\n\r\nHTTP/1.1 200 OK", "a\0b")


async def test_headers_of_proxies_and_nodes_make_nobody(target: ClosedCluster) -> None:
    for node, served in enumerate(target.nodes):
        for name, value in ENVELOPE.items():
            alone = await served.client.get("/v1/topics", headers={name: value})
            assert alone.status_code in (400, 401), f"{name}: {alone.text}"
            shown = await target.ask(node, "alpha", "GET", "/v1/whoami", headers={name: value})
            if shown.status_code == 200:
                assert (shown.json()["principal"], name) == ("alpha", name)
            else:
                assert shown.status_code == 400, shown.text
            listed = await target.ask(node, "alpha", "GET", "/v1/topics", headers={name: value})
            assert "beta-in" not in listed.text


@pytest.mark.parametrize("what", SMUGGLED)
async def test_no_second_request_is_read_out_of_a_first(target: ClosedCluster, what: str) -> None:
    expected, lines, rest = SMUGGLED[what]
    before = await target.stored("alpha-in")
    bearer = f"authorization: Bearer {target.keys['alpha']}".encode()
    for node in range(len(target.nodes)):
        async with target.raw(node) as connection:
            head = [b"POST /v1/topics/alpha-in/messages HTTP/1.1", b"host: x", bearer, *lines]
            await connection.say(b"\r\n".join([*head, b"", b""]) + rest)
            answer = await connection.answer()
        assert answer.status == expected, what
    stored = await target.stored("alpha-in") - before
    assert stored == (len(target.nodes) if expected == 201 else 0)


async def test_what_a_sender_writes_breaks_no_answer(target: ClosedCluster) -> None:
    """Properties, tags and keys of one team are headers of an answer to another program."""
    for number, text in enumerate(BREAKS):
        body = json.dumps({"text": "x", "tag": text, "keys": [text], "properties": {"p": text}})
        node = number % len(target.nodes)
        sent = await target.ask(
            *(node, "alpha", "POST", "/v1/topics/alpha-in/messages"),
            content=body,
            headers={"content-type": "application/vnd.curlew+json"},
        )
        if not sent.is_success:
            assert sent.status_code == 400, sent.text
            continue
        where = f"/v1/topics/alpha-in/messages/{sent.json()['message_id']}?format=raw"
        shown = await target.ask(node, "alpha", "GET", where)
        assert "set-cookie" not in shown.headers
        assert len(shown.content) == 1


async def test_a_neighbour_is_heard_behind_the_secret_alone(target: ClosedCluster) -> None:
    if len(target.nodes) == 1:
        assert target.nodes[0].node.config.cluster_listen == "", "a lone node hears no neighbour"
        return
    for node in range(len(target.nodes)):
        for secret in (b"", b"1" * 64):
            async with target.to_cluster_port(node) as connection:
                await shake_hands(connection, secret)
                await connection.say(in_envelope("GET", "/v1/topics", principal="root"))
                assert await connection.rest() == b"refused another cluster secret\n"

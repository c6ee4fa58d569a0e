"""A request has nothing of the namespace of the one before it on its connection."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.domain.limits import Limits
from tests.support.clients.wire import RawAnswer, RawConnection, served_node

pytestmark = pytest.mark.anyio

SEND = "/v1/topics/bills/messages"
IN_A = "MQ-Namespace: a"
JSON = "Content-Type: application/json"
NUMBERED = ("MQ-Producer-Id: p", "MQ-Producer-Epoch: 1", "MQ-Producer-Seq: 0")


def request(method: str, path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    lines += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[RawConnection]:
    """To a node with a topic `bills` in the namespace `a`, and one in none."""
    async with served_node(tmp_path, Limits(), auto_create_topics=True) as served:
        made = await served.connect()
        await asked(made, request("PUT", "/v1/namespaces/a", b"{}", JSON))
        await asked(made, request("POST", SEND, b"of a", IN_A))
        await asked(made, request("POST", SEND, b"of none"))
        yield made
        await made.aclose()


async def asked(connection: RawConnection, *requests: bytes) -> list[RawAnswer]:
    await connection.say(b"".join(requests))
    answers = [await connection.answer() for _ in requests]
    assert all(answer.status < 300 for answer in answers), answers
    return answers


async def test_a_pipelined_poll_is_of_its_own_namespace(connection: RawConnection) -> None:
    poll = {"client_id": "c", "subscriptions": [{"topic": "bills"}], "wait": 0}
    _, polled = await asked(
        connection,
        request("POST", SEND, b"more of a", IN_A),
        request("POST", "/v1/groups/g/members:poll", json.dumps(poll).encode(), JSON),
    )
    assert b"of a" not in polled.body
    assert b"b2YgYQ" not in polled.body  # in Base64


async def test_a_pipelined_send_under_a_number_is_stored_once(connection: RawConnection) -> None:
    numbered = request("POST", SEND, b"once", *NUMBERED)
    _, first = await asked(connection, request("POST", SEND, b"more of a", IN_A), numbered)
    (again,) = await asked(connection, numbered)
    assert json.loads(first.body)["message_id"] == json.loads(again.body)["message_id"]

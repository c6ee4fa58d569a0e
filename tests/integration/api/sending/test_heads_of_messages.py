"""Sends of one connection whose heads say the same of the message: read once, stored each time."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from app.api.formats.mq_headers import read_send_options
from app.domain.message import StoredMessage
from tests.support.clients.wire import RawConnection, Served

pytestmark = pytest.mark.anyio

CREATED = b"MQ-Tag: created\r\nMQ-Keys: order-17 order%2D18\r\nMQ-Prop-Region: eu\r\n"
PAID = b"MQ-Tag: paid\r\nMQ-Sharding-Key: 7\r\nContent-Type: text/plain\r\n"


def post(body: bytes, headers: bytes) -> bytes:
    head = b"POST /v1/topics/orders/messages HTTP/1.1\r\nHost: localhost\r\n" + headers
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.fixture
async def connection(server: Served) -> AsyncIterator[RawConnection]:
    connection = await server.connect()
    yield connection
    await connection.aclose()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was read of heads so far."""
    found: list[object] = []

    def read(*arguments: object) -> object:
        found.append(read_send_options(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr("app.api.dataplane.sending.read_send_options", read)
    return found


async def sent(
    server: Served, connection: RawConnection, body: bytes, headers: bytes
) -> StoredMessage:
    """What the log has of a message that was sent."""
    await connection.say(post(body, headers))
    answer = await connection.answer()
    assert answer.status == 201, answer
    stored = msgspec.json.decode(answer.body)
    read = server.node.store.read(
        *("orders", stored["queue_id"], stored["queue_offset"]), max_messages=1, max_bytes=1
    )
    return server.node.store.decode(read.records[0])


def said(message: StoredMessage) -> tuple[object, ...]:
    return (
        *(message.body, message.tag, message.keys, message.sharding_key),
        *(dict(message.properties), message.content_type),
    )


async def test_each_message_has_what_its_head_says(
    server: Served, connection: RawConnection, reads: list[object]
) -> None:
    created = ("created", ("order-17", "order-18"), None, {"region": "eu"}, None)
    paid: tuple[object, ...] = ("paid", (), "7", {}, "text/plain")
    for body in (b"a", b"b", b"longer", b"d"):
        assert said(await sent(server, connection, body, CREATED)) == (body, *created)
        assert said(await sent(server, connection, body, PAID)) == (body, *paid)
    assert len(reads) == 4  # each head as a new one, and as one that is known


async def test_who_sends_is_not_taken_for_a_part_of_the_message(
    server: Served, connection: RawConnection
) -> None:
    for body in (b"a", b"b", b"c"):
        await sent(server, connection, body, CREATED + b"MQ-Client-Id: shop\r\n")
        await sent(server, connection, body, CREATED)
    rows = server.node.broker.clients.producers.rows("orders")
    assert {key[0]: row.count for key, row in rows.items()} == {"shop": 3, "": 3}


@pytest.mark.parametrize("header", [b"MQ-Delay: 1h\r\n", b"MQ-One-Way: true\r\n"])
async def test_how_and_when_it_is_sent_is_heard_each_time(
    connection: RawConnection, header: bytes
) -> None:
    for _ in range(4):
        await connection.say(post(b"a", CREATED + header))
        answer = await connection.answer()
        assert answer.status == 202 or b"recall_handle" in answer.body


MANY = b"".join([b',"%03d":"x"' % number for number in range(100)])


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"MQ-Properties: {%b}\r\n" % MANY[1:], 201),
        (b"MQ-Keys: %b\r\n" % b" ".join([b"%03d" % number for number in range(900)]), 400),
    ],
)
async def test_nothing_is_kept_of_a_head_that_says_very_much(
    connection: RawConnection, reads: list[object], header: bytes, status: int
) -> None:
    """Read, it takes twenty times its bytes, and a node has thousands of connections."""
    for _ in range(4):
        await connection.say(post(b"a", header))
        assert (await connection.answer()).status == status
    assert len(reads) == 4

"""A connection to another node is used again behind each answer that leaves it open."""

import asyncio

import pytest
from typing_extensions import override

from app.api.peers.connection import PeerConnection
from app.runtime.secure.cluster_secret import ClusterSecret

pytestmark = pytest.mark.anyio

CREATED = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n"


class Silent(asyncio.Transport):
    """To nobody."""

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data

    @override
    def abort(self) -> None:
        pass


@pytest.fixture
async def connection() -> PeerConnection:
    made = PeerConnection(ClusterSecret(b"a" * 32))
    made.connection_made(Silent())
    made._asking = None
    return made


@pytest.mark.parametrize(
    "answer",
    [
        CREATED + b"\r\nab",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
    ],
)
async def test_another_request_follows_an_answer(connection: PeerConnection, answer: bytes) -> None:
    for _ in range(3):
        for part in (answer[:25], answer[25:]):
            connection.data_received(part)
        assert connection.is_complete
        assert connection.is_reusable()
        assert connection.status == 0


async def test_none_follows_where_the_other_node_closes(connection: PeerConnection) -> None:
    connection.data_received(CREATED + b"connection: close\r\n\r\nab")
    assert connection.is_complete
    assert not connection.is_reusable()


async def test_none_follows_an_answer_without_its_end(connection: PeerConnection) -> None:
    connection.data_received(CREATED + b"\r\na")
    assert not connection.is_reusable()


async def test_another_follows_the_head_of_a_body_that_is_not_sent(
    connection: PeerConnection,
) -> None:
    connection.is_to_head = True
    connection.data_received(CREATED + b"\r\n")
    assert connection.is_reusable()
    connection.data_received(CREATED + b"\r\nab")
    assert await connection.take() == b"ab"

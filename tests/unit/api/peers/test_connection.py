"""A connection to another node is used again behind each answer that leaves it open."""

import pytest

from app.api.peers.connection import Interrupted, PeerConnection, status_of_whole
from app.runtime.secure.cluster_secret import ClusterSecret
from tests.unit.api.peers.silent import Silent

pytestmark = pytest.mark.anyio

CREATED = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n"


@pytest.fixture
async def connection() -> PeerConnection:
    made = PeerConnection(ClusterSecret(b"a" * 32))
    made.connection_made(Silent())
    made._asking = None
    made.write(b"a request")
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
        connection.write(b"the next one")


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
    connection.write(b"the next one")
    connection.data_received(CREATED + b"\r\nab")
    assert await connection.take() == b"ab"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (CREATED + b"\r\nab", 201),
        (b"HTTP/1.1 404 Not Found\r\nmq-tag: content-length\r\ncontent-length: 0\r\n\r\n", 404),
        (CREATED + b"\r\na", 0),
        (CREATED + b"\r\nabc", 0),
        (CREATED + b"connection: close\r\n\r\nab", 0),
        (b"HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab", 0),
        (b"HTTP/1.1 201 Created\r\ncontent-length: 2 \r\n\r\nab", 0),
        (b"HTTP/1.1 201 Created\r\ncontent-length: \r\n\r\n", 0),
        (b"HTTP/1.1 201 Created\r\n\r\ncontent-length: 2\r\n\r\nab", 0),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", 0),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 0),
        (b"HTTP/1.0 201 Created\r\ncontent-length: 2\r\n\r\nab", 0),
        (CREATED, 0),
        (b"", 0),
    ],
)
async def test_an_answer_in_one_piece_is_passed_on_as_it_came(
    connection: PeerConnection, answer: bytes, status: int
) -> None:
    assert status_of_whole(answer) == status
    connection.may_be_whole = True
    connection.data_received(answer)
    assert connection.whole == (answer if status else b"")
    if status:
        assert (connection.status, connection.is_complete) == (status, True)
        assert connection.is_reusable()
        assert connection.whole == b""


async def test_a_second_piece_is_no_whole_answer(connection: PeerConnection) -> None:
    connection.may_be_whole = True
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n")
    connection.data_received(CREATED + b"\r\nab")
    assert connection.whole == b""
    assert not connection.is_complete


OTHER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nxy"


@pytest.mark.parametrize("parts", [(OTHER,), (OTHER[:20], OTHER[20:])])
async def test_what_comes_for_nobody_is_not_the_next_answer(
    connection: PeerConnection, parts: tuple[bytes, ...]
) -> None:
    """It would be given to another client, and each answer behind it to the one before."""
    connection.data_received(CREATED + b"\r\nab")
    assert connection.is_reusable()
    for part in parts:
        connection.data_received(part)
    assert not connection.is_open
    with pytest.raises(Interrupted):
        await connection.head()


@pytest.mark.parametrize("may_be_whole", [False, True])
@pytest.mark.parametrize("is_apart", [False, True])
async def test_a_second_answer_is_not_taken_for_the_first(
    connection: PeerConnection, may_be_whole: bool, is_apart: bool
) -> None:
    connection.may_be_whole = may_be_whole
    first = CREATED + b"\r\nab"
    for data in (first, OTHER) if is_apart else (first + OTHER,):
        connection.data_received(data)
    await connection.head()
    assert connection.status == 201
    assert connection.headers == [(b"content-length", b"2")] or connection.whole == first
    assert await connection.take() == (b"" if connection.whole else b"ab")
    assert not connection.is_reusable()

"""How long an answer may take: one that has begun has all the time that there is, one of which no
byte has come less. Both kinds of connection, against a node that is played."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import pytest
from curlew_client.aio.connection import AsyncConnection
from curlew_client.assigned.running import WITHOUT_PART_S, Patience
from curlew_client.blocking.connection import BlockingConnection
from curlew_client.errors import TimedOut
from curlew_client.options import node_of
from curlew_client.wire.http1 import Answer

from tests.support.nodes.waiting import wait_until

LONG_S = 60.0
SHORT_S = 0.2
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"

Exchange = Callable[[str, float, float | None], Answer]


def blocking(url: str, deadline_s: float, begins_by_s: float | None) -> Answer:
    connection = BlockingConnection.open(node_of(url), None, LONG_S)
    try:
        return connection.exchange(b"GET / HTTP/1.1\r\n\r\n", deadline_s, begins_by_s)
    finally:
        connection.close()


def on_a_loop(url: str, deadline_s: float, begins_by_s: float | None) -> Answer:
    async def exchanged() -> Answer:
        connection = await AsyncConnection.open(node_of(url), None, LONG_S)
        try:
            return await connection.exchange(b"GET / HTTP/1.1\r\n\r\n", deadline_s, begins_by_s)
        finally:
            connection.close()

    return asyncio.run(exchanged())


both = pytest.mark.parametrize("exchange", [blocking, on_a_loop])


@contextmanager
def played(first: bytes, is_next: Callable[[], bool], then: bytes) -> Iterator[str]:
    """A node that answers one request: `first` at once, and `then` when it is time."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4_096)
                peer.sendall(first)
                if then:
                    wait_until(is_next, within_s=LONG_S)
                    peer.sendall(then)
                peer.recv(1)  # until the client goes

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join(LONG_S)


@both
def test_a_silent_node_is_given_up_before_the_time_is_over(exchange: Exchange) -> None:
    began_s = monotonic()
    with played(b"", bool, b"") as url, pytest.raises(TimedOut):
        exchange(url, began_s + LONG_S, began_s + SHORT_S)
    assert SHORT_S <= monotonic() - began_s < LONG_S / 2


@both
def test_an_answer_that_has_begun_is_not_cut_short(exchange: Exchange) -> None:
    began_s = monotonic()
    begins_by_s = began_s + 1.0

    def is_late() -> bool:
        return monotonic() > begins_by_s + SHORT_S

    with played(HEAD[:1], is_late, HEAD[1:] + b"late") as url:
        assert exchange(url, began_s + LONG_S, begins_by_s).body == b"late"


@both
def test_an_answer_that_has_begun_ends_with_the_time(exchange: Exchange) -> None:
    began_s = monotonic()
    with played(HEAD, bool, b"") as url, pytest.raises(TimedOut):
        exchange(url, began_s + SHORT_S, began_s + LONG_S)


@pytest.mark.parametrize(
    ("wait_s", "timeout_s", "silent_s"),
    [(0.0, 10.0, 5.0), (20.0, 10.0, 25.0), (1.0, 60.0, 31.0), (0.0, 2.0, WITHOUT_PART_S)],
)
def test_half_of_the_timeout_is_for_another_node_and_none_that_waits_for_another_is_given_up(
    wait_s: float, timeout_s: float, silent_s: float
) -> None:
    assert Patience(wait_s, timeout_s) == (wait_s, timeout_s)
    assert Patience(wait_s, timeout_s).silent_s == silent_s
    assert Patience(wait_s, timeout_s).whole_s == wait_s + timeout_s

"""A producer against a server that breaks, hangs, forgets and lies, blocking and with asyncio."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from curlew_client import (
    AsyncClient,
    Client,
    ConnectionFailed,
    CurlewError,
    NotCurlew,
    SendFuture,
    SendResult,
    TimedOut,
    TooMuchUnderWay,
)
from curlew_client.errors import FlushDiskTimeout, SystemBusy, TopicNotFound, Unauthorized

from tests.support.clients.scripted_node import (
    ScriptedNode,
    answered,
    broken,
    hung,
    raw,
    refused,
    said,
    scripted,
    stored,
)
from tests.support.nodes.waiting import until

Send = Callable[..., SendResult]


def send_blocking(url: str, *, times: int = 1, **options: Any) -> SendResult:
    with Client(url, **options) as curlew:
        for _ in range(times - 1):
            with suppress(CurlewError):
                curlew.send("orders", b"x")
        return curlew.send("orders", b"x")


def send_on_a_loop(url: str, *, times: int = 1, **options: Any) -> SendResult:
    async def send() -> SendResult:
        async with AsyncClient(url, **options) as curlew:
            for _ in range(times - 1):
                with suppress(CurlewError):
                    await curlew.send("orders", b"x")
            return await curlew.send("orders", b"x")

    return asyncio.run(send())


both = pytest.mark.parametrize("send", [send_blocking, send_on_a_loop])


def numbers(node: ScriptedNode) -> list[tuple[str, str]]:
    """Lane (without the client's id) and number of each send."""
    asked = [each.number for each in node.sends]
    return [(lane.rpartition(":")[2], number) for lane, number in asked]


@both
def test_a_broken_connection_repeats_the_same_number(send: Send) -> None:
    with scripted(broken, said(b"HTTP/1.1 2"), stored(7, status=200)) as node:
        node.steps[1] = _said_and_closed(b"HTTP/1.1 2")
        result = send(node.url)
    assert (result.queue_offset, result.is_duplicate) == (7, True)
    assert numbers(node) == [("1", "0")] * 3


def _said_and_closed(data: bytes) -> Any:
    def step(connection: Any) -> None:
        connection.sendall(data)
        connection.close()

    return step


@both
def test_without_numbers_an_open_send_is_not_repeated(send: Send) -> None:
    with scripted(broken) as node, pytest.raises(ConnectionFailed) as caught:
        send(node.url, idempotent=False)
    assert caught.value.outcome == "unknown"
    assert len(node.sends) == 1


@both
def test_after_an_open_end_the_next_message_has_another_lane(send: Send) -> None:
    with scripted(broken) as node:
        send(node.url, times=2, retries=0)
    assert numbers(node) == [("1", "0"), ("2", "0")]


@both
def test_a_refused_message_leaves_its_number_to_the_next(send: Send) -> None:
    missing = refused(404, "TOPIC_NOT_FOUND", outcome="not_stored", retryable=False)
    with scripted(stored(), missing, stored()) as node:
        send(node.url, times=3)
    assert numbers(node) == [("1", "0"), ("1", "1"), ("1", "1")]


@both
def test_a_busy_node_is_asked_again(send: Send) -> None:
    busy = refused(503, "SYSTEM_BUSY", "Retry-After: 0", outcome="not_stored", retryable=True)
    with scripted(busy, busy, stored(3)) as node:
        assert send(node.url).queue_offset == 3
    with scripted(busy, busy, busy) as node, pytest.raises(SystemBusy) as caught:
        send(node.url)
    assert (caught.value.outcome, len(node.sends)) == ("not_stored", 3)


@both
def test_a_lane_that_the_node_has_forgotten_is_left(send: Send) -> None:
    gap = refused(
        409, "SEQUENCE_OUT_OF_ORDER", outcome="not_stored", retryable=False, expected_seq=0
    )
    with scripted(stored(), gap, stored(5)) as node:
        assert send(node.url, times=2).queue_offset == 5
    assert numbers(node) == [("1", "0"), ("1", "1"), ("2", "0")]


@both
def test_stored_before_is_a_success(send: Send) -> None:
    before = refused(409, "ALREADY_STORED", outcome="stored", retryable=False)
    with scripted(broken, before, stored()) as node:
        result = send(node.url)
    assert (result.is_duplicate, result.message_id) == (True, None)


@both
def test_what_hangs_ends_with_the_budget(send: Send) -> None:
    with scripted(hung) as node, pytest.raises(TimedOut, match="did not answer in time") as caught:
        send(node.url, timeout=0.2)
    assert caught.value.outcome == "unknown"
    assert isinstance(caught.value, TimeoutError)
    assert len(node.sends) == 1


@both
def test_what_is_not_on_the_medium_in_time_is_told(send: Send) -> None:
    late = refused(504, "FLUSH_DISK_TIMEOUT", outcome="unknown", retryable=True, message_id="A7")
    with scripted(late) as node, pytest.raises(FlushDiskTimeout) as caught:
        send(node.url)
    assert (caught.value.outcome, caught.value.fields["message_id"]) == ("unknown", "A7")
    with scripted(late, stored(2, status=200)) as node:
        assert send(node.url, retry_on_not_safe=True).queue_offset == 2


@both
@pytest.mark.parametrize(
    ("step", "kind", "words"),
    [
        (raw(200, b"<html>", "Server: nginx"), NotCurlew, r"status 200 \(nginx\).*address"),
        (raw(404, b"<html>"), NotCurlew, "status 404, and not as a Curlew node does"),
        (said(b"SSH-2.0-OpenSSH_9.2\r\n"), NotCurlew, "does not speak HTTP"),
        (answered(201, []), NotCurlew, "not as a Curlew node does"),
        (raw(502, b"", "Server: nginx"), ConnectionFailed, "a proxy there does not reach"),
        (refused(401, "UNAUTHORIZED", hint="send a key"), Unauthorized, "send a key"),
        (refused(404, "TOPIC_NOT_FOUND"), TopicNotFound, "no .TOPIC_NOT_FOUND."),
    ],
)
def test_each_wrong_answer_has_a_sentence(
    send: Send, step: Any, kind: type[Exception], words: str
) -> None:
    with scripted(step) as node, pytest.raises(kind, match=words) as caught:
        send(node.url, retries=0)
    assert isinstance(caught.value, CurlewError)
    assert caught.value.outcome == "unknown", "it is not said, so nobody can tell"


@both
def test_nobody_is_there(send: Send) -> None:
    with scripted() as node:
        pass
    with pytest.raises(ConnectionFailed, match="cannot be made") as caught:
        send(node.url)
    assert caught.value.outcome == "not_stored"


@both
def test_another_node_is_asked_when_one_fails(send: Send) -> None:
    with scripted() as gone:
        pass
    with scripted() as node:
        for _ in range(4):
            send([gone.url, node.url])
    assert len(node.sends) == 4


@both
def test_a_connection_is_used_again_unless_the_node_has_closed_it(send: Send) -> None:
    with scripted() as node:
        send(node.url, times=3)
        assert len({each.headers["host"] for each in node.sends}) == 1
        assert node.connections <= 2, "one for the sends, at most one for the goodbye"


def test_sends_beyond_the_connections_wait_and_give_up_in_time() -> None:
    async def send() -> list[Any]:
        async with AsyncClient(node.url, connections=1, timeout=0.3) as curlew:
            sends = [curlew.send("orders", b"x") for _ in range(2)]
            return list(await asyncio.gather(*sends, return_exceptions=True))

    with scripted(hung) as node:
        first, second = asyncio.run(send())
    assert isinstance(first, TimedOut)
    assert isinstance(second, TooMuchUnderWay | TimedOut)


def test_a_client_says_goodbye_to_its_lanes() -> None:
    with scripted() as node:
        send_blocking(node.url, client_id="till-3")
    assert node.asked[-1].line == "DELETE /v1/producers/till-3 HTTP/1.1"


def test_a_cancelled_send_leaves_its_lane() -> None:
    async def send() -> None:
        async with AsyncClient(node.url) as curlew:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(curlew.send("orders", b"x"), 0.1)
            await curlew.send("orders", b"y")

    with scripted(hung) as node:
        asyncio.run(send())
    assert numbers(node) == [("1", "0"), ("2", "0")]


def test_what_the_end_of_the_loop_cuts_off_may_be_stored() -> None:
    async def begin() -> SendFuture:
        future = await AsyncClient(node.url).send_async("orders", b"x")
        await until(lambda: bool(node.sends))
        return future

    with scripted(hung) as node:
        failure = asyncio.run(begin()).exception()
    assert isinstance(failure, CurlewError)
    assert failure.outcome == "unknown"

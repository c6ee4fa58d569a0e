"""How an answer becomes bytes."""

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from app.api.http.request_context import AT_ONCE, MUST_REACH, WHOLE_ANSWER, WHOLE_BODY, ClientGone
from app.api.server.cycle import AnswerCycle
from app.api.server.file_sending import FileAnswers

pytestmark = pytest.mark.anyio


class Wire:
    """A transport that remembers."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True


class Quiet:
    """A connection that does as it is told."""

    def __init__(self) -> None:
        self.guard = SimpleNamespace(file_answers=FileAnswers(1))
        self.muted_s: list[float] = []

    def muted_for(self, seconds: float) -> Callable[[], None]:
        return lambda: self.muted_s.append(seconds)


def cycle_on(wire: Wire, method: str = "GET", *, keep_alive: bool = True) -> AnswerCycle:
    return AnswerCycle(
        {"method": method},  # type: ignore[typeddict-item]
        wire,  # type: ignore[arg-type]
        FlowControl(wire),  # type: ignore[arg-type]
        logging.getLogger("test"),
        lambda: None,
        expects=False,
        keep_alive=keep_alive,
        connection=Quiet(),
    )


async def answer(
    cycle: AnswerCycle, status: int, headers: list[tuple[bytes, bytes]], *parts: bytes
) -> None:
    start: Any = {"type": "http.response.start", "status": status, "headers": headers}
    await cycle.send(start)
    for at, part in enumerate(parts, start=1):
        body: Any = {"type": "http.response.body", "body": part, "more_body": at < len(parts)}
        await cycle.send(body)


async def test_head_and_body_go_out_in_one_write() -> None:
    wire = Wire()
    await answer(cycle_on(wire), 200, [(b"a", b"b"), (b"content-length", b"2")], b"ok")
    assert wire.writes == [b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 2\r\n\r\nok"]
    assert not wire.closed


async def test_without_a_length_it_goes_in_chunks() -> None:
    wire = Wire()
    await answer(cycle_on(wire), 200, [], b"ab", b"", b"c")
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    assert b"".join(wire.writes) == head + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"


@pytest.mark.parametrize(("method", "status"), [("GET", 204), ("GET", 304), ("HEAD", 200)])
async def test_some_answers_have_no_body(method: str, status: int) -> None:
    wire = Wire()
    await answer(cycle_on(wire, method), status, [(b"a", b"b")], b"")
    assert b"".join(wire.writes).endswith(b"a: b\r\n\r\n")


async def test_the_answer_to_head_keeps_its_length_and_loses_its_body() -> None:
    wire = Wire()
    await answer(cycle_on(wire, "HEAD"), 200, [(b"content-length", b"2")], b"ok")
    assert b"".join(wire.writes) == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


@pytest.mark.parametrize("keep_alive", [True, False])
async def test_a_connection_that_ends_says_so_once(keep_alive: bool) -> None:
    wire = Wire()
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await answer(cycle_on(wire, keep_alive=keep_alive), 200, headers[keep_alive - 1 :], b"")
    assert wire.writes[0].count(b"connection: close\r\n") == 1
    assert wire.closed


@pytest.mark.parametrize(
    "header",
    [(b"a", b"b\r\nc: d"), (b"a", b"b\nc"), (b"a", b"b\rc"), (b"a\r\n", b""), (b"a", b"\0")],
)
async def test_a_header_that_would_break_its_line_is_not_sent(header: tuple[bytes, bytes]) -> None:
    wire = Wire()
    with pytest.raises(ValueError, match="break its line"):
        await answer(cycle_on(wire), 200, [header], b"")
    assert not wire.writes


@pytest.mark.parametrize("body", [b"a", b"abc"])
async def test_a_body_of_another_length_is_our_fault(body: bytes) -> None:
    wire = Wire()
    with pytest.raises(AssertionError):
        await answer(cycle_on(wire), 200, [(b"content-length", b"2")], body)
    assert not b"".join(wire.writes).endswith(b"abc"), "more than the length went out"


def part_of(body: bytes, **more: object) -> Any:
    return {"type": "http.response.body", "body": body, "more_body": True, **more}


async def test_a_part_that_must_reach_the_client_says_when_nobody_is_there() -> None:
    """So that leases which could not be sent are given back."""
    cycle = cycle_on(wire := Wire())
    await cycle.send({"type": "http.response.start", "status": 200, "headers": []})
    cycle.disconnected = True
    await cycle.send(part_of(b"a"))
    with pytest.raises(ClientGone):
        await cycle.send(part_of(b"b", **{MUST_REACH: True}))
    assert wire.writes == []


async def test_a_last_word_does_not_wait_for_room() -> None:
    cycle = cycle_on(wire := Wire())
    await cycle.send({"type": "http.response.start", "status": 200, "headers": []})
    await cycle.send(part_of(b"a"))
    cycle.flow.pause_writing()
    waiting = asyncio.ensure_future(cycle.send(part_of(b"b")))
    await asyncio.sleep(0)
    assert b"b" not in b"".join(wire.writes[1:])
    end: Any = {"type": "http.response.body", "body": b"end", AT_ONCE: True}
    await asyncio.wait_for(cycle.send(end), 5)
    assert wire.writes[-1] == b"3\r\nend\r\n0\r\n\r\n"
    waiting.cancel()
    await asyncio.wait([waiting])


def whole(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Any:
    return {"type": WHOLE_ANSWER, "status": status, "headers": headers, "body": body}


OK = [(b"a", b"b"), (b"content-length", b"2")]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("extra", [[], [(b"connection", b"close")]])
async def test_a_whole_answer_is_what_two_events_would_be(
    method: str, keep_alive: bool, extra: list[tuple[bytes, bytes]]
) -> None:
    at_once, in_events = Wire(), Wire()
    await cycle_on(at_once, method, keep_alive=keep_alive).send(whole(200, OK + extra, b"ok"))
    await answer(cycle_on(in_events, method, keep_alive=keep_alive), 200, OK + extra, b"ok")
    assert b"".join(at_once.writes) == b"".join(in_events.writes)
    assert at_once.closed == in_events.closed


@pytest.mark.parametrize("count", [0, 14, 15, 16, 17, 60])
@pytest.mark.parametrize("keep_alive", [True, False])
async def test_a_head_of_many_headers_is_made_as_one_of_few(count: int, keep_alive: bool) -> None:
    at_once, in_events = Wire(), Wire()
    headers = [(b"h%d" % number, b"v") for number in range(count)] + OK[1:]
    await cycle_on(at_once, keep_alive=keep_alive).send(whole(200, headers, b"ok"))
    await answer(cycle_on(in_events, keep_alive=keep_alive), 200, headers, b"ok")
    assert b"".join(at_once.writes) == b"".join(in_events.writes)


@pytest.mark.parametrize("count", [1, 30])
async def test_a_whole_answer_with_a_header_that_would_break_its_line_is_not_sent(
    count: int,
) -> None:
    cycle = cycle_on(wire := Wire())
    with pytest.raises(ValueError, match="break its line"):
        await cycle.send(whole(200, [(b"a", b"b\r\nc: d")] * count, b""))
    assert not wire.writes


async def test_a_whole_answer_is_the_only_one() -> None:
    cycle = cycle_on(Wire())
    await cycle.send(whole(200, OK, b"ok"))
    with pytest.raises(AssertionError):
        await cycle.send(whole(200, OK, b"ok"))


async def test_a_body_that_came_whole_is_handed_over_as_it_is() -> None:
    cycle = cycle_on(Wire(), "POST")
    body = b"x" * 100
    cycle.take(body)
    cycle.end_body()
    event: Any = await cycle.receive()
    assert event["body"] is body
    assert event == {"type": "http.request", "body": body, "more_body": False}


async def test_a_body_in_parts_is_waited_for_until_its_end() -> None:
    cycle = cycle_on(Wire(), "POST")
    cycle.take(b"a")
    assert await cycle.receive() == {"type": "http.request", "body": b"a", "more_body": True}
    waiting = asyncio.ensure_future(cycle.receive())
    await asyncio.sleep(0)
    assert not waiting.done()
    cycle.take(b"b")
    cycle.take(b"c")
    cycle.end_body()
    assert await waiting == {"type": "http.request", "body": b"bc", "more_body": False}
    waiting = asyncio.ensure_future(cycle.receive())
    await asyncio.sleep(0)
    assert not waiting.done(), "the end of the body was told twice"
    cycle.disconnected = True
    cycle.message_event.set()
    assert await waiting == {"type": "http.disconnect"}


async def test_a_body_that_is_offered_is_had_once() -> None:
    """By whoever takes it out of the scope, or by `receive` when nobody did."""
    for takes in (True, False):
        cycle = cycle_on(Wire(), "POST")
        cycle.take(b"abc")
        cycle.end_body()
        cycle.offer_body()
        if takes:
            assert cycle.scope.pop(WHOLE_BODY) == b"abc"  # type: ignore[typeddict-item]
        else:
            event: Any = await cycle.receive()
            assert event == {"type": "http.request", "body": b"abc", "more_body": False}
        waiting = asyncio.ensure_future(cycle.receive())
        await asyncio.sleep(0)
        assert not waiting.done(), "the body was told again"
        cycle.disconnected = True
        cycle.message_event.set()
        assert await waiting == {"type": "http.disconnect"}

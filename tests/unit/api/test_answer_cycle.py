"""How an answer becomes bytes."""

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from app.api.exchange import AT_ONCE, MUST_REACH, ClientGone
from app.api.guard.cycle import AnswerCycle

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


def cycle_on(wire: Wire, method: str = "GET", *, keep_alive: bool = True) -> AnswerCycle:
    logger = logging.getLogger("test")
    return AnswerCycle(
        scope={"method": method},  # type: ignore[typeddict-item]
        transport=wire,  # type: ignore[arg-type]
        flow=FlowControl(wire),  # type: ignore[arg-type]
        logger=logger,
        access_logger=logger,
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=lambda: None,
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

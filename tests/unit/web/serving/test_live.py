"""Streams of pages: what has changed is sent, refusals and the end of the node end them."""

import asyncio

import pytest

from app.domain.limits import UI_STREAMS_MAX, UI_STREAMS_OF_A_PRINCIPAL_MAX
from app.web.serving.api import Refused
from app.web.serving.live import LiveStreams
from tests.support.stores.clock import FakeClock


def test_what_has_changed_is_sent_whole_and_else_the_time() -> None:
    texts = iter(["one\ntwo", "one\ntwo", "three"])

    async def look() -> str:
        try:
            return next(texts)
        except StopIteration:
            raise Refused(401, {}) from None

    async def run() -> list[str]:
        return [event async for event in LiveStreams().follow(look, 0, FakeClock())]

    events = asyncio.run(run())
    time = "event: looked\ndata: 2023-11-14 22:13:20 UTC\n\n"
    assert events == ["data: one\ndata: two\n\n", time, time, "data: three\n\n", time]


def test_the_end_of_the_node_ends_them_at_once() -> None:
    async def look() -> str:
        return "x"

    async def run() -> None:
        live = LiveStreams()
        events = live.follow(look, 3_600, FakeClock())
        assert [await anext(events), await anext(events)][0] == "data: x\n\n"
        ends = asyncio.ensure_future(anext(events))
        live.close()
        with pytest.raises(StopAsyncIteration):
            await ends
        assert not live.has_room(None)

    asyncio.run(run())


def test_there_are_no_more_than_so_many() -> None:
    async def look() -> str:
        return "x"

    async def run() -> None:
        live = LiveStreams()
        streams = [live.follow(look, 3_600, FakeClock()) for _ in range(UI_STREAMS_MAX)]
        for each in streams:
            await anext(each)
        assert not live.has_room(None)
        await streams[0].aclose()  # type: ignore[attr-defined]
        assert live.has_room(None)

    asyncio.run(run())


def test_one_principal_leaves_room_for_the_others() -> None:
    async def look() -> str:
        return "x"

    async def run() -> None:
        live = LiveStreams()
        most = UI_STREAMS_OF_A_PRINCIPAL_MAX
        streams = [live.follow(look, 3_600, FakeClock(), "ann") for _ in range(most + 1)]
        for each in streams[:most]:
            await anext(each)
        assert not live.has_room("ann")
        assert live.has_room("bob")
        with pytest.raises(StopAsyncIteration):  # asked for while there was room
            await anext(streams[most])
        await streams[0].aclose()  # type: ignore[attr-defined]
        assert live.has_room("ann")

    asyncio.run(run())

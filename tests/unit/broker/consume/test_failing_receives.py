"""Receives that cannot be answered: nothing stays leased for nobody."""

import errno
from typing import Any

import pytest

from app.domain.errors import ShardUnavailable
from app.store.read.queue_reads import ReadResult
from tests.support.nodes.brokers import TOPIC, running

pytestmark = pytest.mark.anyio


async def test_a_read_that_fails_leaves_what_other_queues_gave_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(queues=2) as world:
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, [b"0", b"1"])
        read = world.store.read

        def broken(topic: str, queue_id: int, offset: int, **more: object) -> object:
            if (topic, queue_id) == (TOPIC, 1):
                raise OSError(errno.EIO, "a bad sector")
            return read(topic, queue_id, offset, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(world.store, "read", broken)
        for _ in range(3):
            with pytest.raises(OSError, match="a bad sector"):
                await world.receive()
        monkeypatch.undo()
        assert [d.attempt for d in await world.receive()] == [1] * 4


async def test_a_cold_queue_that_may_be_whole_elsewhere_alone_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(queues=4) as world:
        for queue_id in range(4):
            world.store.fill(TOPIC, queue_id, [b"%d" % queue_id])
        world.store.cold.update((TOPIC, queue_id) for queue_id in range(4))
        read, damaged = world.store.read, {0, 1, 3}

        def read_or_refuse(topic: str, queue_id: int, offset: int, **more: Any) -> ReadResult:
            if more["wait_for_disk"] and (topic, queue_id) in {(TOPIC, each) for each in damaged}:
                raise ShardUnavailable("the record is damaged here, and may be whole elsewhere")
            return read(topic, queue_id, offset, **more)

        monkeypatch.setattr(world.store, "read", read_or_refuse)
        (delivery,) = await world.receive()
        assert delivery.message.body == b"2"
        with pytest.raises(ShardUnavailable):
            await world.receive()
        damaged.clear()
        for _ in range(3):
            (delivery,) = await world.receive()
            assert delivery.attempt == 1

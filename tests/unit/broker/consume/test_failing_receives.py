"""Receives that cannot be answered: nothing stays leased for nobody."""

import errno

import pytest

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

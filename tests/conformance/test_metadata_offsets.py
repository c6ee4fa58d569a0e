"""What the metadata promises of committed offsets, over SQLite and over a real PostgreSQL alike."""

import random

import pytest

from app.cluster import Metadata
from tests.support.metadata.metadata import OpenNode, make, offset

pytestmark = pytest.mark.anyio


class TestOffsets:
    async def test_offsets_only_go_forward(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        for value, stored in ((5, 5), (3, 5), (5, 5), (9, 9)):
            assert await metadata.commit_offsets([offset("billing", "orders", 0, value)]) == []
            assert await metadata.load_offsets() == [offset("billing", "orders", 0, stored)]

    async def test_force_goes_back(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        await metadata.commit_offsets([offset("billing", "orders", 0, 5)])
        await metadata.commit_offsets([offset("billing", "orders", 0, 2)], force=True)
        assert await metadata.load_offsets() == [offset("billing", "orders", 0, 2)]

    @pytest.mark.parametrize(("force", "kept"), [(False, 8), (True, 4)])
    async def test_one_queue_twice_in_one_commit(
        self, metadata: Metadata, force: bool, kept: int
    ) -> None:
        await make(metadata, topics="orders", groups="billing")
        rows = [offset("billing", "orders", 0, value) for value in (1, 8, 4)]
        await metadata.commit_offsets(rows, force=force)
        assert await metadata.load_offsets() == [offset("billing", "orders", 0, kept)]

    async def test_many_rows_in_one_commit(self, metadata: Metadata, open_node: OpenNode) -> None:
        await make(metadata, topics="a b", groups="g h")
        rows = [
            offset(group, topic, queue_id, 2**62 + queue_id)
            for group in ("g", "h")
            for topic in ("a", "b")
            for queue_id in range(600)
        ]
        await metadata.commit_offsets(random.Random(1).sample(rows, len(rows)))
        async with open_node() as restarted:
            assert await restarted.load_offsets() == rows

    async def test_no_rows_are_no_work(self, metadata: Metadata) -> None:
        assert await metadata.commit_offsets([]) == []

    async def test_rows_of_the_deleted_are_left_out_and_named(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        good = offset("billing", "orders", 0, 5)
        bad = [offset("billing", "gone", 0, 5), offset("gone", "orders", 0, 5)]
        assert await metadata.commit_offsets([bad[0], good, bad[1]]) == bad
        assert await metadata.load_offsets() == [good]
        assert await metadata.commit_offsets(bad) == bad

    async def test_committing_is_all_or_nothing(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        rows = [offset("billing", "orders", 0, 5), offset("billing", "orders", 1, -1)]
        with pytest.raises(Exception, match="refused a statement"):
            await metadata.commit_offsets(rows)
        assert await metadata.load_offsets() == []

    async def test_offsets_go_with_their_topic_and_their_group(self, metadata: Metadata) -> None:
        await make(metadata, topics="a b", groups="g h")
        rows = [offset(group, topic, 0, 5) for group in ("g", "h") for topic in ("a", "b")]
        await metadata.commit_offsets(rows)
        await metadata.delete_topic("a")
        assert await metadata.load_offsets() == [offset("g", "b", 0, 5), offset("h", "b", 0, 5)]
        await metadata.delete_group("h")
        assert await metadata.load_offsets() == [offset("g", "b", 0, 5)]
        await make(metadata, topics="a", groups="h")
        assert await metadata.load_offsets() == [offset("g", "b", 0, 5)]

    async def test_deleting_offsets_of_one_group_in_one_topic(self, metadata: Metadata) -> None:
        await make(metadata, topics="a b", groups="g h")
        rows = [
            *(offset("g", "a", 0, 5), offset("g", "a", 1, 5)),
            *(offset("g", "b", 0, 5), offset("h", "a", 0, 5)),
        ]
        await metadata.commit_offsets(rows)
        await metadata.delete_offsets("g", "a", elsewhere=[1])
        assert await metadata.load_offsets() == rows[1:]
        await metadata.delete_offsets("g", "a")
        assert await metadata.load_offsets() == rows[2:]
        await metadata.delete_offsets("g", "a")
        await metadata.delete_offsets("no", "no")

    async def test_offsets_do_not_move_the_snapshot(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        before = metadata.snapshot
        await metadata.commit_offsets([offset("billing", "orders", 0, 5)])
        assert not await metadata.refresh()
        assert metadata.snapshot is before

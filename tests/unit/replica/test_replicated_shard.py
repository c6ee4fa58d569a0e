"""A node with one replica after another: a hand-over at its stop, and what it counts."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.domain.errors import MetadataUnavailable
from app.node_parts.replicated_shard import ReplicatedShard
from app.replica.replica_status import NOTHING

pytestmark = pytest.mark.anyio


async def test_a_read_of_the_metadata_that_fails_ends_no_hand_over() -> None:
    """Else the node would stop before it knows who leads, and refuse what it could carry there."""
    answers = [MetadataUnavailable("away"), None, MetadataUnavailable("away"), "another"]
    leader = "a"

    async def refresh() -> None:
        nonlocal leader
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        leader = answer or leader

    shard = cast("Any", object.__new__(ReplicatedShard))
    shard._shard, shard.node_id = SimpleNamespace(shard="orders"), "a"
    shard._known = lambda: SimpleNamespace(leader=leader)
    shard._node = SimpleNamespace(metadata=SimpleNamespace(refresh=refresh))
    replica = SimpleNamespace(leads=False, can_hand_over=True, transfer=lambda _asked: None)
    shard._replica = replica
    await asyncio.wait_for(shard.hand_over(), timeout=10)
    assert not answers


async def test_what_was_put_right_is_counted_over_the_replicas_of_a_node() -> None:
    """One ends and another begins when a node joins the shard; the counter is the node's."""
    shard = cast("Any", object.__new__(ReplicatedShard))
    shard._shard, shard.node_id = SimpleNamespace(shard="orders"), "a"
    shard._mended_bytes = shard._given_up_bytes = 0
    shard._has_tried_to_hand_over, shard._port = False, None

    async def stop(_within_s: float) -> None: ...

    for count, expected in ((3, 3), (4, 7)):
        status = replace(NOTHING, mended_bytes=count)
        shard._replica = SimpleNamespace(stop=stop, status=status, mended_bytes=count)
        assert shard.own().repaired_bytes == expected
        await shard._end_replica()
        assert shard.own().repaired_bytes == expected

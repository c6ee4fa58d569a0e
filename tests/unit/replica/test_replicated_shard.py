"""A hand-over at a stop, while the metadata does not answer each time."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.domain.errors import MetadataUnavailable
from app.node_parts.replicated_shard import ReplicatedShard

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

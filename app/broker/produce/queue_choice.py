"""To which queue a message goes that names none: by its sharding key, or the next in turn of those
that this node's shard has.

Event loop only.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from app.broker.ports import Metadata, Topic
from app.broker.results import BatchItem
from app.broker.topic_lookup import check_here
from app.domain.errors import CurlewError, NotLeader
from app.domain.message import queue_for_sharding_key

_TURNS_SPARED: Final = 1_024
"""Turns of deleted topics that may pile up before they are swept out."""


class QueueChoice:
    """The turns of all topics. One per sender."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._turns: dict[str, int] = {}
        """Topic → number of round-robin choices so far."""

    def choose(self, topic: Topic, sharding_key: str | None) -> int:
        """The queue of one message. Raises `NotLeader` when it is in another node's shard."""
        if sharding_key is not None:
            queue_id = queue_for_sharding_key(sharding_key, topic.write_queues)
            # Of a key that has moved only a step of acks and sends comes to the shard that drains:
            # it cannot be of two shards, so the old queue takes it.
            if queue_id in topic.moved and topic.shard_of(queue_id) is not None:
                queue_id = topic.queue_of_key(sharding_key)
            check_here(topic, queue_id)
            return queue_id
        here = topic.writable_here
        if not here:
            raise NotLeader(f"every queue of topic {topic.name!r}", topic.shard_of(0) or "")
        turn = self._turns.get(topic.name)
        if turn is None:
            turn = 0
            self._forget_turns()
        self._turns[topic.name] = turn + 1
        return here[turn % len(here)]

    def choose_for_all(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        errors: Sequence[CurlewError | None],
        queue_id: int | None,
        spread: bool,
    ) -> dict[int, list[int]]:
        """Queue → indexes of the entries without an error that go there."""
        chosen: dict[int, list[int]] = defaultdict(list)
        shared = queue_id
        for index, (item, error) in enumerate(zip(items, errors, strict=True)):
            if error is not None or isinstance(item, CurlewError):
                continue
            key = item.message.sharding_key
            if item.queue_id is not None:
                queue = item.queue_id
            elif queue_id is None and (spread or key is not None):
                queue = self.choose(topic, key)
            else:
                if shared is None:
                    shared = self.choose(topic, None)
                queue = shared
            chosen[queue].append(index)
        return chosen

    def _forget_turns(self) -> None:
        """Those of deleted topics, when they may be as many as there are topics."""
        known = self._metadata.snapshot.topics
        if len(self._turns) > 2 * len(known) + _TURNS_SPARED:
            self._turns = {name: turn for name, turn in self._turns.items() if name in known}

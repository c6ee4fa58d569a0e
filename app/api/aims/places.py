"""Which shard has a queue, a handle, a message: what a node knows of the cluster at the moment."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from app.broker import ports
from app.broker.ports import FirstUses, Topic
from app.cluster import ShardView
from app.domain.limits import Limits

_TURNS_MAX: Final = 65_536
"""Topics whose turn is remembered; when there are more, turns begin anew."""


class Snapshot(ports.Snapshot, Protocol):
    """The metadata at one moment."""

    @property
    def version(self) -> int: ...
    @property
    def shards(self) -> Mapping[str, ShardView]: ...


class Metadata(Protocol):
    """The metadata as a node has it."""

    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def shard(self) -> str:
        """The one of this node."""
        ...

    @property
    def first_uses(self) -> FirstUses: ...

    async def refresh(self) -> bool: ...


class Places:
    """One per node. Each answer is the name of a shard, or None: here, or nobody knows. Any
    thread."""

    def __init__(self, metadata: Metadata, is_up: Callable[[str], bool], limits: Limits) -> None:
        """`is_up` says whether the leader of a shard answers, as far as is known."""
        self.metadata = metadata
        self.limits = limits
        self._is_up = is_up
        self._turns: dict[str, int] = {}
        self._shards: Mapping[str, ShardView] = {}
        self._by_id: dict[bytes, str] = {}
        self._stamped: Snapshot | None = None
        self._stamp = object()

    @property
    def stamp(self) -> object:
        """The same one as long as all is that is known. Event loop only."""
        snapshot = self.metadata.snapshot
        if snapshot is not self._stamped:
            self._stamped, self._stamp = snapshot, object()
        return self._stamp

    @property
    def are_several(self) -> bool:
        """Whether there is any other shard."""
        return len(self.metadata.snapshot.shards) > 1

    def topic(self, name: str) -> Topic | None:
        """A topic by its stored name."""
        return self.metadata.snapshot.topics.get(name)

    def of_queue(self, topic: Topic | None, queue_id: int) -> str | None:
        """The shard of a queue. One that there is not is nobody's: its handler says so."""
        if topic is None or not 0 <= queue_id < topic.queues:
            return None
        return topic.shard_of(queue_id)

    def of_key(self, topic: Topic | None, sharding_key: str) -> str | None:
        """The shard of the queue that messages with this key go to."""
        if topic is None:
            return None
        return topic.shard_of(topic.queue_of_key(sharding_key))

    def of_home(self, topic: Topic | None, name: str) -> str | None:
        """The shard that remembers an idempotency key or a producer: the same ever after, unless it
        drains."""
        if topic is None:
            return None
        return topic.shard_of(topic.home_of(name))

    def of_store(self, shard_id: bytes) -> str | None:
        """The shard with this id. What was given by none of the cluster is for its handler here."""
        shards = self.metadata.snapshot.shards
        if shards is not self._shards:
            self._by_id = {each.shard_id: each.name for each in shards.values()}
            self._shards = shards  # behind it, as other threads look, too
        name = self._by_id.get(shard_id)
        return None if name == self.metadata.shard else name

    def for_any_queue(self, topic: Topic | None) -> str | None:
        """Where a message goes that names no queue: here, when the topic has queues here and they
        do not drain; else in turn to the shards that take messages of it and whose leader answers.
        """
        if topic is None or topic.is_open_here:
            return None
        shards = {topic.shard_of(queue_id) or "" for queue_id in topic.open_queues}
        up = sorted(filter(self._is_up, shards)) or sorted(shards)
        if len(self._turns) >= _TURNS_MAX:
            self._turns.clear()
        turn = self._turns[topic.name] = self._turns.get(topic.name, 0) + 1
        return up[turn % len(up)]

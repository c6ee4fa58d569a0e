"""What the pages need from their neighbours. `Broker` and `Metadata` satisfy it."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Topic(Protocol):
    """A topic as the metadata describes it."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def flush(self) -> str: ...
    @property
    def retention_ms(self) -> int: ...


class Snapshot(Protocol):
    """The metadata at one moment; immutable."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...


class Metadata(Protocol):
    """Gives the newest snapshot; a plain attribute read."""

    @property
    def snapshot(self) -> Snapshot: ...


class TopicEnds(Protocol):
    """Gives (queue id, min offset, max offset) of each queue of a topic; does not block."""

    def bounds(self, topic: str) -> Sequence[tuple[int, int, int]]: ...

"""What the broker needs of what the metadata keeps of the positions of groups, as protocols."""

from collections.abc import Sequence
from typing import Protocol

from app.domain.consumers.consumption import FirstUse, SubscriptionPair
from app.domain.positions import CommittedOffset, OffsetSnapshot


class OffsetSnapshots(Protocol):
    """Named snapshots of a group's offsets."""

    async def create(
        self,
        group: str,
        name: str,
        offsets: Sequence[CommittedOffset],
        *,
        is_dry_run: bool = False,
    ) -> OffsetSnapshot: ...

    async def load(self, group: str) -> list[OffsetSnapshot]: ...

    async def delete(self, group: str, name: str) -> bool:
        """False: there was none."""
        ...


class FirstUses(Protocol):
    """When groups that begin at the end of a topic were first used in it, for all shards."""

    async def find(self, pair: SubscriptionPair) -> int | None:
        """In epoch milliseconds; None: not yet."""
        ...

    async def note(self, pair: SubscriptionPair) -> FirstUse:
        """When it was: now, unless there was one. Raises `GroupNotFound` or `TopicNotFound` when
        one was deleted."""
        ...

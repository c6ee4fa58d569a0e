"""What the broker needs of what the metadata keeps of the kinds of consumption, as a protocol."""

from collections.abc import Sequence
from typing import Protocol

from app.domain.consumers.consumption import (
    Consumption,
    ConsumptionElsewhere,
    ConsumptionRow,
    SubscriptionPair,
)


class ConsumptionRows(Protocol):
    """How groups consume topics of several shards, as each shard has entered it."""

    async def enter(
        self, pair: SubscriptionPair, kind: Consumption, *, force: bool
    ) -> ConsumptionElsewhere | None:
        """This shard is of this kind from now on, unless another is of the other one, which is
        returned. With `force` those of the other kind end. Raises `GroupNotFound` or
        `TopicNotFound` when one was deleted."""
        ...

    async def elsewhere(
        self, pair: SubscriptionPair, kind: Consumption
    ) -> ConsumptionElsewhere | None:
        """The first other shard that is of the other kind."""
        ...

    async def held(self, *, ended_only: bool) -> list[ConsumptionRow]:
        """What this shard has entered."""
        ...

    async def leave(self, names: Sequence[tuple[str, str]]) -> None:
        """This shard is of no kind any more in these pairs of group and topic."""
        ...

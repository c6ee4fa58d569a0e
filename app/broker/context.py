"""What all parts of a broker work with, and whether the broker takes requests. Event loop only."""

from concurrent.futures import Executor
from dataclasses import dataclass, field

from app.broker.config import BrokerConfig
from app.broker.figures.lost_answers import LostAnswers
from app.broker.figures.traffic_statistics import Statistics
from app.broker.hooks.hooks import Hooks
from app.broker.ports import Metadata, Store
from app.domain.access.audit import ForcedLog, forget_forced
from app.domain.clock import Clock
from app.domain.errors import ShuttingDown
from app.domain.limits import Limits


class Gate:
    """Open from the end of `Broker.start` to the beginning of `Broker.stop`."""

    __slots__ = ("closed_because",)

    def __init__(self) -> None:
        self.closed_because = "the broker has not started"
        """Empty while the gate is open."""

    def check(self) -> None:
        """Raise `ShuttingDown` while the gate is closed."""
        if self.closed_because:
            raise ShuttingDown(
                self.closed_because, hint="ask another node, or again later", retry_after_s=1
            )

    def check_for_sends(self) -> None:
        """Raise `ShuttingDown` with the outcome "not_stored" while the gate is closed."""
        if self.closed_because:
            raise ShuttingDown(
                self.closed_because,
                hint="send to another node, or again later",
                outcome="not_stored",
                retry_after_s=1,
            )


@dataclass(slots=True)
class MadeByUse:
    """What is made when it is named for the first time. Changes while the broker runs."""

    topics: bool
    groups: bool


@dataclass(frozen=True, slots=True)
class Context:
    """One per broker; each part takes from it what it needs."""

    store: Store
    metadata: Metadata
    clock: Clock
    limits: Limits
    config: BrokerConfig
    readers: Executor
    """Threads for reads that wait for the disk."""
    gate: Gate = field(default_factory=Gate)
    hooks: Hooks = field(default_factory=Hooks)
    forced: ForcedLog = forget_forced
    """Is told what a consumer ends or replaces of others."""
    lost: LostAnswers = field(default_factory=LostAnswers)
    """Outlives the broker, where the process has several one after the other."""
    statistics: Statistics = field(init=False)
    made_by_use: MadeByUse = field(init=False)

    def __post_init__(self) -> None:
        config = self.config
        by_use = MadeByUse(topics=config.auto_create_topics, groups=config.auto_create_groups)
        object.__setattr__(self, "made_by_use", by_use)
        made = Statistics(self.metadata, self.clock, self.limits)
        object.__setattr__(self, "statistics", made)

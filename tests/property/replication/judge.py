"""What replicas may show: what was confirmed anywhere stays, on all of them."""

from dataclasses import dataclass, field
from enum import Enum, auto

from app.cluster.replication.terms import Promise, Term
from tests.property.replication.simulated_parts import SimBlock


class Violation(AssertionError):
    """A promise was broken."""


class Outcome(Enum):
    """What a client is told of what it has sent."""

    NOT_STORED = auto()
    """Nobody will ever see it."""
    UNKNOWN = auto()


@dataclass
class Judge:
    """What has been confirmed anywhere: start → block. Nothing of it may change or go away."""

    confirmed: dict[int, SimBlock] = field(default_factory=dict)
    end: int = 0
    served: dict[int, str] = field(default_factory=dict)
    """Epoch → who served in it."""
    refused: set[str] = field(default_factory=set)
    """Values of which a client was told that they are not stored."""

    def shown(self, node: str, block: SimBlock) -> None:
        known = self.confirmed.get(block.start)
        if known is None:
            if block.start != self.end:
                raise Violation(f"{node} shows {block}, but the confirmed log ends at {self.end}")
            self.confirmed[block.start] = block
            self.end = block.end
            if block.value in self.refused:
                raise Violation(f"{node} shows {block}, and its client was told: not stored")
        elif known != block:
            raise Violation(f"{node} shows {block} where {known} was confirmed")

    def serves(self, node: str, term: Term) -> None:
        other = self.served.setdefault(term.epoch, node)
        if other != node:
            raise Violation(f"{node} serves in epoch {term.epoch} of {other}")

    def takes(self, node: str, term: Term, promise: Promise) -> None:
        """A replica takes blocks of a term, or says to its leader how far it has come."""
        if promise.term.excludes(term):
            raise Violation(f"{node} takes part in {term}, and has promised {promise.term}")

    def is_told(self, value: str, outcome: Outcome) -> None:
        """The client that sent it waits no longer."""
        if outcome is not Outcome.NOT_STORED:
            return
        self.refused.add(value)
        if any(block.value == value for block in self.confirmed.values()):
            raise Violation(f"{value} was confirmed, and its client is told: not stored")

    def loses(self, end: int) -> int:
        """An operator gives up all that lies behind `end`; how many blocks."""
        lost = [start for start in self.confirmed if start >= end]
        for start in lost:
            del self.confirmed[start]
        self.end = min(self.end, end)
        return len(lost)

    def may_lose(self, end: int) -> None:
        """R7: what was not synced and lies behind `end` is told to be lost."""
        for start in sorted(start for start in self.confirmed if start >= end):
            block = self.confirmed[start]
            if any(
                each.wants_sync for each in self.confirmed.values() if each.start >= block.start
            ):
                raise Violation(f"{block} was synced, or is before what was, and is lost")
            del self.confirmed[start]
        self.end = min(self.end, end)

"""What became of each delivery of a message, made of the events of its trace. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from app.broker.tracing.message_trace import TraceEvent
from app.broker.tracing.trace_notes import TraceKind

_ENDS: Final = (
    TraceKind.ACKED,
    TraceKind.NACKED,
    TraceKind.RELEASED,
    TraceKind.EXPIRED,
    TraceKind.DEAD_LETTERED,
    TraceKind.SKIPPED,
    TraceKind.PARKED,
)


class TracedDelivery(NamedTuple):
    """One delivery to a group. Times in epoch milliseconds."""

    group: str
    attempt: int | None
    client_id: str | None
    delivered_ms: int | None
    """None: it was not noted, only how it ended."""
    extended: int
    """How often its lease was extended."""
    ended_ms: int | None
    result: TraceKind | None
    """None: still held, or its end was not noted."""
    reason: str | None
    letter: int | None
    """Where it ended as a dead letter: its offset among those of the group."""

    @property
    def duration_ms(self) -> int | None:
        """From being handed out to its end."""
        if self.ended_ms is None or self.delivered_ms is None:
            return None
        return max(self.ended_ms - self.delivered_ms, 0)


def deliveries_of(events: Iterable[TraceEvent]) -> list[TracedDelivery]:
    """The deliveries of one message, in the order of the events.

    An end belongs to the last open delivery of its group; that of an earlier attempt, if it names
    one. A delivery that is followed by another one of its group has ended unnoted.
    """
    found: list[TracedDelivery] = []
    open_at: dict[str, int] = {}
    for kind, at_ms, group, attempt, client_id, detail, copy in events:
        if kind is TraceKind.DELIVERED:
            open_at[group] = len(found)
            found.append(
                TracedDelivery(group, attempt, client_id, at_ms, 0, None, None, None, None)
            )
        elif kind is TraceKind.EXTENDED and group in open_at:
            at = open_at[group]
            found[at] = found[at]._replace(extended=found[at].extended + 1)
        elif kind in _ENDS:
            index = open_at.pop(group, None)
            if index is None or attempt not in (None, found[index].attempt):
                found.append(TracedDelivery(group, attempt, None, None, 0, None, None, None, None))
                index = len(found) - 1
            found[index] = found[index]._replace(
                ended_ms=at_ms, result=kind, reason=detail, letter=copy
            )
    return found

"""Events of a trace become deliveries: each with its end, its duration and its reason."""

from app.broker.tracing.message_trace import TraceEvent
from app.broker.tracing.trace_notes import TraceKind
from app.broker.tracing.traced_deliveries import deliveries_of


def event(
    kind: TraceKind,
    at_ms: int,
    group: str = "billing",
    attempt: int | None = None,
    detail: str | None = None,
    copy: int | None = None,
) -> TraceEvent:
    return TraceEvent(kind, at_ms, group, attempt, "c1", detail, copy)


def test_each_delivery_has_its_end() -> None:
    found = deliveries_of(
        [
            event(TraceKind.DELIVERED, 10, attempt=1),
            event(TraceKind.DELIVERED, 11, "audit", 1),
            event(TraceKind.EXTENDED, 12),
            event(TraceKind.NACKED, 15, attempt=1, detail="no stock; again in 0ms"),
            event(TraceKind.ACKED, 31, "audit"),
            event(TraceKind.DELIVERED, 40, attempt=2),
            event(TraceKind.DEAD_LETTERED, 47, attempt=2, detail="rejected", copy=5),
        ]
    )
    shown = [(d.group, d.attempt, d.result, d.duration_ms, d.extended, d.letter) for d in found]
    assert shown == [
        ("billing", 1, TraceKind.NACKED, 5, 1, None),
        ("audit", 1, TraceKind.ACKED, 20, 0, None),
        ("billing", 2, TraceKind.DEAD_LETTERED, 7, 0, 5),
    ]
    assert [each.reason for each in found] == ["no stock; again in 0ms", None, "rejected"]


def test_what_is_held_has_no_end() -> None:
    [held] = deliveries_of([event(TraceKind.DELIVERED, 10, attempt=1)])
    assert (held.ended_ms, held.duration_ms, held.result) == (None, None, None)


def test_an_end_whose_delivery_was_not_noted_stands_alone() -> None:
    found = deliveries_of(
        [
            event(TraceKind.EXPIRED, 9, attempt=3),
            event(TraceKind.DELIVERED, 10, attempt=4),
            event(TraceKind.NACKED, 12, attempt=5),
        ]
    )
    assert [(d.attempt, d.delivered_ms, d.result) for d in found] == [
        (3, None, TraceKind.EXPIRED),
        (4, 10, None),
        (5, None, TraceKind.NACKED),
    ]

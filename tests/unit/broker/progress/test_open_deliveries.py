"""Deliveries that were open when the node ended, as the log tells of them.

Control: an entry that is not followed leaves its deliveries open, and these tests count them.
"""

import pytest

from app.broker.progress.open_deliveries import OpenDeliveries, OpenDelivery
from app.broker.progress.progress_entries import (
    ConsumptionSet,
    Entry,
    HandedOut,
    Settled,
    runs_of,
)
from app.domain.consumers.consumption import Consumption

KEY = ("billing", "orders", 0)
UNTIL_MS = 10_000


def handed_out(first: int, count: int, *, is_ordered: bool = False) -> HandedOut:
    delivered = [(first, count, 1)]
    leases = [(first, count, 100 + first, 1)]
    return HandedOut("billing", [("orders", 0, delivered)], UNTIL_MS, [leases], is_ordered)


def opened(*entries: Entry) -> OpenDeliveries:
    deliveries = OpenDeliveries()
    for entry in entries:
        deliveries.apply(entry)
    return deliveries


def test_what_is_settled_is_not_kept_while_the_log_is_replayed() -> None:
    deliveries = OpenDeliveries()
    for first in range(0, 100_000, 1_000):
        deliveries.apply(handed_out(first, 1_000))
        acked = [first, *range(first + 2, first + 1_000)]
        deliveries.apply(Settled("billing", [("orders", 0, runs_of(acked))]))
    left = deliveries.take(KEY, is_ordered=False)
    assert left == {
        first + 1: OpenDelivery(101 + first, 1, UNTIL_MS) for first in range(0, 100_000, 1_000)
    }


@pytest.mark.parametrize(
    ("kind", "count"), [(Consumption.LEASE, 3), (Consumption.ASSIGNED, 0), (None, 0)]
)
def test_that_a_group_leases_may_be_written_after_it_has(
    kind: Consumption | None, count: int
) -> None:
    deliveries = opened(handed_out(0, 3), ConsumptionSet("billing", "orders", kind, 5))
    assert len(deliveries.take(KEY, is_ordered=False)) == count


@pytest.mark.parametrize("is_ordered", [False, True])
def test_leases_end_when_the_order_of_delivery_changes(is_ordered: bool) -> None:
    entry = handed_out(0, 3, is_ordered=is_ordered)
    assert len(opened(entry).take(KEY, is_ordered=is_ordered)) == 3
    assert opened(entry).take(KEY, is_ordered=not is_ordered) == {}

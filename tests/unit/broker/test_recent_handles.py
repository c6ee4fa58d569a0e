"""Handles that are remembered read as those that are not; nothing else is accepted."""

import pytest

from app.broker.group_progress import QueueState
from app.broker.leases import InFlight, Lease
from app.broker.recent_handles import RecentHandles
from app.broker.subscriptions import LeasedQueue, Subscription
from app.domain.errors import InvalidReceiptHandle
from app.domain.limits import HANDLES_REMEMBERED_MAX
from app.domain.receipt import ATTEMPT_MAX, RETRY_QUEUE_ID, ReceiptHandle, ReceiptSigner

KEY = bytes(range(32))
COUNT = 32


def subscription() -> Subscription:
    in_flight = InFlight()
    retry = LeasedQueue("billing", "orders", RETRY_QUEUE_ID, QueueState(0), in_flight, 0)
    return Subscription("billing", "orders", retry, in_flight)


def issue(handles: RecentHandles, first: int = 0, attempt: int = 1) -> list[str]:
    leases = [Lease(first + index, 60.0) for index in range(COUNT)]
    for lease in leases:
        lease.attempt = attempt
    offsets = range(first, first + COUNT)
    return handles.issue_all(subscription(), 3, offsets, leases, 60_000)


@pytest.mark.parametrize("attempt", [1, ATTEMPT_MAX, ATTEMPT_MAX + 1])
def test_a_remembered_handle_says_what_its_signature_says(attempt: int) -> None:
    handles = RecentHandles(KEY)
    for text in issue(handles, attempt=attempt):
        remembered = handles.read(text)
        assert remembered == ReceiptSigner(KEY).read(text) == handles.read(text)
        assert remembered.attempt <= ATTEMPT_MAX


def test_what_is_read_is_forgotten_and_still_readable() -> None:
    handles = RecentHandles(KEY)
    texts = issue(handles)
    assert handles.remembered_count == COUNT
    assert [handles.read(text).queue_offset for text in texts] == list(range(COUNT))
    assert handles.remembered_count == 0
    assert [handles.read(text).queue_offset for text in texts] == list(range(COUNT))


def test_forged_handles_are_refused_beside_remembered_ones() -> None:
    handles = RecentHandles(KEY)
    other = issue(RecentHandles(bytes(32)))
    for text in issue(handles):
        with pytest.raises(InvalidReceiptHandle):
            handles.read(text[:-1] + ("A" if text[-1] != "A" else "B"))
        with pytest.raises(InvalidReceiptHandle):
            handles.read(text[:-1])
    for text in other:
        with pytest.raises(InvalidReceiptHandle):
            handles.read(text)


def test_the_memory_is_bounded_and_the_newest_are_in_it() -> None:
    handles = RecentHandles(KEY)
    oldest = newest = issue(handles)
    for first in range(COUNT, 3 * HANDLES_REMEMBERED_MAX, COUNT):
        newest = issue(handles, first)
        assert handles.remembered_count <= HANDLES_REMEMBERED_MAX
    before = handles.remembered_count
    for text in newest:
        handles.read(text)
    assert handles.remembered_count == before - COUNT
    assert handles.read(oldest[0]) == ReceiptHandle("orders", "billing", 3, 0, 0, 1, True, 60_000)

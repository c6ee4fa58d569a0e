"""Handles that are remembered read as those that are not; nothing else is accepted."""

import pytest

from app.broker.leasing.holders import InFlight
from app.broker.leasing.leases import Lease
from app.broker.leasing.receipt_cache import ReceiptCache
from app.broker.leasing.subscriptions import LeasedQueue
from app.broker.progress.queue_state import QueueState
from app.domain.errors import InvalidReceiptHandle
from app.domain.handles.receipt import (
    ATTEMPT_MAX,
    RETRY_QUEUE_ID,
    ReceiptHandle,
    ReceiptSigner,
    receipt_prefix,
)
from app.domain.limits import HANDLES_REMEMBERED_MAX

KEY = bytes(range(32))
COUNT = 32


SHARD = b"curl"
PREFIX = receipt_prefix("orders", "billing", SHARD)
QUEUE = LeasedQueue("billing", "orders", 3, QueueState(0), InFlight(), 0)


def issue(handles: ReceiptCache, first: int = 0, attempt: int = 1) -> list[str]:
    leases = [Lease(2 * (first + index), 60.0, attempt=attempt) for index in range(COUNT)]
    held = [(QUEUE, first + index, lease.lease_id) for index, lease in enumerate(leases)]
    return handles.issue_all(PREFIX, held, leases, 60_000)


def remembered(handles: ReceiptCache) -> int:
    return len(handles._newest) + len(handles._earlier)


@pytest.mark.parametrize("attempt", [1, ATTEMPT_MAX, ATTEMPT_MAX + 1])
def test_a_remembered_handle_stands_for_what_its_signature_says(attempt: int) -> None:
    handles = ReceiptCache(KEY, SHARD)
    for text in issue(handles, attempt=attempt):
        said = ReceiptSigner(KEY, SHARD).read(text)
        assert handles.read(text) == said
        assert handles.recall_all([text]) == [(QUEUE, said.queue_offset, said.lease_id)]
        assert said[:3] == ("orders", "billing", 3)
        assert said.attempt == min(attempt, ATTEMPT_MAX)


@pytest.mark.parametrize(
    "names", [("orders", "billing"), ("order", "billing"), ("orde", "billing")]
)
def test_handles_of_a_batch_are_those_issued_one_by_one(names: tuple[str, str]) -> None:
    signer, prefix = ReceiptSigner(KEY, SHARD), receipt_prefix(*names, SHARD)
    rows = [(index, 1 << index, index, index % 2 == 0) for index in range(40)]
    one_by_one = [signer.issue(prefix, RETRY_QUEUE_ID, *row, 60_000) for row in rows]
    assert signer.issue_rows(prefix, RETRY_QUEUE_ID, rows, 60_000) == one_by_one


def test_what_is_recalled_is_forgotten_and_still_readable() -> None:
    handles = ReceiptCache(KEY, SHARD)
    texts = issue(handles)
    assert remembered(handles) == COUNT
    assert handles.recall_all(texts) == [(QUEUE, n, 2 * n) for n in range(COUNT)]
    assert remembered(handles) == 0
    assert handles.recall_all(texts) == [None] * COUNT
    assert [handles.read(text).queue_offset for text in texts] == list(range(COUNT))


def test_forged_handles_are_refused_beside_remembered_ones() -> None:
    handles = ReceiptCache(KEY, SHARD)
    other = issue(ReceiptCache(bytes(32), SHARD))
    for text in issue(handles):
        with pytest.raises(InvalidReceiptHandle):
            handles.read(text[:-1] + ("A" if text[-1] != "A" else "B"))
        with pytest.raises(InvalidReceiptHandle):
            handles.read(text[:-1])
        assert handles.recall_all([text[:-1]]) == [None]
    for text in other:
        assert handles.recall_all([text]) == [None]
        with pytest.raises(InvalidReceiptHandle):
            handles.read(text)


def test_the_memory_is_bounded_and_the_newest_are_in_it() -> None:
    handles = ReceiptCache(KEY, SHARD)
    oldest = newest = issue(handles)
    for first in range(COUNT, 3 * HANDLES_REMEMBERED_MAX, COUNT):
        newest = issue(handles, first)
        assert remembered(handles) <= HANDLES_REMEMBERED_MAX
    before = remembered(handles)
    assert all(handles.recall_all(newest))
    assert remembered(handles) == before - COUNT
    assert handles.read(oldest[0]) == ReceiptHandle("orders", "billing", 3, 0, 0, 1, True, 60_000)

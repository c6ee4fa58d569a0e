"""Large requests of tiny entries: counted before anything is made of them, up to one too many."""

import threading
import tracemalloc
from collections.abc import Callable

import pytest

from app.api.bodies import entry_counting
from app.api.bodies.entry_counting import check_batch_count, check_events_count, check_settled_count
from app.domain.errors import BatchTooLarge

Check = Callable[[bytes, int], None]
AROUND: list[tuple[Check, bytes]] = [
    (check_batch_count, b'{"messages":[%b]}'),
    (check_events_count, b"[%b]"),
    (check_settled_count, b'{"acks":[%b]}'),
    (check_settled_count, b'{"nacks":[%b],"acks":[]}'),
    (check_settled_count, b'{"sends":[%b]}'),
]
ENTRIES = [b"1", b'""', b"{}", b"null", b"[]", b"{},1", b'"\\u0041"', b'{"a":[1,{"b":2}]}']


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(("check", "around"), AROUND)
def test_entries_are_counted_up_to_the_bound(check: Check, around: bytes, entry: bytes) -> None:
    each = entry.count(b",") + 1 if entry == b"{},1" else 1
    limit = 100 * each
    check(around % b",".join([entry] * 100), limit)
    with pytest.raises(BatchTooLarge) as refused:
        check(around % b",".join([entry] * 101), limit)
    assert refused.value.fields == {"limit_messages": limit}


def test_what_another_thread_counts_is_not_counted_here() -> None:
    entry_counting._COUNT.left = 7
    body = b'{"messages":[%b]}' % b",".join([b'{"a":1,"b":2}'] * 60)  # more commas than 100
    other = threading.Thread(target=check_batch_count, args=(body, 100))
    other.start()
    other.join()
    assert entry_counting._COUNT.left == 7


@pytest.mark.parametrize("entry", [b"{}", b"1", b'""', b"[]"])
@pytest.mark.parametrize(("check", "around"), AROUND)
def test_very_many_entries_take_no_memory(check: Check, around: bytes, entry: bytes) -> None:
    body = around % b",".join([entry] * 500_000)
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge):
            check(body, 10_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.parametrize(
    "body", [b"", b",,,", b"{", b'{"messages":7}' + b"," * 9, b"\xff,,,,", b"["]
)
def test_what_is_malformed_is_left_to_the_decoder(body: bytes) -> None:
    for check, _ in AROUND:
        check(body, 2)


def test_the_lists_of_a_settle_count_together() -> None:
    body = b'{"acks":["a","b"],"nacks":[{},{}],"extends":[{}],"sends":[{"x":[1,2,3]}]}'
    check_settled_count(body, 6)
    with pytest.raises(BatchTooLarge):
        check_settled_count(body, 5)

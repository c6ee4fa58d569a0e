"""Buckets: a burst, a debt that time pays, and tables that do not grow."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from app.domain.quotas.bucket_table import BURST_SECONDS, DEBT_SECONDS_MAX, BucketTable, DebtBucket


def test_a_burst_of_a_second_is_given_at_once() -> None:
    bucket = DebtBucket(10, 0)
    for _ in range(10):
        assert bucket.wait_s(0) == 0
        bucket.spend(1, 0)
    assert bucket.wait_s(0) > 0
    assert bucket.wait_s(0.1) == 0


def test_one_large_amount_is_given_and_paid_for() -> None:
    bucket = DebtBucket(100, 0)
    bucket.spend(300, 0)
    assert bucket.wait_s(0) == 2
    assert bucket.wait_s(1) == 1
    assert bucket.wait_s(2.01) == 0


def test_a_debt_has_an_end() -> None:
    bucket = DebtBucket(1, 0)
    bucket.spend(1_000_000, 0)
    assert bucket.wait_s(0) == DEBT_SECONDS_MAX


def test_what_nobody_uses_is_not_saved_up() -> None:
    bucket = DebtBucket(10, 0)
    assert bucket.left(1_000) == 10 * BURST_SECONDS


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 50)), max_size=50))
def test_no_more_is_given_than_the_rate_allows(steps: list[tuple[float, float]]) -> None:
    """Whoever waits as told takes at most a burst, the rate, and the size of one request more."""
    rate, now, given_away, largest = 10.0, 0.0, 0.0, 0.0
    bucket = DebtBucket(rate, now)
    for pause, amount in steps:
        now += pause
        if bucket.wait_s(now) == 0:
            bucket.spend(amount, now)
            given_away += amount
            largest = max(largest, amount)
    forgiven = largest * len(steps) if largest > rate * DEBT_SECONDS_MAX else 0
    assert given_away <= rate * (now + BURST_SECONDS) + largest + forgiven + 1e-6


def test_a_table_keeps_the_last_that_were_used() -> None:
    table = BucketTable[int, DebtBucket](partial(DebtBucket, 1), 100)
    for number in range(100_000):
        table.row(number, 0).spend(5, 0)
        table.row(0, 0)
    assert len(table) == 100
    assert table.row(0, 0).left(0) == -4, "it was used all the time"
    assert table.row(5, 0).left(0) == 1, "forgotten"

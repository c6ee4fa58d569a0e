"""A bucket gives its rate over any time, its burst at once, and takes what is larger on credit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.quotas.token_bucket import TokenBucket


def test_a_full_bucket_gives_its_burst_at_once() -> None:
    bucket = TokenBucket(10, 3, now_s=0)
    assert [bucket.take(1, 0) for _ in range(3)] == [0, 0, 0]
    assert bucket.take(1, 0) == pytest.approx(0.1)
    assert bucket.take(1, 0.11) == 0


def test_it_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(10, 3, now_s=0)
    assert bucket.left(1_000) == 3


def test_what_is_larger_than_the_burst_is_taken_on_credit() -> None:
    bucket = TokenBucket(10, 10, now_s=0)
    assert bucket.take(35, 0) == 0
    assert bucket.left(0) == -25
    assert bucket.take(1, 2.5) == pytest.approx(0.1)
    assert bucket.take(1, 2.61) == 0


def test_what_is_given_back_is_there_again() -> None:
    bucket = TokenBucket(1, 2, now_s=0)
    bucket.take(2, 0)
    bucket.give_back(5)
    assert bucket.left(0) == 2


def test_a_clock_that_stands_still_or_is_late_brings_nothing() -> None:
    bucket = TokenBucket(1, 1, now_s=10)
    assert bucket.take(1, 10) == 0
    assert bucket.take(1, 9) > 0
    assert bucket.take(1, 10) > 0


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 5)), max_size=200))
def test_no_more_than_rate_and_burst_are_given_in_any_time(steps: list[tuple[float, int]]) -> None:
    rate, burst, largest = 7.0, 4.0, 5
    bucket, now_s, given_count = TokenBucket(rate, burst, 0), 0.0, 0
    for passed_s, count in steps:
        now_s += passed_s
        if bucket.take(count, now_s) == 0:
            given_count += count
        assert given_count <= rate * now_s + burst + largest


@given(st.floats(0, 1), st.integers(1, 50))
def test_after_the_time_that_it_names_it_gives_again(early_s: float, count: int) -> None:
    bucket = TokenBucket(5, 5, now_s=0)
    bucket.take(count, 0)
    wait_s = bucket.take(1, early_s)
    assert not wait_s or bucket.take(1, early_s + wait_s + 1e-6) == 0


def test_the_part_of_a_token_that_came_in_meanwhile_is_none() -> None:
    bucket = TokenBucket(3, 3, now_s=0)
    assert [bucket.take(1, each / 100) for each in range(3)] == [0, 0, 0]
    assert bucket.take(1, 0.04) == pytest.approx((1 - 0.04 * 3) / 3)
    assert bucket.take(1, 1 / 3) == 0

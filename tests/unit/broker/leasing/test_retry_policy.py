"""What follows a failed delivery, as a table."""

import pytest

from app.broker.leasing.retry_policy import EXPIRED, Again, Failure, GivenUp, after, delay_ms
from app.domain.settings import DEFAULT_RETRY, CustomizedRetry, ExponentialRetry

SECOND = 1_000


def test_the_default_is_rocketmq_s_levels_from_ten_seconds_on() -> None:
    delays = [delay_ms(DEFAULT_RETRY, failures) // SECOND for failures in range(1, 18)]
    minutes = [60 * minute for minute in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)]
    assert delays == [10, 30, *minutes, 3_600, 7_200, 7_200]


def test_exponential_delays_grow_to_their_bound() -> None:
    policy = ExponentialRetry(5_000, 2.0, 7_200_000)
    assert [delay_ms(policy, n) for n in (1, 2, 3, 4)] == [5_000, 10_000, 20_000, 40_000]
    assert delay_ms(policy, 1_000) == 7_200_000
    assert delay_ms(ExponentialRetry(7, 1.0, 9), 1_000) == 7
    assert delay_ms(ExponentialRetry(10, 1.5, 1_000), 3) == 22


@pytest.mark.parametrize(
    ("failure", "attempt", "expected"),
    [
        (EXPIRED, 1, Again(100, "the lease ran out")),
        (EXPIRED, 2, Again(200, "the lease ran out")),
        (Failure("busy", 0), 2, Again(0, "busy")),
        (Failure("busy", 7), 2, Again(7, "busy")),
        (Failure("busy", 7), 3, GivenUp("not acknowledged in 3 deliveries; the last one: busy")),
        (EXPIRED, 4, GivenUp("not acknowledged in 4 deliveries; the last one: the lease ran out")),
        (Failure("poison", is_final=True), 1, GivenUp("poison")),
    ],
)
def test_what_follows(failure: Failure, attempt: int, expected: Again | GivenUp) -> None:
    assert after(failure, attempt, 3, CustomizedRetry((100, 200))) == expected


def test_one_delivery_may_be_all() -> None:
    decision = after(EXPIRED, 1, 1, DEFAULT_RETRY)
    assert decision == GivenUp("not acknowledged in 1 delivery; the last one: the lease ran out")

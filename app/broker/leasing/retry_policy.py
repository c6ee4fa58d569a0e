"""What becomes of a delivery that failed: another one, after which delay, or none any more. Pure.

A delivery fails when its consumer gives the message back (nack), gives it up (dead letter), or lets
the lease run out. `attempt` counts deliveries from 1, over retries and restarts.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from app.domain.settings import CustomizedRetry, RetryPolicy

EXPIRED_REASON: Final = "the lease ran out"
NACKED_REASON: Final = "given back by its consumer"
REJECTED_REASON: Final = "given up by its consumer"
LOST_REASON: Final = "handed out before a restart"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a delivery failed, and what its consumer asked for."""

    reason: str
    delay_ms: int | None = None
    """None: as the policy says."""
    is_final: bool = False
    """Not to be delivered again, whatever the number of attempts."""
    is_counted: bool = True
    """False: the delivery is no attempt, so it can never be the last."""


EXPIRED: Final = Failure(EXPIRED_REASON)
LOST: Final = Failure(LOST_REASON)


class Again(NamedTuple):
    """Deliver it once more, `delay_ms` from now."""

    delay_ms: int
    reason: str


class GivenUp(NamedTuple):
    """No more deliveries."""

    reason: str


def after(
    failure: Failure, attempt: int, max_attempts: int, policy: RetryPolicy
) -> Again | GivenUp:
    """What happens after delivery number `attempt` has failed."""
    if failure.is_final:
        return GivenUp(failure.reason)
    if attempt >= max_attempts and failure.is_counted:
        times = "1 delivery" if attempt == 1 else f"{attempt} deliveries"
        return GivenUp(f"not acknowledged in {times}; the last one: {failure.reason}")
    if failure.delay_ms is not None:
        return Again(failure.delay_ms, failure.reason)
    return Again(delay_ms(policy, attempt), failure.reason)


def delay_ms(policy: RetryPolicy, failures: int) -> int:
    """The pause after so many failed deliveries; `failures` is at least 1.

    Customized delays are RocketMQ's levels by default; beyond the list its last one is used.
    Exponential ones grow to their bound.
    """
    assert failures >= 1
    if isinstance(policy, CustomizedRetry):
        return policy.delays_ms[min(failures, len(policy.delays_ms)) - 1]
    delay = float(policy.initial_ms)
    for _ in range(failures - 1):
        if delay >= policy.max_ms or policy.multiplier == 1:
            break
        delay *= policy.multiplier
    return min(round(delay), policy.max_ms)

"""When a delayed message is due: levels, delays and times as a client names them. Pure."""

from typing import Final, NamedTuple

from app.domain.errors import IllegalDeliveryTime
from app.domain.limits import Limits

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE

DELAY_LEVELS_MS: Final = (
    *(seconds * _SECOND for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(hours * _HOUR for hours in (1, 2)),
)
"""RocketMQ's messageDelayLevel; the first has number 1."""


class Due(NamedTuple):
    """A wish: so many milliseconds from now, or a time in epoch milliseconds."""

    ms: int
    is_delay: bool

    def at(self, now_ms: int, limits: Limits) -> int:
        """The due time; `IllegalDeliveryTime` when it is too far ahead."""
        due_ms = now_ms + self.ms if self.is_delay else self.ms
        if due_ms - now_ms > limits.delay_ms_max:
            days = limits.delay_ms_max / 86_400_000
            raise IllegalDeliveryTime(
                f"the delivery time is {(due_ms - now_ms) / 86_400_000:.1f} days ahead; "
                f"at most {days:g} are taken",
                hint="keep the message until then, or send it in several steps",
                fields={"limit_ms": limits.delay_ms_max},
                outcome="not_stored",
            )
        return due_ms


def level(number: int) -> Due:
    """The delay of RocketMQ's level, or `IllegalDeliveryTime`."""
    if not 1 <= number <= len(DELAY_LEVELS_MS):
        raise IllegalDeliveryTime(
            f"there is no delay level {number}",
            hint=f"levels go from 1 to {len(DELAY_LEVELS_MS)}; or name a delay such as 30s",
        )
    return Due(DELAY_LEVELS_MS[number - 1], is_delay=True)

"""The counters of one topic, or of one group in a topic, and how they stood at earlier times.

Counting is an addition to an int. Every `STEP_S` the sums are written down as packed integers, so
that rates and series are differences of two rows; a step in which nothing happened shares the row
of the one before. Event loop only.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from itertools import accumulate, pairwise
from struct import Struct
from typing import Final, NamedTuple

STEP_S: Final = 5.0
STEPS: Final = 180
"""A quarter of an hour."""
MINUTES: Final = 60
STEPS_A_MINUTE: Final = 12

PUTS_PUT_DOWN_MAX: Final = 256
"""Times of puts of a topic, before they are counted."""

LATENCY_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
SIZE_BOUNDS_BYTES: Final = (1_024, 4_096, 524_288, 1_048_576, 2_097_152, 4_194_304)
"""RocketMQ's, of rocketmq_message_size."""

_PACKED: Final = Struct("<8q")


class Sums(NamedTuple):
    """Messages and bytes, since some time or within some time."""

    in_count: int = 0
    in_bytes: int = 0
    out_count: int = 0
    out_bytes: int = 0
    acks_ok: int = 0
    acks_failed: int = 0
    retries: int = 0
    dead_letters: int = 0

    def less(self, other: "Sums") -> "Sums":
        return Sums(*[now - then for now, then in zip(self, other, strict=True)])

    def plus(self, other: "Sums") -> "Sums":
        return Sums(*[one + two for one, two in zip(self, other, strict=True)])


ZERO: Final = Sums()
_NOTHING: Final = _PACKED.pack(*ZERO)


class Figures:
    """Parent of both kinds: the sums, and what they were."""

    __slots__ = (
        "_day",
        "_last",
        "_minutes",
        "_steps",
        "acks_failed",
        "acks_ok",
        "dead_letters",
        "generations",
        "idle_steps",
        "in_bytes",
        "in_count",
        "out_bytes",
        "out_count",
        "retries",
        "since_ms",
    )

    def __init__(self, since_ms: int, generations: tuple[int, ...] = ()) -> None:
        self.since_ms = since_ms
        self.generations = generations
        """Of what is counted: that of a successor of the name has other figures."""
        self.in_count = self.in_bytes = self.out_count = self.out_bytes = 0
        self.acks_ok = self.acks_failed = self.retries = self.dead_letters = 0
        self.idle_steps = 0
        """Steps on end in which nothing happened."""
        self._last = self._day = _NOTHING
        self._steps: deque[bytes] = deque(maxlen=STEPS + 1)
        self._minutes: deque[bytes] = deque(maxlen=MINUTES)

    def sums(self) -> Sums:
        """Since `since_ms`."""
        return Sums(
            self.in_count,
            self.in_bytes,
            self.out_count,
            self.out_bytes,
            self.acks_ok,
            self.acks_failed,
            self.retries,
            self.dead_letters,
        )

    def given(self, count: int, size: int) -> None:
        """So many messages were handed out."""
        self.out_count += count
        self.out_bytes += size

    def step(self, *, ends_minute: bool, ends_day: bool) -> Sums | None:
        """Write the sums down; called every `STEP_S`. What came since the last time; None:
        nothing."""
        sums = self.sums()
        packed = _PACKED.pack(*sums)
        came = None
        if packed == self._last:
            self.idle_steps += 1
        else:
            came = sums.less(_unpacked(self._last))
            self._last, self.idle_steps = packed, 0
        self._steps.append(self._last)
        if ends_minute:
            self._minutes.append(self._last)
        if ends_day:
            self._day = self._last
        return came

    def add(self, came: Sums) -> None:
        """Count what others have counted."""
        self.in_count += came.in_count
        self.in_bytes += came.in_bytes
        self.out_count += came.out_count
        self.out_bytes += came.out_bytes
        self.acks_ok += came.acks_ok
        self.acks_failed += came.acks_failed
        self.retries += came.retries
        self.dead_letters += came.dead_letters

    def within_steps(self, count: int) -> Sums:
        """What came since `count` steps ago, and in the step that has begun."""
        return self.sums().less(_row(self._steps, count))

    def within_hour(self) -> Sums:
        """What came since the beginning of the 60th minute before this one."""
        return self.sums().less(_row(self._minutes, MINUTES))

    def today(self) -> Sums:
        """What came since the last midnight (UTC) that the node saw."""
        return self.sums().less(_unpacked(self._day))

    def series(self, steps: int, width: int) -> list[Sums]:
        """The last `steps` whole steps, `width` of them in one row, the oldest first."""
        edges = range(steps, -1, -width)
        rows = [_row(self._steps, edge + 1) for edge in edges]
        return [late.less(early) for early, late in pairwise(rows)]


def _row(rows: deque[bytes], back: int) -> Sums:
    """The sums of `back` rows ago; zero before the first."""
    return _unpacked(rows[-back]) if 0 < back <= len(rows) else ZERO


def _unpacked(row: bytes) -> Sums:
    return Sums(*_PACKED.unpack(row))


class TopicFigures(Figures):
    """A topic: what is sent to it, how long that takes, and what is read outside of groups."""

    __slots__ = ("_seconds", "failures", "latency", "latency_max_ms", "latency_ms", "sizes")

    def __init__(self, since_ms: int, generations: tuple[int, ...] = ()) -> None:
        super().__init__(since_ms, generations)
        self._seconds: list[float] = []
        self.failures: dict[str, int] = {}
        """Code → refused or failed sends."""
        self.latency = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self.latency_ms = 0.0
        self.latency_max_ms = 0.0
        self.sizes = [0] * (len(SIZE_BOUNDS_BYTES) + 1)
        """Of a batch all messages count with its mean."""

    def put(self, count: int, size: int, seconds: float | None) -> None:
        """So many messages were stored by one request, in so many seconds, if that is known.

        Times are put down only: many at once are counted in a tenth of the time.
        """
        self.in_count += count
        self.in_bytes += size
        if size <= SIZE_BOUNDS_BYTES[0]:
            self.sizes[0] += count
        else:
            mean = size // count if count > 1 else size
            self.sizes[bisect_left(SIZE_BOUNDS_BYTES, mean)] += count
        if seconds is not None:
            self._seconds.append(seconds)
            if len(self._seconds) >= PUTS_PUT_DOWN_MAX:
                self.count_puts()

    def count_puts(self) -> None:
        """Count the times that were put down; before anybody reads them."""
        seconds = self._seconds
        if not seconds:
            return
        seconds.sort()
        below = 0
        for place, bound_ms in enumerate(LATENCY_BOUNDS_MS):
            within = bisect_right(seconds, bound_ms / 1_000)
            self.latency[place] += within - below
            below = within
        self.latency[-1] += len(seconds) - below
        self.latency_ms += sum(seconds) * 1_000
        self.latency_max_ms = max(self.latency_max_ms, seconds[-1] * 1_000)
        seconds.clear()

    def failed(self, code: str, count: int = 1) -> None:
        self.failures[code] = self.failures.get(code, 0) + count

    def latency_at(self, share: float) -> float | None:
        """The bound under which so many puts were; None when there were none."""
        self.count_puts()
        counts = list(accumulate(self.latency))
        if not counts[-1]:
            return None
        for bound, count in zip(LATENCY_BOUNDS_MS, counts, strict=False):
            if count >= share * counts[-1]:
                return min(float(bound), round(self.latency_max_ms, 3))
        return round(self.latency_max_ms, 3)


class GroupFigures(Figures):
    """A group in a topic: what it was given, and how that ended."""

    __slots__ = ()

    def settled(self, acks: int, failed: int) -> None:
        """So many handles were acked, so many could not be."""
        self.acks_ok += acks
        self.acks_failed += failed

"""Figures of all topics and of all groups in their topics, as many as have room.

Who counts asks for the figures *before* it waits for what it counts: what is on its way while a
name is deleted and made again then counts for the one that it was for. What has no room shares the
figures `OTHER`. Figures are in memory only and begin at zero with the node. Event loop only.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from app.broker.figures.counters import (
    MINUTES,
    STEP_S,
    STEPS,
    STEPS_A_MINUTE,
    Figures,
    GroupFigures,
    Sums,
    TopicFigures,
)
from app.broker.ports import Metadata
from app.domain.clock import Clock
from app.domain.limits import Limits

OTHER: Final = "_other"
"""The name under which everything is shown that has no figures of its own."""

DAY_MS: Final = 86_400_000
IDLE_STEPS: Final = 720
"""An hour; when there is no room, figures that were idle for so long give way."""

WINDOWS: Final[Mapping[str, int]] = {"10s": 2, "1m": 12, "10m": 120}
"""Name → steps."""

_Key = TypeVar("_Key")
_Figures = TypeVar("_Figures", bound=Figures)


class Window(NamedTuple):
    """What came within some time, and how long that was."""

    seconds: float
    sums: Sums


class Series(NamedTuple):
    """What came in each of several steps on end."""

    start_ms: int
    step_ms: int
    rows: list[Sums]


class Statistics:
    """One per broker. `turn` is called every `STEP_S`."""

    def __init__(self, metadata: Metadata, clock: Clock, limits: Limits) -> None:
        self._metadata = metadata
        self._clock = clock
        self._rows_max = limits.statistics_rows_max
        self.since_ms = self._stepped_ms = clock.now_ms()
        self._began_s = self._day_began_s = clock.monotonic_s()
        self._day = self.since_ms // DAY_MS
        self._steps = 0
        self._steps_s: deque[float] = deque(maxlen=STEPS)
        self._minutes_s: deque[float] = deque(maxlen=MINUTES)
        self.topics: dict[str, TopicFigures] = {}
        self.groups: dict[tuple[str, str], GroupFigures] = {}
        """(group, topic) → figures."""
        self.whole = Figures(self.since_ms)
        """Everything together, as of the last step; what is deleted still counts."""
        self.other_topic = TopicFigures(self.since_ms)
        self.other_group = GroupFigures(self.since_ms)

    # --- counting

    def topic(self, name: str) -> TopicFigures | None:
        """Figures to count in; None when there is no such topic."""
        view = self._metadata.snapshot.topics.get(name)
        if view is None:
            return None
        found = self.topics.get(name)
        if found is not None and found.generations[0] == view.generation:
            return found
        if found is None and (name == OTHER or len(self.topics) >= self._rows_max):
            return self.other_topic
        found = self.topics[name] = TopicFigures(self._clock.now_ms(), (view.generation,))
        return found

    def group(self, group: str, topic: str) -> GroupFigures | None:
        """Figures to count in; None when there is no such group or topic."""
        snapshot = self._metadata.snapshot
        view, topic_view = snapshot.groups.get(group), snapshot.topics.get(topic)
        if view is None or topic_view is None:
            return None
        found = self.groups.get((group, topic))
        generations = (view.generation, topic_view.generation)
        if found is not None and found.generations == generations:
            return found
        if found is None and (OTHER in {group, topic} or len(self.groups) >= self._rows_max):
            return self.other_group
        found = self.groups[group, topic] = GroupFigures(self._clock.now_ms(), generations)
        return found

    def stored(self, name: str, figures: TopicFigures | None, count: int, size: int) -> None:
        """Count what was stored by a request whose time says nothing about the store.

        `figures` are those of before; None: the topic was not there, and may be made by now.
        """
        figures = figures or self.topic(name)
        if figures is not None:
            figures.put(count, size, None)

    def failed(self, name: str, code: str, count: int = 1) -> None:
        """Count refused or failed sends to a topic; nothing when there is no such topic."""
        figures = self.topic(name)
        if figures is not None:
            figures.failed(code, count)

    def forget_topic(self, name: str) -> None:
        """It is deleted; a successor of the name begins at zero."""
        self.topics.pop(name, None)
        for key in [key for key in self.groups if key[1] == name]:
            del self.groups[key]

    def forget_group(self, name: str) -> None:
        """It is deleted; a successor of the name begins at zero."""
        for key in [key for key in self.groups if key[0] == name]:
            del self.groups[key]

    # --- looking

    def count_puts(self) -> None:
        """Count the times of puts that were put down; before anybody reads them."""
        for figures in (*self.topics.values(), self.other_topic):
            figures.count_puts()

    def of_group(self, group: str, topic: str | None = None) -> dict[str, GroupFigures]:
        """Topic → figures, by name."""
        found = {key[1]: each for key, each in self.groups.items() if key[0] == group}
        return {name: found[name] for name in sorted(found) if topic in (None, name)}

    def of_topic_groups(self, topic: str) -> dict[str, GroupFigures]:
        """Group → figures, by name."""
        found = {key[0]: each for key, each in self.groups.items() if key[1] == topic}
        return dict(sorted(found.items()))

    def windows(self, figures: Figures) -> dict[str, Window]:
        """By the names of `WINDOWS`, "1h" and "today" (since midnight UTC, or the start)."""
        now_s = self._clock.monotonic_s()

        def since(times: deque[float], back: int) -> float:
            return now_s - (times[-back] if back <= len(times) else self._began_s)

        found = {
            name: Window(since(self._steps_s, steps), figures.within_steps(steps))
            for name, steps in WINDOWS.items()
        }
        found["1h"] = Window(since(self._minutes_s, MINUTES), figures.within_hour())
        found["today"] = Window(now_s - self._day_began_s, figures.today())
        return found

    def series(self, figures: Figures, steps: int, width: int) -> Series:
        """The last `steps` whole steps, `width` of them in one row, the oldest first."""
        step_ms = int(STEP_S * 1_000)
        start_ms = self._stepped_ms - steps * step_ms
        return Series(start_ms, width * step_ms, figures.series(steps, width))

    def within(self, figures: Figures, steps: int) -> Window:
        """What came in the last `steps` whole steps, or in as many as there were."""
        count = max(min(steps, self._steps), 1)
        return Window(count * STEP_S, figures.series(count, count)[0])

    # --- time

    async def turn(self) -> None:
        """Write all sums down. A service's turn."""
        self._stepped_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
        self._steps += 1
        self._steps_s.append(now_s)
        ends_minute = self._steps % STEPS_A_MINUTE == 0
        if ends_minute:
            self._minutes_s.append(now_s)
        ends_day = self._stepped_ms // DAY_MS != self._day
        if ends_day:
            self._day, self._day_began_s = self._stepped_ms // DAY_MS, now_s
        for figures in self._all():
            came = figures.step(ends_minute=ends_minute, ends_day=ends_day)
            if came is not None:
                self.whole.add(came)
        self.whole.step(ends_minute=ends_minute, ends_day=ends_day)
        _drop_idle(self.topics, self._rows_max)
        _drop_idle(self.groups, self._rows_max)

    def _all(self) -> Iterator[Figures]:
        yield from self.topics.values()
        yield from self.groups.values()
        yield self.other_topic
        yield self.other_group


def _drop_idle(rows: dict[_Key, _Figures], rows_max: int) -> None:
    """Make room when there is none."""
    if len(rows) >= rows_max:
        for key in [key for key, each in rows.items() if each.idle_steps >= IDLE_STEPS]:
            del rows[key]

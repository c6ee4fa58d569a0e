"""The world that replicas live in: disks that lose unsynced blocks, a network, a database."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from app.cluster.replication.shard_row import Found, RowChange, ShardRow
from app.cluster.replication.terms import Member, Promise, Term, TermStart, cut_history

NO_ANSWER_MS = 300
"""Behind them who asks a database that is not reached knows that there is no answer."""


@dataclass(frozen=True, slots=True)
class SimBlock:
    """One block of a log. `value` names what was sent; the start of a term has none."""

    start: int
    end: int
    wants_sync: bool
    value: str | None
    term: Term


@dataclass
class SimDisk:
    """What outlives the process of a node."""

    incarnation: int
    start: int = 0
    """Below it the log is deleted."""
    blocks: list[SimBlock] = field(default_factory=list)
    flushed: int = 0
    promise: Promise = field(default_factory=Promise)
    history: tuple[TermStart, ...] = ()
    high_watermark: int = 0
    """As the last checkpoint has it."""

    @property
    def written(self) -> int:
        return self.blocks[-1].end if self.blocks else self.start

    def delete_below(self, start: int) -> None:
        """Whole blocks, as retention does."""
        while self.blocks and self.blocks[0].end <= start:
            self.start = self.blocks.pop(0).end
        self.high_watermark = max(self.high_watermark, self.start)

    def begin(self, start: int, history: tuple[TermStart, ...]) -> None:
        """Throw all away; the log begins elsewhere."""
        self.blocks, self.history = [], history
        self.start = self.flushed = self.high_watermark = start

    def cut(self, end: int) -> None:
        while self.blocks and self.blocks[-1].end > end:
            self.blocks.pop()
        assert self.written == end, f"a cut at {end} goes through a block"
        self.flushed = min(self.flushed, end)

    def lose_power(self, random: Random) -> None:
        """Some of what was not synced is gone, from an end of a block on."""
        left = [block.end for block in self.blocks if block.end >= self.flushed]
        self.cut(random.choice([self.flushed, *left]))
        self.flushed = self.written
        self.history = cut_history(self.history, self.written)
        self.high_watermark = min(self.high_watermark, self.written)
        self.incarnation = random.getrandbits(40)


class Schedule:
    """What happens when, in simulated milliseconds. Ties in the order of their making."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._count = 0

    def after(self, delay_ms: int, happen: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + max(0, delay_ms), self._count, happen))

    def run_until(self, end_ms: int) -> None:
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, happen = heapq.heappop(self._events)
            happen()
        self.now_ms = end_ms


Answer = Callable[[ShardRow | None, bool, int], None]
"""The row (None: no answer), whether the change was done, and what is left of the lease, in ms."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The replicas of the shard in the order in which they joined, as each last did."""

    members: tuple[Member, ...] = ()
    version: int = 0
    """Rises with each that is new."""

    @property
    def names(self) -> set[str]:
        return {member.node for member in self.members}

    def with_member(self, member: Member) -> "Joined":
        if member.node not in self.names:
            return Joined((*self.members, member), self.version + 1)
        kept = [member if each.node == member.node else each for each in self.members]
        return replace(self, members=tuple(kept))


class SimDatabase:
    """The shard's row. Answers late, not at all, or carries out what it never answered."""

    def __init__(self, schedule: Schedule, random: Random, row: ShardRow) -> None:
        self._schedule = schedule
        self._random = random
        self.row = row
        self.joined = Joined()
        self.former: list[tuple[ShardRow, Joined]] = []
        self.is_away = False
        self.lost_answers = 0.0
        """The share of changes whose answer is lost."""
        self.clock_ahead_ms = 0
        self.on_change: Callable[[RowChange, ShardRow, ShardRow], object] = lambda *_: None

    @property
    def clock_ms(self) -> int:
        """By which leases are judged; it may be set."""
        return self._schedule.now_ms + self.clock_ahead_ms

    def ask(self, change: RowChange | None, answer: Answer) -> None:
        delay = self._random.randint(1, 15)
        self._schedule.after(delay, lambda: self._carry_out(change, answer))

    def _carry_out(self, change: RowChange | None, answer: Answer) -> None:
        if self.is_away:
            self._schedule.after(NO_ANSWER_MS, lambda: answer(None, False, 0))
            return
        if change is not None and self._random.random() < self.lost_answers:
            kind = self._random.random()
            if kind < 0.7:
                late = 0 if kind < 0.4 else self._random.randint(100, 4_000)
                self._schedule.after(late, lambda: self._apply(change))
            self._schedule.after(20, lambda: answer(None, False, 0))
            return
        is_done = change is not None and self._apply(change)
        row, left = self.row, self.row.lease_until_ms - self.clock_ms
        self._schedule.after(self._random.randint(1, 15), lambda: answer(row, is_done, left))

    def _apply(self, change: RowChange) -> bool:
        if self.is_away:
            return False
        after = change.apply(self.row, self.clock_ms)
        if after is None:
            return False
        self.former.append((self.row, self.joined))
        before, self.row = self.row, after
        self.on_change(change, before, after)
        return True

    def join(self, member: Member) -> Joined | None:
        """As `ReplicaSets.join`; None: no answer."""
        if self.is_away:
            return None
        joined = self.joined.with_member(member)
        if joined != self.joined:
            self.former.append((self.row, self.joined))
            self.joined = joined
        first = {each.node for each in joined.members[: self.row.min_in_sync]}
        founders = {each.node for each in self.row.in_sync} or first
        self._apply(Found(frozenset(each for each in joined.members if each.node in founders)))
        return joined

    def forget(self, count: int) -> None:
        """A standby that was behind by the last `count` changes answers from now on."""
        if self.former:
            self.row, self.joined = self.former[-min(count, len(self.former))]
            del self.former[-count:]


class SimNetwork:
    """Connections between nodes: in order, or broken; a break loses what is on its way."""

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._last_ms: dict[tuple[str, str], int] = {}
        self._number: dict[frozenset[str], int] = {}
        self._blocked: set[tuple[str, str]] = set()
        self.delay_ms = 3
        self.deliver: Callable[[str, str, object], object] = lambda *_: None
        self.tell_break: Callable[[str, str], object] = lambda *_: None

    def send(self, sender: str, receiver: str, message: object) -> None:
        pair = frozenset({sender, receiver})
        number = self._number.get(pair, 0)
        if (sender, receiver) in self._blocked:
            self.break_pair(sender, receiver, after_ms=self._random.randint(50, 1_500))
            return
        way = sender, receiver
        now = self._schedule.now_ms
        at = max(self._last_ms.get(way, 0), now + self._random.randint(0, self.delay_ms))
        self._last_ms[way] = at

        def arrive() -> None:
            if self._number.get(pair, 0) == number and way not in self._blocked:
                self.deliver(sender, receiver, message)

        self._schedule.after(at - now, arrive)

    def break_pair(self, one: str, other: str, after_ms: int = 0) -> None:
        """All on its way is lost at once; the two hear of it `after_ms` later."""
        pair = frozenset({one, other})
        self._number[pair] = self._number.get(pair, 0) + 1

        def tell() -> None:
            self._number[pair] = self._number.get(pair, 0) + 1
            self.tell_break(one, other)
            self.tell_break(other, one)

        self._schedule.after(after_ms, tell)

    def block(self, sender: str, receiver: str) -> None:
        self._blocked.add((sender, receiver))

    def heal(self) -> None:
        self._blocked.clear()
        self.delay_ms = 3

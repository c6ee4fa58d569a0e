"""What a leader knows of those that follow it: their connections, ends, and who is slow. Pure."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.terms import Member

NOTHING = LogEnd(-1, -1)


@dataclass(slots=True)
class FollowerView:
    """One node that has greeted this leader, or that the in-sync set names."""

    node: str
    member: Member | None = None
    """None: it has not greeted this leader yet."""
    session: int = 0
    is_connected: bool = False
    sent: int = 0
    """The end of what was sent on this connection."""
    ends: LogEnd = NOTHING
    noted_version: int = -1
    would_rest: bool = False
    """As it said last, as `has_room` and `is_clock_off`."""
    has_room: bool | None = None
    is_clock_off: bool = False
    mark_end: int = 0
    mark_ms: int = 0
    """At this time it had all of the log as it was some time before; see `caught_up`."""

    heard_ms: int = 0
    """When it said last how far its log is; at first when this leadership began."""
    out_ms: int | None = None
    """Since when it is not in sync, at the earliest since this leadership began; None: it is."""

    @property
    def fitness(self) -> int:
        """How well it would lead (R8, R12, R13): of those that may, one with the most is named. 3:
        at once, and it takes messages; 2: maybe it does not; 1: its clock is off; 0: it would not.
        """
        if self.would_rest or self.has_room is False:
            return 0
        if self.is_clock_off:
            return 1
        return 2 if self.has_room is None else 3

    def caught_up(self, end: int, now_ms: int) -> None:
        """It has written as far as the log went when `mark_end` was set: set it anew.

        As Kafka's lastCaughtUpTimeMs: who is always a little behind a busy log is not slow.
        """
        if self.is_connected and self.ends.written >= self.mark_end:
            self.mark_end, self.mark_ms = end, now_ms


def _new_view(node: str, now_ms: int) -> FollowerView:
    return FollowerView(node, mark_ms=now_ms, heard_ms=now_ms)


class Followers:
    """All of one leadership."""

    def __init__(self, nodes: Iterable[str], now_ms: int) -> None:
        self._views = {node: _new_view(node, now_ms) for node in nodes}

    def __iter__(self) -> Iterator[FollowerView]:
        return iter(self._views.values())

    def of(self, node: str, now_ms: int) -> FollowerView:
        """The view of a node; made when there is none."""
        view = self._views.get(node)
        if view is None:
            view = self._views[node] = _new_view(node, now_ms)
        return view

    def connected(self) -> list[FollowerView]:
        return [view for view in self._views.values() if view.is_connected]

    def current(self, node: str, session: int) -> FollowerView | None:
        """The view whose newest connection this is."""
        view = self._views.get(node)
        if view is None or not view.is_connected or view.session != session:
            return None
        return view

    def put_out(self, members: Iterable[Member]) -> None:
        """An operator has put them out of the set: what they have said before counts for nothing
        new. Their node may have thrown it away, and its connection may not have ended yet."""
        for member in members:
            view = self._views.get(member.node)
            if view is not None and view.member == member:
                view.is_connected = False

    def ends_of(self, member: Member) -> LogEnd:
        """How far a member is safe; `NOTHING` when it has not greeted this leader."""
        view = self._views.get(member.node)
        return NOTHING if view is None or view.member != member else view.ends

    def fitness_of(self, member: Member) -> int:
        """As the view's; 0 for one that is not known."""
        view = self._views.get(member.node)
        return 0 if view is None or view.member != member else view.fitness

    def fitness_and_ends_of(self, member: Member) -> tuple[int, LogEnd]:
        """The larger is the better next leader."""
        return self.fitness_of(member), self.ends_of(member)

    def with_room(self, since_ms: int) -> set[Member | None]:
        """R13: who has said since then that its disk takes messages, and would lead at once; an
        older word says nothing."""
        return {
            view.member
            for view in self._views.values()
            if view.has_room and not view.would_rest and view.heard_ms >= since_ms
        }

    def with_right_clock(self, since_ms: int) -> set[Member | None]:
        """R12: who has said since then that its clock is right, and lacks nothing else."""
        return {
            view.member
            for view in self._views.values()
            if view.fitness > 1 and view.heard_ms >= since_ms
        }

    def noted(self) -> dict[Member, int]:
        """Member → the newest in-sync set that it keeps."""
        return {
            view.member: view.noted_version
            for view in self._views.values()
            if view.member is not None
        }

    def was_paused(self, gap_ms: int) -> None:
        """This node itself stood still: nobody was slow or silent in that time."""
        for view in self._views.values():
            view.mark_ms += gap_ms
            view.heard_ms += gap_ms

    def was_heard(self, member: Member, since_ms: int) -> bool:
        """Whether this leader's words reach it, and its words this leader: since then it has said
        how far its log is. Who has not greeted yet counts for as long behind an election."""
        view = self._views.get(member.node)
        return view is not None and view.member in {None, member} and view.heard_ms >= since_ms

    def slow(
        self, members: Iterable[Member], before_ms: int, stopped: AbstractSet[str]
    ) -> list[Member]:
        """Those that had all of the log before `before_ms` for the last time, and those of nodes
        that have stopped, also before they greeted this leader; the slowest first."""
        late: list[tuple[int, Member]] = []
        for member in members:
            view, known_ms = self._views.get(member.node), 0
            if view is not None and view.member in {None, member}:
                known_ms = view.mark_ms
            if member.node in stopped:
                late.append((0, member))
            elif known_ms <= before_ms:
                late.append((known_ms, member))
        return [member for _, member in sorted(late)]

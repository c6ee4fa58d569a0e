"""A look at a replica, for people: role, ends, who is in sync and why another one is not. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from app.cluster.replication.leader import Leader
from app.cluster.replication.replica import Replica


class Role(Enum):
    """What a replica does."""

    FOLLOWER = "follower"
    TAKING_OVER = "taking_over"
    LEADER = "leader"
    PAUSED = "paused"
    """It lacked something, and goes on by itself."""
    FAILED = "failed"
    """It does nothing before the node starts anew."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """Another replica, as the leader sees it."""

    node: str
    is_in_sync: bool
    why_not: str | None
    written: int | None
    """None: it has said nothing in this term."""
    flushed: int | None
    lag_bytes: int | None
    lag_ms: int
    """Since when it lacks something of the log; 0: it has all, or had a moment ago."""
    is_connected: bool
    would_rest: bool = False
    """It could not lead a moment ago, and leaves the shard to others."""
    out_ms: int | None = None
    """Since when it is not in sync, as this leader has seen it; None: it is in sync."""
    has_room: bool | None = None
    """Whether its disk takes messages; None: it has not said."""
    is_clock_off: bool = False
    """Whether its clock is apart from the database's, as it has said."""


@dataclass(frozen=True, slots=True)
class ReplicaAlarm:
    """What an operator has to know."""

    code: str
    detail: str
    age_ms: int
    """Since it was raised last."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """At one moment."""

    role: Role
    epoch: int
    """The newest that it has promised."""
    leader: str | None
    """As far as it knows."""
    written: int
    flushed: int
    high_watermark: int
    in_sync: tuple[str, ...]
    """Nodes of the newest set that it has noted; of the row's, while it leads."""
    in_sync_version: int
    members: tuple[MemberStatus, ...] = ()
    """The other replicas; only while it leads."""
    alarms: tuple[ReplicaAlarm, ...] = ()
    failed: str | None = None
    full_nodes: tuple[str, ...] = ()
    """Nodes without whose disks, which are full, too few would be in sync; only while it leads."""
    lacking_count: int = 0
    """So many more would have to answer before sends are taken; only while it leads."""
    is_member: bool = False
    """Whether this replica is in the newest set that it has noted."""
    damaged_places: int = 0
    """Of its log, as far as it knows, which are not put right yet."""
    mended_bytes: int = 0
    """Of its log, that were put right from another replica since this one began."""
    is_current: bool = False
    """Whether it follows, and may answer reads as its leader does."""
    is_clock_off: bool = False
    """Whether the clock of its own node is apart from the database's."""
    is_being_elected: bool = False
    """Whether it has asked the row to name it, and has no answer yet."""


NOTHING = ReplicaStatus(Role.PAUSED, 0, None, 0, 0, 0, (), 0)


def status_of(
    replica: Replica, high_watermark: int, alarms: Sequence[ReplicaAlarm]
) -> ReplicaStatus:
    """Of a replica that is at work."""
    state, leader = replica.state, replica.leader
    role = Role.FOLLOWER
    node = None
    if state.leader_heard and state.now_ms - state.heard_leader_ms < state.timing.lease_ms:
        node = state.leader_heard[0]
    elif state.row is not None and state.row.leader is not None and not state.is_lease_over():
        node = state.row.leader.node
    in_sync = state.promise.in_sync
    if leader is not None:
        role = Role.LEADER if replica.is_serving else Role.TAKING_OVER
        node, in_sync = state.me.node, leader.in_sync
    return ReplicaStatus(
        role,
        state.promise.term.epoch,
        node,
        state.end.written,
        state.end.flushed,
        high_watermark,
        tuple(sorted(member.node for member in in_sync)),
        state.promise.in_sync_version,
        () if leader is None else _members(leader, state.end.written, state.now_ms),
        tuple(alarms),
        full_nodes=() if leader is None else leader.full_nodes,
        lacking_count=leader.lacking_members if role is Role.LEADER and leader is not None else 0,
        is_member=state.is_in_sync,
        is_current=replica.is_current,
        is_clock_off=state.is_clock_off,
        is_being_elected=replica.is_being_elected,
    )


def _members(leader: Leader, end: int, now_ms: int) -> tuple[MemberStatus, ...]:
    found: list[MemberStatus] = []
    for view in sorted(leader.followers, key=lambda each: each.node):
        is_in_sync = view.member in leader.in_sync
        is_known = view.ends.written >= 0
        lag = max(end - view.ends.written, 0) if is_known else None
        why = None
        if not is_in_sync:
            if not view.is_connected:
                why = "it is not connected"
            elif any(member.node == view.node for member in leader.in_sync):
                why = "its data directory is another one than the set names"
            elif lag is None:
                why = "it has said nothing yet"
            else:
                why = f"{lag} bytes are missing" if lag else "it is about to be taken in"
        found.append(
            MemberStatus(
                view.node,
                is_in_sync,
                why,
                view.ends.written if is_known else None,
                view.ends.flushed if is_known else None,
                lag,
                now_ms - view.mark_ms if lag or not view.is_connected else 0,
                view.is_connected,
                view.would_rest,
                None if is_in_sync or view.out_ms is None else now_ms - view.out_ms,
                view.has_room,
                view.is_clock_off,
            )
        )
    return tuple(found)

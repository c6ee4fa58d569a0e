"""Whom a shard is handed over to when an operator asks for it, and why not. Pure.

Judged on the status of the last tick, so that whoever asks hears why at once. The leader judges
anew (`cluster.replication.leader.Leader.leave`): what has changed since is refused there.
"""

from typing import Final

from app.domain.errors import HandOverRefused
from app.replica.replica_status import MemberStatus, ReplicaStatus, Role

NOTHING_WRITTEN: Final = -1


def successor(shard: str, me: str, status: ReplicaStatus, node: str | None) -> str:
    """The node that is to lead; `me` where that is the leader already. Without a `node` the member
    of the set that has most. Raises `HandOverRefused`."""
    if node == me:
        return me
    if not status.members:
        raise _refused(shard, node, "one_replica", "it has one replica", "add another node to it")
    if status.role is not Role.LEADER:
        hint = "ask again in a moment"
        raise _refused(shard, node, "taking_over", "its leader takes over yet", hint)
    if node is None:
        fit = [each for each in status.members if not _reason_of(each, status)[0]]
        if fit:
            return max(fit, key=_has_most).node
        found = "; ".join(f"{each.node}: {_reason_of(each, status)[1]}" for each in status.members)
        raise _refused(shard, node, "none_in_sync", found, "wait until one is in sync")
    member = next((each for each in status.members if each.node == node), None)
    if member is None:
        known = ", ".join(sorted([me, *(each.node for each in status.members)]))
        raise _refused(
            shard, node, "not_a_member", "the node has no replica of it", f"those who have: {known}"
        )
    reason, detail = _reason_of(member, status)
    if reason:
        hint = "GET /v1/cluster shows how far each replica is behind; ask again when it has all"
        raise _refused(shard, node, reason, detail, hint, member)
    return node


def _reason_of(member: MemberStatus, status: ReplicaStatus) -> tuple[str, str]:
    """A word and a sentence; empty ones for a member that may lead. One whose clock is off is as
    good as a leader whose clock is."""
    if not member.is_connected:
        return "not_connected", "the node is not connected to the leader"
    if not member.is_in_sync:
        return "not_in_sync", f"the node is not in sync: {member.why_not}"
    if member.would_rest:
        return "could_not_lead", "the node could not lead a moment ago"
    if member.has_room is False:
        return "no_room", "the disk of the node takes no messages"
    if member.is_clock_off and not status.is_clock_off:
        return "clock_apart", "the clock of the node is apart from the database's"
    return "", ""


def _has_most(member: MemberStatus) -> tuple[bool, bool, int, str]:
    written = NOTHING_WRITTEN if member.written is None else member.written
    return not member.is_clock_off, member.has_room is True, written, member.node


def _refused(
    shard: str,
    node: str | None,
    reason: str,
    detail: str,
    hint: str,
    member: MemberStatus | None = None,
) -> HandOverRefused:
    to = "" if node is None else f" to {node}"
    return HandOverRefused(
        f"the shard {shard!r} is not handed over{to}: {detail}",
        hint=hint,
        fields={
            "shard": shard,
            "node": node,
            "reason": reason,
            "lag_bytes": None if member is None else member.lag_bytes,
            "lag_ms": None if member is None else member.lag_ms,
        },
    )

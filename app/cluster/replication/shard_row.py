"""The row of a shard in SQL, and the changes of it: each a comparison and an assignment. Pure.

`app.cluster.metadata.nodes.shard_rows` judges each change by `apply` on the row that it has read,
and writes it where the row is still that one. Times are those of the database's clock, epoch
milliseconds.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from app.cluster.replication.terms import NO_TERM, Member, Term


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One shard. `in_sync_version` rises with each change of `in_sync`, over all terms."""

    term: Term = NO_TERM
    leader: Member | None = None
    in_sync: frozenset[Member] = frozenset()
    in_sync_version: int = 0
    settled_version: int = 0
    """The version of the last set whose leader knew that the row had forgotten nothing. Elections
    that came to nothing raise `in_sync_version` and not this."""
    lease_until_ms: int = 0
    handed_to: str | None = None
    """The node that may stand before the lease is over."""
    min_in_sync: int = 1
    """The set never becomes smaller than this."""
    target_replicas: int = 1
    """So many replicas may have noted a set, of which a node may know fewer (R2)."""
    possible_loss: bool = False
    """All members had come back in new incarnations: what was not synced may be lost."""
    is_regressed: bool = False
    """The database has forgotten something (R9): nobody is elected before it is restored."""
    loss_epoch: int = 0
    """That of the last election that gave up what others may have; 0: there was none. A replica
    whose log ends in an older one, and has more, is made anew."""


class RowChange(Protocol):
    """One conditional change. A member that repeats it finds it refused, never done twice."""

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """The row behind the change, or None when the row is not what the change expects."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """The first set of a shard: nobody was elected, so nothing is confirmed and all have as much.

    Told when there are `min_in_sync` replicas, so that even the first block has as many; a shard
    without a set has no leader. Until the first election one of the set that comes in another
    incarnation takes its own place."""

    in_sync: frozenset[Member]

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """Granted before the first election, for enough replicas, and for the same nodes again."""
        del now_ms
        nodes = {member.node for member in self.in_sync}
        is_other = bool(row.in_sync) and nodes != {member.node for member in row.in_sync}
        is_enough = len(nodes) == len(self.in_sync) >= row.min_in_sync
        if row.term != NO_TERM or not is_enough or is_other or self.in_sync == row.in_sync:
            return None
        version = row.in_sync_version + 1
        return replace(row, in_sync=self.in_sync, in_sync_version=version, settled_version=version)


@dataclass(frozen=True, slots=True)
class Elect:
    """R1: `candidate` leads from now on. The former leader leaves the set, if that may be."""

    seen: Term
    term: Term
    candidate: Member
    lease_ms: int

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """Granted to a member of the set, when the lease is over or was its own, or by name."""
        may_stand = (
            now_ms >= row.lease_until_ms
            or row.handed_to == self.candidate.node
            or row.leader == self.candidate
        )
        is_member = self.candidate in row.in_sync and not row.is_regressed
        if row.term != self.seen or not is_member or not may_stand:
            return None
        return replace(
            row,
            term=self.term,
            leader=self.candidate,
            in_sync=without_former_leader(row, self.candidate),
            in_sync_version=row.in_sync_version + 1,
            lease_until_ms=now_ms + self.lease_ms,
            handed_to=None,
        )


@dataclass(frozen=True, slots=True)
class ElectAfterLoss:
    """R7: all members of the set came back in new incarnations; the one with most leads."""

    seen: Term
    seen_version: int
    term: Term
    candidate: Member
    lease_ms: int

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """Granted when the lease is over and the set is the one that was seen. Where none was told
        nobody is known to have what there is, or the shard is not founded yet."""
        if not row.in_sync:
            return None
        is_same = row.term == self.seen and row.in_sync_version == self.seen_version
        if not is_same or now_ms < row.lease_until_ms or row.is_regressed:
            return None
        return replace(
            row,
            term=self.term,
            leader=self.candidate,
            in_sync=frozenset({self.candidate}),
            in_sync_version=row.in_sync_version + 1,
            settled_version=row.in_sync_version + 1,
            lease_until_ms=now_ms + self.lease_ms,
            handed_to=None,
            possible_loss=True,
            loss_epoch=self.term.epoch,
        )


@dataclass(frozen=True, slots=True)
class ElectUnclean:
    """An operator has a replica lead that is not in sync: all that are may be lost, and with them
    what they alone had confirmed."""

    seen: Term
    seen_version: int
    term: Term
    candidate: Member
    lease_ms: int
    by: str
    """Who asked for it."""

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """Granted when the lease is over and the set is the one that was seen, without it."""
        is_same = row.term == self.seen and row.in_sync_version == self.seen_version
        is_clean = not row.in_sync or self.candidate in row.in_sync
        if not is_same or is_clean or now_ms < row.lease_until_ms or row.is_regressed:
            return None
        return ElectAfterLoss(
            self.seen, self.seen_version, self.term, self.candidate, self.lease_ms
        ).apply(row, now_ms)


@dataclass(frozen=True, slots=True)
class Renew:
    """The leader's lease begins anew."""

    term: Term
    lease_ms: int

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """Granted to the leader, unless the shard is handed over."""
        if row.term != self.term or row.handed_to is not None:
            return None
        return replace(row, lease_until_ms=now_ms + self.lease_ms)


@dataclass(frozen=True, slots=True)
class ChangeInSync:
    """R4: the leader changes the set."""

    term: Term
    seen_version: int
    in_sync: frozenset[Member]
    is_proven: bool
    """Whether the leader knows by promises that the row had forgotten nothing when it was elected;
    the set grows only then."""

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """Granted to the leader that saw the newest set, and never below `min_in_sync`."""
        del now_ms
        is_seen = row.term == self.term and row.in_sync_version == self.seen_version
        is_shrunk = self.in_sync < row.in_sync
        if not is_seen or (is_shrunk and len(self.in_sync) < row.min_in_sync):
            return None
        version = row.in_sync_version + 1
        settled = version if self.is_proven else row.settled_version
        return replace(row, in_sync=self.in_sync, in_sync_version=version, settled_version=settled)


@dataclass(frozen=True, slots=True)
class HandOver:
    """R10: the leader names who follows it, and its lease is over."""

    term: Term
    to: str
    by: str = ""
    """The operator who asked for it; empty: nobody did."""

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """Granted to the leader, to a member of the set: one that was put out may not stand. What
        has been granted is not granted again: a leader repeats it until it is answered, and it is
        told of once."""
        members = {member.node for member in row.in_sync}
        if row.term != self.term or self.to not in members or row.handed_to == self.to:
            return None
        return replace(row, handed_to=self.to, lease_until_ms=now_ms)


class Need(Enum):
    """Why a shard cannot do without the replica of a node."""

    LEADS = "leads"
    HANDED_OVER = "handed_over"
    """The node is named to lead next."""
    TOO_FEW = "too_few_in_sync"
    """The set would fall below `min_in_sync`."""
    NO_LEADER = "no_leader"
    """Nobody leads, so nobody has what this one is to be copied from."""


def need_of(row: ShardRow, node: str) -> Need | None:
    """Why the replica of a node may neither be taken out nor begin anew; None: it may."""
    if row.leader is not None and row.leader.node == node:
        return Need.LEADS
    if row.handed_to == node:
        return Need.HANDED_OVER
    left = without_node(row, node)
    return Need.TOO_FEW if left < row.in_sync and len(left) < row.min_in_sync else None


def need_to_copy(row: ShardRow, node: str, now_ms: int) -> Need | None:
    """The same of a replica whose data is to be thrown away and copied from the leader."""
    need = need_of(row, node)
    if need is None and (row.leader is None or now_ms >= row.lease_until_ms):
        return Need.NO_LEADER
    return need


def without_node(row: ShardRow, node: str) -> frozenset[Member]:
    """The set without the replica of a node."""
    return frozenset(member for member in row.in_sync if member.node != node)


@dataclass(frozen=True, slots=True)
class PutOut:
    """An operator puts a node out of the set. All in the set have what is confirmed, so those that
    remain do; the leader goes on waiting for the one that is out until it has seen the set and the
    others have noted it, as with a shrink of its own."""

    node: str

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """Granted for a member that the shard can do without."""
        del now_ms
        left = without_node(row, self.node)
        if left == row.in_sync or need_of(row, self.node) is not None:
            return None
        return replace(row, in_sync=left, in_sync_version=row.in_sync_version + 1)


@dataclass(frozen=True, slots=True)
class TellRegressed:
    """R2: who was elected has heard of a newer set or term, and leads no more."""

    term: Term

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """Granted to who was elected."""
        if row.term != self.term:
            return None
        return replace(row, leader=None, is_regressed=True, lease_until_ms=now_ms)


@dataclass(frozen=True, slots=True)
class WriteBack:
    """R9: a living leader restores what the database has forgotten."""

    seen: ShardRow
    row: ShardRow
    lease_ms: int

    def apply(self, row: ShardRow, now_ms: int) -> ShardRow | None:
        """Granted when nothing has changed since it was seen."""
        if (row.term, row.in_sync_version) != (self.seen.term, self.seen.in_sync_version):
            return None
        return replace(self.row, lease_until_ms=now_ms + self.lease_ms, handed_to=None)


def without_former_leader(row: ShardRow, candidate: Member) -> frozenset[Member]:
    """The set of the next term. The former leader stays named where the set would be too small:
    nothing is confirmed without it then, so it stays fit to be elected."""
    if row.leader is None or row.leader == candidate:
        return row.in_sync
    left = row.in_sync - {row.leader}
    return left if len(left) >= row.min_in_sync else row.in_sync

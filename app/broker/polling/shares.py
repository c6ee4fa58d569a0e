"""Which queues a member that polls has: what it is told of its group, from memory if that suffices.

How queues are divided is decided in `domain.consumers`; what each queue gives to one answer, in
`queue_rounds`.

A heartbeat costs a transaction in SQL. A poll needs one only when it changes something: when the
member joins, confirms a generation or says something new of itself, and now and then as a sign of
life. Members that are taken out find out with their next poll, since this node learns of every
change. Shares are kept by group until the group changes; nothing is kept that a client said.
Event loop only.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.broker.context import Context
from app.broker.groups.consumption import Consumptions
from app.broker.groups.group_filters import GroupFilters
from app.broker.groups.groups import Groups
from app.broker.members.member_values import Heartbeat
from app.broker.members.members import Members
from app.broker.polling.poll_commits import no_member
from app.broker.polling.poll_values import PollRequest, Share
from app.broker.ports import Group, Snapshot
from app.domain.consumers.member_shares import assignment_of, conflicts_of, strategy_of
from app.domain.consumers.membership import (
    Assignment,
    Conflict,
    Membership,
    QueueName,
    StrategyName,
)
from app.domain.consumers.rebalancing import changes_nothing, check_heartbeat
from app.domain.errors import MetadataUnavailable
from app.domain.settings import GroupMode


class _Known(NamedTuple):
    """What was worked out of one state of a group."""

    changed: int
    snapshot: Snapshot
    shares: dict[str, tuple[Assignment, list[QueueName], Sequence[str]]]
    """Of each member that has asked, with the names of its queues here, and the other shards."""
    conflicts: list[Conflict]
    strategy: StrategyName
    client_ids: list[str]


class Shares:
    """One per broker."""

    def __init__(
        self,
        context: Context,
        groups: Groups,
        members: Members,
        consumptions: Consumptions,
        filters: GroupFilters,
    ) -> None:
        self._metadata = context.metadata
        self._groups = groups
        self._consumptions = consumptions
        self._members = members
        self._filters = filters
        self._known: dict[str, _Known] = {}

    def forget(self, group: str) -> None:
        """It was deleted."""
        self._known.pop(group, None)

    async def of(self, name: str, client_id: str, request: PollRequest, *, is_first: bool) -> Share:
        """The member's share of the group now. `is_first`: the client has just said all that the
        request says; else it is waiting, and only stays. Raises as a heartbeat does."""
        group = self._metadata.snapshot.groups.get(name)
        if group is not None and self._is_known(group, client_id, request, is_first=is_first):
            if not self._members.is_fresh(name, client_id):
                with contextlib.suppress(MetadataUnavailable):
                    # Nobody is taken out while the database is away, and reading goes on.
                    await self._members.renew(name, client_id)
            found = self._find(group, client_id, request)
            if found is not None:
                return found
        if request.kept:
            await self._catch_up(name, request.generation)
        generation = self._confirmed(name, client_id, request)
        beat = Heartbeat(request.profile, generation, request.assignment_id)
        if is_first:
            replaces = request.replace_subscription
            beat = replace(beat, force=request.force, replace_subscription=replaces)
        told = await self._members.heartbeat(name, client_id, beat, lambda: False)
        names, elsewhere = self._here(told.assignment)
        return Share(
            told.assignment,
            {queue: told.offsets[queue] for queue in names if queue in told.offsets},
            told.mode,
            told.strategy.name,
            told.client_ids,
            told.conflicts,
            told.effects,
            elsewhere,
        )

    def _is_known(
        self, group: Group, client_id: str, request: PollRequest, *, is_first: bool
    ) -> bool:
        """Whether a heartbeat would be a sign of life and nothing else."""
        if is_first and not self._filters.are_noted(group, request.profile):
            return False  # an operator has set or deleted one since
        membership = self._members.last(group.name)
        generation = request.generation if is_first and request.joins else None
        return membership is not None and changes_nothing(
            membership, client_id, request.profile, generation
        )

    async def _catch_up(self, name: str, generation: int | None) -> None:
        """The member may have had its generation from another node, which knew of it before."""
        membership = self._members.last(name)
        if membership is not None and (generation or 0) > membership.generation:
            await self._members.catch_up(name)

    def _confirmed(self, name: str, client_id: str, request: PollRequest) -> int | None:
        """The generation that a heartbeat is to say. Raises `StaleGeneration` for who is no member
        and may not join here."""
        if request.joins and not request.kept:
            return request.generation
        membership = self._members.last(name) or Membership(name)
        if client_id not in membership.members:
            if request.joins:
                return request.generation
            raise no_member(client_id, name, request.generation)
        check_heartbeat(membership, client_id, request.generation)
        queues = membership.queues
        is_letting_go = any(
            queues[queue].owner == client_id != queues[queue].target
            for queue in request.kept
            if queue in queues
        )
        return None if is_letting_go or not request.joins else request.generation

    def _find(self, group: Group, client_id: str, request: PollRequest) -> Share | None:
        """From memory; None when something of it is to be decided first."""
        membership = self._members.last(group.name)
        if membership is None or client_id not in membership.members:
            return None
        if group.mode is not GroupMode.BROADCAST:
            self._consumptions.check_assigned(group.name, request.profile.topics)
        known = self._of_group(group, membership)
        share = known.shares.get(client_id)
        if share is None:
            assignment = assignment_of(membership, client_id, self._members.surroundings(group))
            share = known.shares[client_id] = assignment, *self._here(assignment)
        assignment, names, elsewhere = share
        offsets = self._offsets(group, names, request)
        if offsets is None:
            return None
        return Share(
            assignment,
            offsets,
            group.mode,
            known.strategy,
            known.client_ids,
            known.conflicts,
            (),
            elsewhere,
        )

    def _here(self, assignment: Assignment) -> tuple[list[QueueName], Sequence[str]]:
        """Its queues of this node's shard, and the shards of the others."""
        topics = self._metadata.snapshot.topics
        names: list[QueueName] = []
        elsewhere: set[str] = set()
        for topic, queue_id, _ in assignment.assigned:
            view = topics.get(topic)
            is_known = view is not None and queue_id < view.queues
            shard = view.shard_of(queue_id) if view is not None and is_known else None
            if shard is None:
                names.append(QueueName(topic, queue_id))
            elif shard:  # else it is in none
                elsewhere.add(shard)
        return names, sorted(elsewhere)

    def _of_group(self, group: Group, membership: Membership) -> _Known:
        known, snapshot = self._known.get(group.name), self._metadata.snapshot
        if known is None or known.changed != membership.changed or known.snapshot is not snapshot:
            conflicts = conflicts_of(membership, self._members.surroundings(group))
            strategy = strategy_of(membership.members).name
            ids = sorted(membership.members)
            known = _Known(membership.changed, snapshot, {}, conflicts, strategy, ids)
            self._known[group.name] = known
        return known

    def _offsets(
        self, group: Group, names: Sequence[QueueName], request: PollRequest
    ) -> Mapping[QueueName, int] | None:
        """Where the assigned queues begin; None when something of it is to be decided."""
        if group.mode is GroupMode.BROADCAST:
            return _of_client(names, request)
        committed: Mapping[int, int] = {}
        last: str | None = None
        offsets: dict[QueueName, int] = {}
        for name in names:
            topic, queue_id = name
            if topic != last:
                committed, last = self._groups.offset_cache.committed(group.name, topic), topic
            offset = committed.get(queue_id)
            if offset is None:
                return None
            offsets[name] = offset
        return offsets


def _of_client(names: Sequence[QueueName], request: PollRequest) -> Mapping[QueueName, int] | None:
    """In a broadcast group the client keeps the place."""
    if all(name in request.positions for name in names):
        return {name: request.positions[name] for name in names}
    return None

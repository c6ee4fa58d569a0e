"""Commits of clients that read by offset, and taking a topic over from leases.

A commit of a member is fenced: SQL checks its generation and ownership and stores the offsets in
one transaction, so that nothing of an older generation is ever applied. A forced one is a reset,
which `offset_admin` carries out. Event loop only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.broker.context import Context
from app.broker.groups.consumption import Consumptions
from app.broker.groups.group_lookup import refuse_broadcast
from app.broker.groups.groups import Groups
from app.broker.members.members import Members
from app.broker.offsets.offset_admin import OffsetAdmin
from app.broker.ports import Group, Topic
from app.broker.results import Committed, QueuePosition
from app.broker.topic_lookup import check_current, check_here, find_topic
from app.domain.consumers import rebalancing
from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.consumers.membership import Membership, QueueName
from app.domain.positions import CommittedOffset, QueueOffset


class Committer(NamedTuple):
    """The member that commits, and the generation that it has put into effect."""

    client_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class _Commit:
    """What a client that reads by offset asks for."""

    group: Group
    topic: Topic
    rows: Sequence[QueuePosition]
    offsets: Sequence[CommittedOffset]
    committer: Committer | None
    is_reset: bool

    def fence(self, membership: Membership) -> None:
        """Raise when the client may not."""
        names = [QueueName(self.topic.name, queue_id) for queue_id, _ in self.rows]
        if self.committer is not None:
            rebalancing.check_owner(membership, *self.committer, names)
        elif not self.is_reset:
            rebalancing.check_unowned(membership, names)


class OffsetCommits:
    """One per broker. Any call may raise `MetadataUnavailable`."""

    def __init__(
        self,
        context: Context,
        groups: Groups,
        members: Members,
        consumptions: Consumptions,
        admin: OffsetAdmin,
    ) -> None:
        self._metadata = context.metadata
        self._groups = groups
        self._offset_cache = groups.offset_cache
        self._members = members
        self._consumptions = consumptions
        self._admin = admin
        self._check_open = context.gate.check

    async def commit(
        self,
        group: str,
        topic: str,
        rows: Sequence[QueuePosition],
        *,
        committer: Committer | None = None,
        force: bool = False,
        take_over: bool = False,
    ) -> Committed:
        """What is committed in the topic then, and what the commit has ended."""
        self._check_open()
        effects = await self._commit(
            group, topic, rows, committer=committer, force=force, take_over=take_over
        )
        return Committed(self._groups.offsets.committed(group, topic), effects)

    async def take_over(self, group: str, topic: str, *, is_dry_run: bool = False) -> Committed:
        """The group reads the topic by offset from now on, as by a forced commit of no queue; what
        that has ended. Makes no group."""
        self._check_open()
        view = find_topic(self._metadata, topic)
        settings = self._metadata.snapshot.groups.get(group)
        if settings is None:
            return Committed([], ())
        refuse_broadcast(settings)
        if is_dry_run:
            would = await self._consumptions.preview_assigning(group, topic, force=True)
            return Committed([], would)

        async def check() -> None:
            check_current(self._metadata, view, settings)

        async with self._consumptions.assigning(
            group, (topic,), force=True, check=check
        ) as effects:
            return Committed([], effects)

    async def _commit(
        self,
        group: str,
        topic: str,
        rows: Sequence[QueuePosition],
        *,
        committer: Committer | None,
        force: bool,
        take_over: bool,
    ) -> Sequence[ConsumptionEffect]:
        """Commit forward; with `force` it is a reset, whoever consumes.

        A commit makes the group read the topic by offset; when it leases it, only `take_over` does,
        and what it has ended is returned. Raises `ConsumptionConflict` without it,
        `StaleGeneration` or `QueueNotOwned` when the committer may not, and the latter without a
        committer for queues that a member owns.
        """
        view = find_topic(self._metadata, topic)
        for queue_id, _ in rows:
            check_here(view, queue_id)
        self._groups.offsets.check_commit(view, rows)
        if committer is not None and group not in self._metadata.snapshot.groups:
            self._groups.check_may_make(group)
            rebalancing.check_owner(Membership(group), *committer, ())
        settings = await self._groups.find_or_create_group(group)
        refuse_broadcast(settings)
        offsets = [
            CommittedOffset(
                group,
                topic,
                queue_id,
                QueueOffset(offset),
                view.generation,
                settings.generation,
            )
            for queue_id, offset in rows
        ]
        with self._groups.offsets.room(settings, (view,)):  # until the offsets are there
            if force and not take_over:
                await self._admin.overwrite(settings, offsets)
                return ()
            commit = _Commit(settings, view, rows, offsets, committer, is_reset=force)
            return await self._commit_as_reader(commit, take_over=take_over)

    async def _commit_as_reader(
        self, commit: _Commit, *, take_over: bool
    ) -> Sequence[ConsumptionEffect]:
        group = commit.group.name

        def is_fenced() -> bool:
            return commit.committer is not None or self._members.has_members(group)

        async def check() -> None:
            if is_fenced():
                commit.fence(await self._metadata.members.read(group))
            check_current(self._metadata, commit.topic, commit.group)

        async with self._consumptions.assigning(
            group, (commit.topic.name,), force=take_over, check=check
        ) as effects:
            if commit.is_reset:
                await self._admin.overwrite(commit.group, commit.offsets)
                return effects
            if is_fenced():
                await self._commit_under(group, commit.offsets, commit.fence)
            await self._groups.offsets.until_deleted(group, commit.topic.name)
            written = self._groups.commit(commit.group, commit.topic, commit.rows)
            self._consumptions.depend_on(group, commit.topic.name, written)
        await written.wait()
        return effects

    async def preview_commit(
        self,
        group: str,
        topic: str,
        rows: Sequence[QueuePosition],
        *,
        committer: Committer | None = None,
        force: bool = False,
        take_over: bool = False,
    ) -> Committed:
        """What would be committed in the topic after a commit, and what it would end. Raises as
        `commit`; makes no group and changes nothing."""
        view = find_topic(self._metadata, topic)
        for queue_id, _ in rows:
            check_here(view, queue_id)
        self._groups.offsets.check_commit(view, rows)
        settings = self._metadata.snapshot.groups.get(group)
        if settings is None:
            self._groups.check_may_make(group)
        else:
            refuse_broadcast(settings)
        effects: Sequence[ConsumptionEffect] = ()
        if take_over or not force:
            effects = await self._consumptions.preview_assigning(group, topic, force=take_over)
        if committer is not None or self._members.has_members(group):
            names = [QueueName(topic, queue_id) for queue_id, _ in rows]
            membership = await self._metadata.members.read(group)
            if committer is not None:
                rebalancing.check_owner(membership, *committer, names)
            elif not force:
                rebalancing.check_unowned(membership, names)
        offsets = self._offset_cache.committed_here(group, topic)
        for queue_id, offset in rows:
            offsets[queue_id] = (
                offset
                if force
                else self._groups.offsets.committed_after(group, topic, queue_id, offset)
            )
        after = [QueuePosition(queue_id, offset) for queue_id, offset in sorted(offsets.items())]
        return Committed(after, effects)

    async def _commit_under(
        self,
        group: str,
        offsets: Sequence[CommittedOffset],
        check: Callable[[Membership], None],
    ) -> None:
        def step(membership: Membership) -> Membership:
            check(membership)
            return membership

        await self._offset_cache.commit(
            offsets,
            lambda rows: self._metadata.members.change(group, step, offsets_after=rows),
        )

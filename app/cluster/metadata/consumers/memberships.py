"""Members of consumer groups in SQL: loaded as one value, changed by a pure step, stored by diff.

Every change of a group's membership happens under the row lock of its generation, so that nodes
take turns and each step sees the truth. Lock order on PostgreSQL: group, generation, then what
`offsets` takes. Members have no part in the snapshot and do not raise the metadata version.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.consumers import committed_offsets as offsets
from app.cluster.metadata.consumers import member_numbers
from app.cluster.metadata.consumers.member_numbers import Numbers
from app.cluster.metadata.database.database import Database
from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.schema.member_columns import (
    detail_to_json,
    profile_from_json,
    profile_to_json,
    rebalance_of,
)
from app.cluster.metadata.schema.tables import (
    consumer_groups,
    group_generations,
    group_members,
    group_queues,
    rebalances,
)
from app.domain.clock import Clock
from app.domain.consumers.membership import (
    GroupPulse,
    Member,
    Membership,
    QueueLock,
    QueueName,
    QueueState,
    Rebalance,
)
from app.domain.errors import GroupNotFound, TopicNotFound
from app.domain.limits import Limits
from app.domain.positions import CommittedOffset

Step = Callable[[Membership], Membership]


class Memberships:
    """Reachable as `Metadata.members`. Event loop only; raises `MetadataUnavailable`."""

    def __init__(self, database: Database, clock: Clock, limits: Limits) -> None:
        self._database = database
        self._clock = clock
        self._limits = limits

    async def read(self, group: str) -> Membership:
        """The group's members and queues; empty when it has never had any."""
        async with self._database.reading() as connection:
            return await _load(
                connection, group, await member_numbers.load(connection, group, lock=False)
            )

    async def change(
        self,
        group: str,
        step: Step,
        *,
        offsets_after: Sequence[CommittedOffset] = (),
        force: bool = False,
    ) -> Membership:
        """Replace the membership by `step` of it, and commit offsets, in one transaction.

        What `step` raises leaves everything as it was: this is how commits are fenced. `step` may
        be run again when the transaction is repeated, so it must be pure. Raises `GroupNotFound`,
        or `TopicNotFound` for offsets in a topic that was deleted.
        """
        async with self._database.transaction() as connection:
            before = await _load(connection, group, await _lock(connection, group))
            after = step(before)
            if after is not before:
                await _store(connection, before, after, self._limits.rebalance_history_max)
            if offsets_after:
                left_out = await offsets.commit(
                    connection, offsets_after, force=force, now_ms=self._clock.now_ms()
                )
                if left_out:
                    raise TopicNotFound(f"topic {left_out[0].topic!r} does not exist (any more)")
        return after

    async def history(self, group: str) -> list[Rebalance]:
        """The newest rebalances, newest first."""
        row = rebalances.c
        query = (
            select(row.generation, row.at_ms, row.reason, row.detail)
            .where(row.consumer_group == group)
            .order_by(row.generation.desc())
        )
        async with self._database.reading() as connection:
            return [rebalance_of(*each) for each in await connection.execute(query)]

    async def pulses(self) -> list[GroupPulse]:
        """One short row for each group that has had members."""
        row = group_generations.c
        query = select(row.consumer_group, row.counter, row.changed).where(
            row.consumer_group != member_numbers.FLOOR
        )
        async with self._database.asking() as connection:
            return [GroupPulse(*each) for each in await connection.execute(query)]


async def _lock(connection: AsyncConnection, group: str) -> Numbers:
    """Keep the group from being deleted, and other changes of its members out."""
    name = consumer_groups.c.name
    query = select(name).where(name == group).with_for_update(read=True, key_share=True)
    if await connection.scalar(query) is None:
        raise GroupNotFound(f"consumer group {group!r} does not exist (any more)")
    return await member_numbers.load_or_make(connection, group)


async def _load(connection: AsyncConnection, group: str, numbers: Numbers | None) -> Membership:
    if numbers is None:
        return Membership(group)
    members = await _load_members(connection, group)
    queues = await _load_queues(connection, group)
    return Membership(group, *numbers, members, queues)


async def _load_members(connection: AsyncConnection, group: str) -> Mapping[str, Member]:
    query = select(group_members).where(group_members.c.consumer_group == group)
    return MappingProxyType(
        {
            row.client_id: Member(
                row.client_id,
                profile_from_json(row.profile),
                row.joined_ms,
                row.seen_ms,
                row.joined_generation,
                row.confirmed_generation,
                row.beat,
            )
            for row in await connection.execute(query)
        }
    )


async def _load_queues(connection: AsyncConnection, group: str) -> Mapping[QueueName, QueueState]:
    query = select(group_queues).where(group_queues.c.consumer_group == group)
    return MappingProxyType(
        {
            QueueName(row.topic, row.queue_id): QueueState(
                row.owner,
                row.target,
                row.since_generation,
                None if row.lock_owner is None else QueueLock(row.lock_owner, row.lock_renewal),
            )
            for row in await connection.execute(query)
        }
    )


async def _store(
    connection: AsyncConnection, before: Membership, after: Membership, history_max: int
) -> None:
    numbers = (after.generation, after.counter, after.changed)
    if numbers != (before.generation, before.counter, before.changed):
        await connection.execute(
            update(group_generations)
            .where(group_generations.c.consumer_group == after.group)
            .values(generation=after.generation, counter=after.counter, changed=after.changed)
        )
    await _store_members(connection, before, after)
    await _store_queues(connection, before, after)
    if after.new_history:
        await _append_history(connection, after, history_max)


async def _store_members(
    connection: AsyncConnection, before: Membership, after: Membership
) -> None:
    row = group_members.c
    for client_id in sorted(before.members.keys() - after.members.keys()):
        await connection.execute(
            delete(group_members).where(
                row.consumer_group == after.group, row.client_id == client_id
            )
        )
    for client_id in sorted(after.members):
        member, was = after.members[client_id], before.members.get(client_id)
        if member == was:
            continue
        columns: dict[str, object] = {
            "seen_ms": member.seen_ms,
            "confirmed_generation": member.confirmed_generation,
            "beat": member.beat,
        }
        if was is None or was.profile != member.profile:
            columns["profile"] = profile_to_json(member.profile)
        if was is None or was.joined_generation != member.joined_generation:
            columns["joined_ms"] = member.joined_ms
            columns["joined_generation"] = member.joined_generation
        if was is None:
            columns |= {"consumer_group": after.group, "client_id": client_id}
            await connection.execute(insert(group_members).values(**columns))
        else:
            await connection.execute(
                update(group_members)
                .where(row.consumer_group == after.group, row.client_id == client_id)
                .values(**columns)
            )


async def _store_queues(connection: AsyncConnection, before: Membership, after: Membership) -> None:
    row = group_queues.c
    by_topic: dict[str, list[int]] = {}
    for name in before.queues.keys() - after.queues.keys():
        by_topic.setdefault(name.topic, []).append(name.queue_id)
    for topic, queue_ids in sorted(by_topic.items()):
        await connection.execute(
            delete(group_queues).where(
                row.consumer_group == after.group,
                row.topic == topic,
                row.queue_id.in_(queue_ids),
            )
        )
    changed = [name for name in after.queues if after.queues[name] != before.queues.get(name)]
    if changed:
        await _upsert_queues(connection, after, sorted(changed))


async def _upsert_queues(
    connection: AsyncConnection, after: Membership, names: Iterable[QueueName]
) -> None:
    insertion = upsert(connection, group_queues)
    new = insertion.excluded
    kept = ("owner", "target", "since_generation", "lock_owner", "lock_renewal")
    statement = insertion.on_conflict_do_update(
        index_elements=["consumer_group", "topic", "queue_id"],
        set_={column: new[column] for column in kept},
    )
    values = [
        {
            "consumer_group": after.group,
            "topic": name.topic,
            "queue_id": name.queue_id,
            "owner": state.owner,
            "target": state.target,
            "since_generation": state.since_generation,
            "lock_owner": state.lock.client_id if state.lock else None,
            "lock_renewal": state.lock.renewal if state.lock else None,
        }
        for name, state in ((name, after.queues[name]) for name in names)
    ]
    await connection.execute(statement, values)


async def _append_history(connection: AsyncConnection, after: Membership, history_max: int) -> None:
    """The newest `history_max` generations stay."""
    entries = [
        {
            "consumer_group": after.group,
            "generation": entry.generation,
            "at_ms": entry.at_ms,
            "reason": entry.reason.value,
            "detail": detail_to_json(entry),
        }
        for entry in after.new_history
    ]
    await connection.execute(insert(rebalances), entries)
    await connection.execute(
        delete(rebalances).where(
            rebalances.c.consumer_group == after.group,
            rebalances.c.generation <= after.generation - history_max,
        )
    )

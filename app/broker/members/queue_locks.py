"""Locks of queues for consumption in order: a member alone reads a queue while it holds its lock.

A lock outlives its holder's membership: who takes the queue over waits until the lock has ended.
`Members` notices locks that were not renewed. Event loop only; any call may raise
`GroupNotFound`, `TopicNotFound`, `QueueNotFound` and `MetadataUnavailable`.
"""

from collections.abc import Sequence

from app.broker.context import Context
from app.broker.members.members import Members
from app.broker.topic_lookup import check_queue, find_topic
from app.domain.consumers import rebalancing
from app.domain.consumers.membership import Membership, QueueName


class QueueLocks:
    """One per broker."""

    def __init__(self, context: Context, members: Members) -> None:
        self._metadata = context.metadata
        self._members = members

    async def lock(
        self,
        group: str,
        client_id: str,
        generation: int,
        names: Sequence[QueueName],
        *,
        is_dry_run: bool = False,
    ) -> rebalancing.Locking:
        """Lock or renew for `Limits.queue_lock_ms`, each queue by itself. Raises
        `StaleGeneration`."""
        self._check_names(group, names)
        ended = self._members.ended_locks(group)
        made: list[rebalancing.Locking] = []

        def step(membership: Membership) -> Membership:
            made[:] = [rebalancing.lock_queues(membership, client_id, generation, names, ended)]
            return made[0].membership

        await self._members.change_or_try(group, step, is_dry_run=is_dry_run)
        return made[0]

    async def unlock(
        self, group: str, client_id: str, names: Sequence[QueueName], *, is_dry_run: bool = False
    ) -> rebalancing.Locking:
        """Give locks back; only their holder can."""
        self._check_names(group, names)
        made: list[rebalancing.Locking] = []

        def step(membership: Membership) -> Membership:
            made[:] = [rebalancing.unlock_queues(membership, client_id, names)]
            return made[0].membership

        await self._members.change_or_try(group, step, is_dry_run=is_dry_run)
        return made[0]

    def _check_names(self, group: str, names: Sequence[QueueName]) -> None:
        self._members.find_group(group)
        for name in names:
            check_queue(find_topic(self._metadata, name.topic), name.queue_id)

"""Leases over a restart: deliveries that are open at a start are held for those who have them.

What was handed out and not settled when the node ended is leased still, under the handle that it
was handed out with. So its consumer settles it as if nothing had happened, and nobody else gets it
meanwhile. When its lease ends it fails like any other. Event loop only.
"""

import asyncio
import logging
from typing import Final

from app.broker.context import Context
from app.broker.groups.groups import Groups
from app.broker.leasing.holders import Holder
from app.broker.leasing.leases import Lease
from app.broker.leasing.subscriptions import LeasedQueue
from app.broker.progress.open_deliveries import OpenDelivery, OpenRun
from app.broker.progress.progress_entries import Key, lease_runs
from app.domain.errors import CurlewError
from app.domain.limits import HELD_DELIVERY_MS_MAX

_LOG: Final = logging.getLogger(__name__)
_TAKEN_A_TURN: Final = 256
"""Groups whose deliveries one turn of the event loop takes up."""


class HeldDeliveries:
    """One per broker."""

    def __init__(self, context: Context, groups: Groups) -> None:
        self._clock = context.clock
        self._metadata = context.metadata
        self._store = context.store
        self._groups = groups
        self._journal = groups.consumer_journal
        self._journal.read_leases(self._leases_of)

    async def take_up(self) -> None:
        """Lease what the log tells of, for what is left of each lease: at most the group's
        invisible time, at most five minutes. Before anybody receives."""
        open_deliveries, snapshot = self._journal.open, self._metadata.snapshot
        for number, (name, topic_name) in enumerate(sorted(self._pairs())):
            if number % _TAKEN_A_TURN == 0:
                await asyncio.sleep(0)
            group, topic = snapshot.groups.get(name), snapshot.topics.get(topic_name)
            if group is None or topic is None:
                continue
            try:
                subscription = await self._groups.subscribe(group, topic, is_read=False)
            except CurlewError as error:  # what it has is delivered anew
                _LOG.info("open deliveries of %s in %s end: %s", name, topic_name, error.detail)
                continue
            most_ms = min(group.invisible_ms, HELD_DELIVERY_MS_MAX)
            for queue in subscription.sources:
                found = open_deliveries.take(queue.key, is_ordered=subscription.is_ordered)
                leases = self._leases(queue, found, most_ms)
                if group.max_in_flight_bytes is not None:
                    self._count_bytes(queue, leases, Holder(subscription.in_flight))
                queue.hold(leases)
        open_deliveries.clear()

    def _pairs(self) -> set[tuple[str, str]]:
        """(Group, topic) of what is open. Not of those that were deleted: a group that was made
        again begins with its first receive."""
        return {
            key[:2]
            for key, offsets in self._journal.open.offsets().items()
            if (state := self._journal.find(key)) is not None
            and not state.deliveries.keys().isdisjoint(offsets)
        }

    def _leases(
        self, queue: LeasedQueue, found: dict[int, OpenDelivery], most_ms: int
    ) -> dict[int, Lease]:
        """Those of messages that are not done."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        state = queue.state
        leases: dict[int, Lease] = {}
        for offset, (lease_id, attempt, until_ms) in sorted(found.items()):
            left_ms = min(until_ms - now_ms, most_ms)
            is_open = offset in state.deliveries and offset not in state.parked
            if left_ms > 0 and is_open and not state.progress.is_acked(offset):
                ends_s = now_s + left_ms / 1_000
                leases[offset] = Lease(lease_id, ends_s, attempt=attempt, is_first=False)
        return leases

    def _count_bytes(self, queue: LeasedQueue, leases: dict[int, Lease], holder: Holder) -> None:
        """Of clients that the log does not name: about as many as the queue's records have."""
        size = self._store.average_bytes(queue.stored_topic, queue.stored_queue_id) or 0
        for lease in leases.values():
            lease.holder, lease.size = holder, size

    def _leases_of(self, key: Key) -> tuple[list[OpenRun], bool]:
        """The leases of a queue, for a snapshot, and whether they were given in order."""
        group, topic, queue_id = key
        subscription = self._groups.find(group, topic)
        queue = None if subscription is None else subscription.find(queue_id)
        if queue is None:
            return [], False
        ahead_ms = self._clock.now_ms() - round(self._clock.monotonic_s() * 1_000)
        by_end: dict[int, list[tuple[int, int, int]]] = {}
        for offset, lease in sorted(queue.leases.leased.items()):
            until_ms = ahead_ms + round(lease.expires_s * 1_000)
            by_end.setdefault(until_ms, []).append((offset, lease.lease_id, lease.attempt))
        runs = [(until_ms, run) for until_ms, some in by_end.items() for run in lease_runs(some)]
        return runs, queue.order is not None

"""Producers themselves: what is known of one, the plan of an epoch's queues, closing epochs.

Who sends under their numbers is `deduplicator`'s. Event loop only.
"""

import asyncio

from app.broker.context import Context
from app.broker.dedup.dedup_entries import ProducerState
from app.broker.dedup.dedup_journal import DedupJournal
from app.broker.dedup.producer_plans import Plan
from app.broker.dedup.tokens import check_producer, topic_key
from app.broker.ports import Topic
from app.domain.errors import ProducerNotFound, SequenceOutOfOrder
from app.domain.positions import FlushMode


class Producers:
    """One per broker."""

    def __init__(self, context: Context, kept: DedupJournal) -> None:
        self._clock = context.clock
        self._limits = context.limits
        self._check_open = context.gate.check_for_sends
        self._kept = kept
        self._table = kept.table

    def state(self, producer_id: str) -> ProducerState:
        """What is known of a producer, or `ProducerNotFound`."""
        state = self._table.state(check_producer(producer_id))
        if state.epoch is None and state.sealed_epoch is None and not state.sequences:
            raise _not_found(producer_id)
        return state

    async def plan(
        self,
        family: str,
        epoch: int,
        topic: Topic,
        messages_per_turn: int | None = None,
        *,
        is_dry_run: bool = False,
    ) -> Plan:
        """Over which queues of the topic an epoch spreads, and in what turns: those that it has, in
        shards that do not drain, and as was said when the epoch first asks; the same whenever it
        asks again.

        Not synced: in the log it stands before all that is sent by it, and is lost only with that.
        """
        self._check_open()
        check_producer(family)
        now_ms = self._clock.now_ms()
        key = topic_key(topic.name, topic.generation)
        plan = self._table.plan(family, epoch, key, now_ms)
        if plan is None:
            plan = Plan(family, epoch, key, len(topic.open_queues), now_ms, messages_per_turn)
            if plan.queues != topic.write_queues:
                plan = plan._replace(
                    queue_ids=tuple(topic.open_queues),
                    write_queues=topic.write_queues,
                    key_queue_ids=topic.key_queues,
                )
            if not is_dry_run:
                await self._kept.write(self._table.plan_entry(plan), FlushMode.ASYNC)
        return plan

    async def forget(self, family: str, *, is_dry_run: bool = False) -> int:
        """The producers of a family send no more: close their epochs. Return the highest one.

        Raises `ProducerNotFound` when nothing is known of them. Repeating is harmless.
        """
        check_producer(family)
        sealed = self._table.sealed_epoch(family)
        epoch = max(self._table.last_epoch(family), sealed)
        if epoch < 0:
            raise _not_found(family)
        return await self.seal(family, epoch, is_dry_run=is_dry_run)

    @property
    def remembered(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Producers, and idempotency keys: how many are known, and how many may be."""
        producers, keys = self._table.counts
        limits = self._limits
        return (producers, limits.producers_max), (keys, limits.idempotency_keys_max)

    async def seal(
        self, family: str, epoch: int, messages: int = 0, *, is_dry_run: bool = False
    ) -> int:
        """Close an epoch and all before it, for the producer `family` and for all whose id is
        `family`, a colon, and a part without one. Return the highest closed epoch.

        With fewer than `messages` of the epoch in the log nothing is closed: `SequenceOutOfOrder`.
        Then a power loss has taken what was acknowledged before it was synced.

        What is on its way when this is called is stored or refused, never both. A seal that cannot
        be written holds until the node stops; ask again.
        """
        self._check_open()
        check_producer(family)
        if messages and epoch > self._table.sealed_epoch(family):
            await self._check_complete(family, epoch, messages)
        sealed = self._table.sealed_epoch(family)
        if epoch > sealed:  # from here to the entry in one turn
            self._table.check_room_for_seal(family, self._clock.now_ms())
        if is_dry_run:
            return max(epoch, sealed)
        if epoch > sealed or not self._table.is_seal_safe(family):
            entry = self._table.seal_entry(family, max(epoch, sealed), self._clock.now_ms())
            self._kept.forget_on()
            await self._kept.write(entry, FlushMode.SYNC)
        return self._table.sealed_epoch(family)

    async def _check_complete(self, family: str, epoch: int, messages: int) -> None:
        """Raise `SequenceOutOfOrder` unless the family has stored so many in this epoch.

        They are counted in several turns of the event loop: what is stored stays stored.
        """
        stored = 0
        for stored in self._table.stored(family, epoch):
            if stored >= messages or epoch <= self._table.sealed_epoch(family):
                return
            await asyncio.sleep(0)
        raise SequenceOutOfOrder(
            f"of {messages} messages of epoch {epoch} of producer {family!r} {stored} are"
            " stored; a crash may have taken the others before they were synced",
            hint="send the epoch again from its beginning; what is stored is passed over",
            fields={"stored": stored},
        )


def _not_found(producer_id: str) -> ProducerNotFound:
    return ProducerNotFound(
        f"nothing is known of producer {producer_id!r}",
        hint="one is known from its first numbered send, until it has long been idle",
    )

"""Sends that are stored once: by a producer's sequence, or by an idempotency key.

A request is looked up in the table; a new one is appended together with an entry of the producers'
journal, in one step, so that a crash forgets both or neither. A repetition gets the first result,
read back from the log. Several messages are taken whole or refused whole: a result that is repeated
must not have had failures.

Sends without a claim never come here. Event loop only.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.dedup.claimed_steps import Parts, Pending, Stored, frame_result, moved, overlap
from app.broker.dedup.dedup_entries import ProducerState
from app.broker.dedup.dedup_table import DedupTable
from app.broker.dedup.producer_plans import Plan
from app.broker.dedup.tokens import (
    ANY_QUEUE,
    Claim,
    KeyToken,
    Placed,
    ProducerToken,
    check_producer,
    read_topic_key,
    topic_key,
)
from app.broker.delays.delayed_sends import Delayed, DelayedSends, Waiting
from app.broker.journal.append_future import AppendFuture, with_outcome
from app.broker.journal.cold_reads import ColdReads
from app.broker.journal.journal import Journal
from app.broker.ports import Topic
from app.broker.produce.send_deadlines import (
    Deadline,
    is_safe_by,
    not_safe_yet,
    wait_with_place,
)
from app.broker.produce.send_steps import SendStep, encoded_part, made
from app.broker.produce.sender import Sender
from app.broker.produce.topic_admission import check_write_queue
from app.broker.results import BatchItem, FrameResult, SendResult
from app.domain.delays import Due
from app.domain.errors import (
    AlreadyStored,
    CurlewError,
    DiskFull,
    InvalidRequest,
    OffsetExpired,
    ProducerNotFound,
    SequenceOutOfOrder,
    StoreFailed,
)
from app.domain.limits import MIB
from app.domain.message import Message
from app.domain.names import PRODUCER_TOPIC
from app.domain.positions import FlushMode
from app.store import Appended, ReadResult
from app.store.formats.frame.batch_frame import RequestFrame

_READ_BYTES: Final = 4 * MIB
_READ_MESSAGES: Final = 500
"""Of a batch that is repeated, at a time: reading some costs more than sending them."""


class Once(NamedTuple):
    """Results in the order of the request; `is_repeated`: they are those of an earlier one."""

    results: list[SendResult]
    is_repeated: bool


class FrameOnce(NamedTuple):
    """The result of a frame. Of one that was stored in part, of the rest."""

    result: FrameResult
    is_repeated: bool


class Deduplicator:
    """What producers have sent, and sending under a claim. `start` before use."""

    def __init__(self, context: Context, sender: Sender, delayed: DelayedSends) -> None:
        self._store = context.store
        self._clock = context.clock
        self._limits = context.limits
        self._sender = sender
        self._delayed = delayed
        self._readers = context.readers
        self._check_open = context.gate.check_for_sends
        self._table = DedupTable(context.limits)
        self._is_forgetting = False
        self.journal = Journal(context.store, PRODUCER_TOPIC, self._table, context.readers)

    async def start(self) -> None:
        """Bring back what was known before."""
        await self.journal.replay()
        self._forget_on()
        bounds = self._store.bounds
        is_adopted = self._table.adopt(self._store.generation)
        entry = self._table.repair(lambda topic, queue_id: bounds(topic, queue_id).max_offset)
        if entry is not None and not is_adopted:  # else the snapshot tells of it as well
            self._store.first_steps.append(self.journal.entry(entry))
        for topic in self._table.topics():
            name, generation = read_topic_key(topic)
            if generation and self._store.is_gone(name, generation):
                self._forget(topic)
        if is_adopted:  # before a successor of one of these names can be taken for it
            try:
                await self.journal.write_snapshot()
            except (DiskFull, StoreFailed):
                self.journal.is_demanded = True

    def forget_topic(self, name: str, generation: int) -> None:
        """The topic was deleted. Not waited for: the next start sees it as well."""
        self._forget(topic_key(name, generation))

    def _forget(self, topic: str) -> None:
        entry = self._table.deleted_entry(topic)
        with contextlib.suppress(CurlewError):
            self._store.append_step((self.journal.entry(entry),), FlushMode.ASYNC, _ignore)
        self._table.taken(entry)
        self._forget_on()

    def _forget_on(self) -> None:
        """Have what a seal or a deletion has ended forgotten, a slice in each turn."""
        if not self._is_forgetting:
            self._is_forgetting = True
            asyncio.get_running_loop().call_soon(self._forget_some)

    def _forget_some(self) -> None:
        self._is_forgetting = False
        if self._table.forget_some():
            self._forget_on()

    # --- sending

    async def send(
        self,
        topic_name: str,
        message: Message,
        claim: Claim,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        due: Due | None = None,
        deadline: Deadline = None,
    ) -> Once:
        """Store one message once. Errors carry `outcome`. `deadline` as for `Sender.send`."""
        item = BatchItem(message, due=due)
        return await self.send_batch(
            topic_name, [item], claim, queue_id=queue_id, flush=flush, deadline=deadline
        )

    async def send_batch(
        self,
        topic_name: str,
        items: Sequence[BatchItem | CurlewError],
        claim: Claim,
        *,
        queue_id: int | None = None,
        spread: bool = False,
        flush: FlushMode | None = None,
        deadline: Deadline = None,
    ) -> Once:
        """Store all messages once, or raise the first entry's error and store none.

        `FlushDiskTimeout` of the first stands for all: they are one step.
        """
        self._check_open()
        try:
            self._check(claim)
            topic = await self._sender.find_or_create(topic_name)
            key = topic_key(topic_name, topic.generation)
            chosen = await self._sender.choose(topic, items, queue_id, spread)
            scope = ANY_QUEUE if queue_id is None else queue_id
            now_ms = self._clock.now_ms()
            found = self._table.look(claim, key, scope, len(items), now_ms)
            parts: Parts | None = None
            if not isinstance(found, Placed):  # what is made for it takes a while
                parts = await made(partial(self._parts, topic, items, chosen), len(items))
                now_ms = self._clock.now_ms()
                found = self._table.look(claim, key, scope, len(items), now_ms)
            if isinstance(found, Placed):
                return Once(await self._recall(topic_name, found), is_repeated=True)
            if found.skip:
                raise overlap(claim, found)
            assert parts is not None
            if isinstance(claim, KeyToken):  # a producer's plan of its queues stays as it is
                named = {queue_id, *(e.queue_id for e in items if isinstance(e, BatchItem))}
                for queue in named:
                    if queue is not None:
                        check_write_queue(topic, queue)
            self._sender.admit(topic, items)
            stored = self._append(topic, parts, claim, scope, now_ms, flush)
        except CurlewError as error:
            raise with_outcome(error, "not_stored") from None
        if deadline is None:
            return Once(await stored.results(), is_repeated=False)
        if not await is_safe_by(deadline, stored.confirmation, len(items)):
            raise not_safe_yet((await stored.placed())[0])
        return Once(await stored.placed(), is_repeated=False)

    async def send_frame(
        self,
        topic_name: str,
        body: bytes | bytearray | memoryview,
        claim: Claim,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        deadline: Deadline = None,
    ) -> FrameOnce:
        """Store a frame once; of one that was stored in part, the rest. `deadline` as for
        `Sender.send`."""
        self._check_open()
        try:
            self._check(claim)
            topic = await self._sender.find_or_create(topic_name)
            key = topic_key(topic_name, topic.generation)
            frame = await self._sender.checked_frame(topic_name, body)
            chosen = self._sender.choose_one(topic, queue_id, frame)
            scope = ANY_QUEUE if queue_id is None else queue_id
            if frame.delivery_times is not None:
                return await self._send_delayed_frame(
                    topic, chosen, frame, claim, scope, flush, deadline
                )
            now_ms = self._clock.now_ms()
            found = self._table.look(claim, key, scope, frame.count, now_ms)
            if isinstance(found, Placed):
                return FrameOnce(await self._recall_frame(topic_name, found), is_repeated=True)
            if found.skip:
                frame = frame.without(found.skip)
                claim = moved(claim, found.skip)
            elif queue_id is not None and isinstance(claim, KeyToken):
                check_write_queue(topic, queue_id)
            self._sender.admit_frame(topic, frame)
            chosen = chosen if found.queue_id is None else found.queue_id
            first = self._store.next_offset(topic_name, chosen)
            placed = Placed.in_one_queue(chosen, first, frame.count)
            if isinstance(claim, KeyToken):
                placed = Placed.in_one_queue(chosen, first - found.skip, frame.count + found.skip)
            entry = self._table.entry(claim, key, scope, placed, now_ms)
            confirmation, appended = self._append_frame(topic, chosen, frame, entry, flush)
        except CurlewError as error:
            raise with_outcome(error, "not_stored") from None
        result = frame_result(topic_name, chosen, appended)
        if deadline is None:
            await confirmation.wait()
        else:
            await wait_with_place(confirmation, deadline, result)
        return FrameOnce(result, is_repeated=False)

    async def _send_delayed_frame(
        self,
        topic: Topic,
        queue_id: int,
        frame: RequestFrame,
        claim: Claim,
        scope: int,
        flush: FlushMode | None,
        deadline: Deadline,
    ) -> FrameOnce:
        """One with delivery times: the entry and the messages as one step."""
        key = topic_key(topic.name, topic.generation)
        step: SendStep | None = None
        skip = 0
        while True:
            now_ms = self._clock.now_ms()
            found = self._table.look(claim, key, scope, frame.count, now_ms)
            if isinstance(found, Placed):
                result = await self._recall_frame(topic.name, found)
                return FrameOnce(result, is_repeated=True)
            if step is not None and found.skip == skip:
                break
            skip = found.skip  # making the step takes a while, in which others may send
            rest = frame.without(skip) if skip else frame
            step = await self._sender.step_of_frame(topic, queue_id, rest)
        self._sender.admit_frame(topic, frame.without(skip) if skip else frame)
        step.check()
        # Delayed ones have no offsets yet to come back to, and so a repetition gets none of either.
        placed = Placed(frame.count - skip, (), ())
        entry = self._table.entry(moved(claim, skip), key, scope, placed, now_ms)
        pending = Pending()
        steps = (self.journal.entry(entry), *step.parts)
        appended = self._store.append_step(steps, flush or topic.flush, pending.done, is_send=True)
        pending.settle = self._table.taken(entry)
        step.appended = appended[1:]
        result = step.frame_result(topic.name, queue_id)
        if deadline is None:
            await pending.confirmation.wait()
        else:
            await wait_with_place(pending.confirmation, deadline, result)
        return FrameOnce(result, is_repeated=False)

    def _check(self, claim: Claim) -> None:
        if isinstance(claim, ProducerToken):
            check_producer(claim.producer_id)
            self._make_room(claim.producer_id)
        elif not 0 < len(claim.key) <= self._limits.idempotency_key_chars_max:
            limit = self._limits.idempotency_key_chars_max
            raise InvalidRequest(f"an idempotency key has 1 to {limit} characters")

    def _make_room(self, producer_id: str) -> None:
        """When no more producers can be remembered, forget the one that is idle for longest. Not
        synced: in the log it stands before what is sent in the room that it makes."""
        entry = self._table.forgetting_entry(producer_id, self._clock.now_ms())
        if entry is not None:
            self._store.append_step((self.journal.entry(entry),), FlushMode.ASYNC, _ignore)
            self._table.taken(entry)

    def _parts(
        self,
        topic: Topic,
        items: Sequence[BatchItem | CurlewError],
        chosen: dict[int, list[tuple[int, Message]]],
    ) -> Parts:
        """The parts of the step that stores these. Any thread."""
        dues = self._dues(items)
        if not dues:
            parts = [
                encoded_part(topic.name, queue, [message for _, message in rows], topic.generation)
                for queue, rows in chosen.items()
            ]
            return Parts(chosen, parts, [])
        rows = {
            index: Delayed(message, queue_id, dues[index])
            for queue_id, part in chosen.items()
            for index, message in part
        }
        sent = [rows[index] for index in sorted(rows)]
        return Parts(chosen, [self._delayed.waiting_part(topic, sent)], sent)

    def _append(
        self,
        topic: Topic,
        parts: Parts,
        claim: Claim,
        scope: int,
        now_ms: int,
        flush: FlushMode | None,
    ) -> Stored | Waiting:
        """The entry and the messages as one step, in this turn."""
        key = topic_key(topic.name, topic.generation)
        pending = Pending()
        if parts.delayed:  # they have no offsets yet to come back to
            placed = Placed(len(parts.delayed), (), ())
            entry = self._table.entry(claim, key, scope, placed, now_ms)
            waiting = self._delayed.append_after(
                self.journal.entry(entry),
                parts.parts[0],
                topic,
                parts.delayed,
                flush,
                pending.confirmation,
                pending.done,
            )
            pending.settle = self._table.taken(entry)
            return waiting
        chosen, next_offset = parts.chosen, self._store.next_offset
        order = parts.order()
        placed = Placed(
            len(order),
            order if len(chosen) > 1 else order[:1],
            [(queue, next_offset(topic.name, queue)) for queue in chosen],
        )
        entry = self._table.entry(claim, key, scope, placed, now_ms)
        steps = (self.journal.entry(entry), *parts.parts)
        appended = self._store.append_step(steps, flush or topic.flush, pending.done, is_send=True)
        pending.settle = self._table.taken(entry)
        return Stored(topic.name, chosen, appended[1:], pending.confirmation)

    def _dues(self, items: Sequence[BatchItem | CurlewError]) -> list[int]:
        """When each message is due, now at the earliest; nothing when none has a delay."""
        wishes = [item.due for item in items if isinstance(item, BatchItem)]
        if not any(wishes):
            return []
        if not all(wishes):
            raise InvalidRequest(
                "a batch under a key or sequence is delayed whole or not at all",
                hint="send the messages for now and those for later in two batches",
            )
        now_ms = self._clock.now_ms()
        return [self._delayed.due_ms(due) or now_ms for due in wishes]

    def _append_frame(
        self,
        topic: Topic,
        queue_id: int,
        frame: RequestFrame,
        entry: bytes,
        flush: FlushMode | None,
    ) -> tuple[AppendFuture, Appended]:
        pending = Pending()
        appended = self._store.append_frame(
            topic.name,
            queue_id,
            frame,
            flush or topic.flush,
            pending.done,
            self.journal.entry(entry),
            topic.generation,
        )
        pending.settle = self._table.taken(entry)
        return pending.confirmation, appended

    # --- repeating

    async def _recall_frame(self, topic: str, placed: Placed) -> FrameResult:
        results = await self._recall(topic, placed)
        first = results[0]
        ids = [result.message_id for result in results]
        return FrameResult(
            topic, first.queue_id, first.queue_offset, len(results), first.store_time_ms, ids
        )

    async def _recall(self, topic: str, placed: Placed) -> list[SendResult]:
        """The first results, read from the log. `OffsetExpired` when the messages are gone."""
        if not placed.firsts:
            raise AlreadyStored(
                "these messages were stored before, to be delivered later",
                hint="take it as a success",
                outcome="stored",
            )
        found: dict[tuple[int, int], SendResult] = {}
        counts: dict[int, int] = {}
        offsets = list(placed.offsets())
        for queue_id, _ in offsets:
            counts[queue_id] = counts.get(queue_id, 0) + 1
        for queue_id, first in placed.firsts:
            await self._read_results(topic, queue_id, first, first + counts[queue_id], found)
        missing = [where for where in offsets if where not in found]
        if missing:
            queue_id, offset = missing[0]
            raise OffsetExpired(
                f"stored before, in queue {queue_id} at offset {offset}, and no longer readable",
                hint="take it as a success",
                outcome="stored",
            )
        return [found[where] for where in offsets]

    async def _read_results(
        self,
        topic: str,
        queue_id: int,
        first: int,
        end: int,
        found: dict[tuple[int, int], SendResult],
    ) -> None:
        bounds = self._store.bounds(topic, queue_id)
        offset, end = max(first, bounds.min_offset), min(end, bounds.max_offset)
        while offset < end:
            read = await ColdReads(self._readers).run(self._reader(topic, queue_id, offset, end))
            for record in read.records:
                message = self._store.decode(record)
                where = queue_id, message.queue_offset
                found[where] = SendResult(message.message_id, topic, *where, message.store_time_ms)
            offset = max(read.next_offset, offset + 1)
            await asyncio.sleep(0)

    def _reader(
        self, topic: str, queue_id: int, offset: int, end: int
    ) -> Callable[[bool], ReadResult]:
        def read(wait_for_disk: bool) -> ReadResult:
            return self._store.read(
                topic,
                queue_id,
                offset,
                max_messages=min(end - offset, _READ_MESSAGES),
                max_bytes=_READ_BYTES,
                end_offset=end,
                wait_for_disk=wait_for_disk,
            )

        return read

    # --- producers themselves

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
        """Over how many queues of the topic an epoch spreads, and in what turns: as many as it has
        and as was said when the epoch first asks, and the same whenever it asks again.

        Not synced: in the log it stands before all that is sent by it, and is lost only with that.
        """
        self._check_open()
        check_producer(family)
        now_ms = self._clock.now_ms()
        key = topic_key(topic.name, topic.generation)
        plan = self._table.plan(family, epoch, key, now_ms)
        if plan is None:
            plan = Plan(family, epoch, key, topic.write_queues, now_ms, messages_per_turn)
            if not is_dry_run:
                await self._write(self._table.plan_entry(plan), FlushMode.ASYNC)
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
            self._forget_on()
            await self._write(entry, FlushMode.SYNC)
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

    async def _write(self, entry: bytes, flush: FlushMode) -> None:
        """Write an entry that belongs to no message, and take it in this turn."""
        pending = Pending()
        self._store.append_step((self.journal.entry(entry),), flush, pending.done)
        pending.settle = self._table.taken(entry)
        await pending.confirmation.wait()


def _not_found(producer_id: str) -> ProducerNotFound:
    return ProducerNotFound(
        f"nothing is known of producer {producer_id!r}",
        hint="one is known from its first numbered send, until it has long been idle",
    )


def _ignore(_error: CurlewError | None) -> None:
    """Nobody waits for it."""

"""Delayed messages: kept in a system topic until they are due, then stored in their own.

A delayed message is a record of the timer topic that says where it goes and when. When it is due
one step stores the message in its own topic and a record in the timer topic that it is done; a
crash leaves both or neither, so there is exactly one copy. Which records wait is derived from the
topic (`timer_index`, `app.store.TimerLog`).

Due times are wall clock. A message is delivered when the wall clock shows its due time or later,
whatever made it show that: after a step forward what is due by the new time goes out at once, after
a step back nothing goes out before the new time has come to it. So with respect to the clock that
users see no message is early. The clock is looked at every 20 ms instead of sleeping up to the next
due time, so that a step is noticed and no second clock is needed.

Event loop only.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Final

from app.broker.context import Context
from app.broker.delays.timer_compaction import TimerCompaction
from app.broker.delays.timer_index import TimerIndex
from app.broker.delays.timer_records import (
    QUEUE,
    as_message,
    counted,
    counted_as,
    done_part,
    moved_part,
    waiting_part,
)
from app.broker.journal.append_future import AppendFuture
from app.broker.journal.cold_reads import ColdReads
from app.broker.ports import Group, Topic
from app.broker.retries_and_dead_letters import ORIGIN_TOPIC
from app.broker.row_faults import RowFaults, is_of_message
from app.domain.errors import CurlewError, TopicNotFound
from app.domain.limits import MIB
from app.domain.message import (
    PROPERTY_GENERATION,
    PROPERTY_REAL_QUEUE,
    PROPERTY_REAL_TOPIC,
    Message,
    StoredMessage,
)
from app.domain.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    TIMER_TOPIC,
    dead_letter_topic,
    retry_topic,
)
from app.domain.positions import FlushMode
from app.runtime.service import Service
from app.store import StepPart, Timer, TimerLog, TimerLogDamaged
from app.store.timers.timer_log import FLUSH_ENTRIES

_LOG: Final = logging.getLogger(__name__)

BATCH_MESSAGES: Final = 512
"""Messages of one delivering step at most."""

BATCH_BYTES: Final = 2 * MIB
"""Bytes of one delivering step, unless a single message is larger."""

TURN_SECONDS: Final = 1.0
"""How long one turn goes on when many are due; the next one follows soon."""

SET_ASIDE_MAX: Final = 100
"""Messages that may be set aside, fewer than a batch has; when more cannot be delivered, delivering
stops and says so."""

TRY_AGAIN_SECONDS: Final = 60.0
"""After which what was set aside is tried again."""

MISSING_MS: Final = 600_000
"""After which a message is tried again whose topic or group is missing in the metadata."""

DAMAGED: Final = ""
"""Stands for the topic of a record that cannot be read."""

_ALWAYS_THERE: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


class Nowhere(Enum):
    """Why a message is not delivered."""

    EVER = 1
    """Its topic or group was deleted."""
    YET = 2
    """Its topic or group is missing in the metadata, as after a database was lost."""


def retry_identity(generations: tuple[int, int]) -> str:
    """Those of a group and of the topic of its retries."""
    return f"{generations[0]}:{generations[1]}"


def read_retry_identity(text: str | None) -> tuple[int, int]:
    """Invert `retry_identity`; zeros for an earlier version's."""
    group, _, topic = (text or "").partition(":")
    return (int(group), int(topic)) if topic else (0, 0)


def _is_of_one(error: Exception) -> bool:
    """Whether it is one message's, as also when the store has ended its topic a moment before the
    metadata say so."""
    return is_of_message(error) or isinstance(error, TopicNotFound)


class DelayDelivery:
    """Delayed messages of one broker. `start` before use."""

    def __init__(self, context: Context, kept_up: TimerLog | None = None) -> None:
        """`kept_up`: while this replica followed."""
        timer_log = context.store.timer_log() if kept_up is None else kept_up
        self.timers = TimerIndex(context.store, timer_log, context.readers)
        self.problem: str | None = None
        """Why what is due is not delivered."""
        self.faults = RowFaults("delivery")
        """Delayed messages that cannot be delivered, each for itself, by topic and offset."""
        self._set_aside: set[Timer] = set()
        """Those, until they are tried again."""
        self._try_again_s = 0.0
        self._store = context.store
        self._metadata = context.metadata
        self._clock = context.clock
        self._readers = context.readers
        self.compaction = TimerCompaction(
            context.store, context.clock, self.timers, self.end, context.readers
        )
        self.service = Service("delays", context.config.delay_check_seconds, self.turn)

    async def start(self) -> None:
        """Open the timer log and begin to deliver, as soon as it is up to date."""
        self.timers.load()
        self.compaction.start()
        await self.service.start()

    async def stop(self) -> None:
        """Deliver no more; write the timer log down, so that the next start has nothing to read."""
        await self.service.stop()
        await self.compaction.stop()

    def part(
        self, message: Message, topic: str, queue_id: int, due_ms: int, generation: int | str
    ) -> StepPart:
        """The part of a step that stores `message` for delivery to a queue at `due_ms` or later.

        `generation` is the topic's; for a retry topic the text of `retry_identity`. Of the reserved
        properties of the message those that this module uses are replaced; everything else of it
        is kept. Nobody sees the message before it is due; then it has the id that the append of
        this part gives, unless `message` has one.
        """
        return waiting_part(message, topic, queue_id, due_ms, str(generation))

    def waiting_count(self, topic: str) -> int:
        """Messages that wait to go to a topic, of any kind, as far as the log was read back.

        Exact after `catch_up`, also across restarts.
        """
        return self.timers.log.count_for(topic)

    def retry_count(self, group: str, topic: str) -> int:
        """Retries that wait, of the group and the topic that have these names now; those of an
        early version, which says no generations, too. Exact as above."""
        name, snapshot = retry_topic(group, topic), self._metadata.snapshot
        count = self.waiting_count(name)
        group_now, topic_now = snapshot.groups.get(group), snapshot.topics.get(topic)
        if group_now is not None and topic_now is not None:
            identity = retry_identity((group_now.generation, topic_now.generation))
            count += self.waiting_count(counted(name, identity))
        return max(count, 0)

    async def catch_up(self) -> None:
        """Read back what has been appended; otherwise that is done every 20 ms."""
        await self.timers.catch_up()

    # --- delivering

    async def turn(self) -> None:
        """Deliver what is due. The service's turn; one at a time."""
        timers = self.timers
        if timers.damage is not None:
            await timers.rebuild()
        while not await timers.catch_up(FLUSH_ENTRIES):
            await self.compaction.turn()  # between two flushes no more are kept in memory
        if not timers.count:
            await self.compaction.turn()
            return
        self._try_again()
        ends = self._clock.monotonic_s() + TURN_SECONDS
        try:
            while True:
                await timers.look_ahead()
                batch = self._take_due()
                if not batch or not await self._deliver(batch):
                    break
                if self._clock.monotonic_s() >= ends:
                    break
        except TimerLogDamaged:
            return
        await self.compaction.turn()

    def _take_due(self) -> list[Timer]:
        """Claim what is due, but for what is set aside."""
        due = self.timers.take_due(self._clock.now_ms(), BATCH_MESSAGES)
        aside = [timer for timer in due if timer in self._set_aside] if self._set_aside else []
        if aside:
            self.timers.release(aside)
            due = [timer for timer in due if timer not in self._set_aside]
        return due

    async def _deliver(self, batch: Sequence[Timer]) -> bool:
        """Deliver claimed timers; False: it did not succeed, they wait on."""
        try:
            try:
                await self.deliver(batch)
            except TimerLogDamaged:
                raise
            except Exception as error:
                if not _is_of_one(error):
                    raise
                await self._deliver_each(batch)
        except CurlewError as error:
            problem = f"delayed messages cannot be delivered: {error.detail}"
            if problem != self.problem:
                _LOG.warning("%s", problem)
            self.problem = problem
            return False
        self.problem = None
        if self.faults.count:
            for timer in batch:
                if timer not in self._set_aside:
                    self.faults.clear((TIMER_TOPIC, timer.offset))
        return True

    async def _deliver_each(self, batch: Sequence[Timer]) -> None:
        """Deliver one by one what could not be delivered together; set aside what fails alone.

        Raises the store's error, and any error once `SET_ASIDE_MAX` are set aside.
        """
        timers = self.timers
        for timer in batch:
            if not await timers.claim_waiting(timer):
                continue
            try:
                await self.deliver([timer])
            except TimerLogDamaged:
                raise
            except Exception as error:
                if not _is_of_one(error) or len(self._set_aside) >= SET_ASIDE_MAX:
                    raise
                self.faults.note((TIMER_TOPIC, timer.offset), error)
                self._set_aside.add(timer)

    def _try_again(self) -> None:
        """Let what was set aside be due again, now and then."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._try_again_s:
            self._try_again_s = now_s + TRY_AGAIN_SECONDS
            self.faults.keep_only({(TIMER_TOPIC, timer.offset) for timer in self._set_aside})
            self._set_aside.clear()

    async def deliver(self, batch: Sequence[Timer]) -> None:
        """Deliver claimed timers in one step; those that do not fit are released."""
        timers = self.timers
        taken = list(batch)
        try:
            found = await self.read_many(batch)
            taken = [timer for timer in batch if timer.offset in found]
            timers.release([timer for timer in batch if timer.offset not in found])
            messages = [message for timer in taken if (message := found[timer.offset])]
            topics = {int(message.queue_offset): counted_as(message) for message in messages}
            claimed = {timer: topics.get(timer.offset, DAMAGED) for timer in taken}
            parts = self._parts(messages)
        except BaseException:
            timers.release(taken)
            raise
        await self.end(claimed, parts)

    async def end(self, claimed: Mapping[Timer, str], parts: Sequence[StepPart]) -> None:
        """End the waiting of claimed timers, in one step with `parts`; the claim ends with it.

        `claimed` says for each what it is `counted_as`.

        When it fails they wait on. Whoever is cancelled here leaves the step to finish.
        """
        confirmation = AppendFuture()

        def settled(error: CurlewError | None) -> None:
            if error is not None:
                self.timers.release(list(claimed))
            confirmation.done(error)

        try:
            step = [*parts, done_part(claimed)]
            topics = {part.topic for part in parts} or set(claimed.values())
            self._store.append_step(step, self._flush_mode(topics), settled)
        except BaseException:
            self.timers.release(list(claimed))
            raise
        await confirmation.wait()
        with suppress(CurlewError, OSError):  # it is done; the next turn reads it back, or says why
            await self.timers.catch_up()

    async def move(self, timer: Timer, waiting: StoredMessage, due_ms: int) -> None:
        """Let the message of a claimed timer wait at the end of the log, for another time."""
        await self.end({timer: counted_as(waiting)}, [moved_part([waiting], due_ms)])

    async def read(self, timer: Timer) -> StoredMessage | None:
        """The record of a timer; None when it is damaged."""
        return (await self.read_many([timer])).get(timer.offset)

    async def read_claimed(self, timer: Timer) -> StoredMessage | None:
        """The same; when reading fails the claim is given up."""
        try:
            return await self.read(timer)
        except BaseException:
            self.timers.release([timer])
            raise

    async def read_many(self, batch: Sequence[Timer]) -> dict[int, StoredMessage | None]:
        """The records of a batch by their offsets, as many as one step takes; None where one is
        damaged."""

        def read(wait_for_disk: bool) -> dict[int, StoredMessage | None]:
            return self._read_batch(batch, wait_for_disk=wait_for_disk)

        return await ColdReads(self._readers).run(read)

    def _read_batch(
        self, batch: Sequence[Timer], *, wait_for_disk: bool
    ) -> dict[int, StoredMessage | None]:
        found: dict[int, StoredMessage | None] = {}
        total = 0
        offsets = [timer.offset for timer in batch]
        at = 0
        while at < len(offsets):
            end = at + 1
            while end < len(offsets) and offsets[end] == offsets[end - 1] + 1:
                end += 1
            read = self._store.read(
                TIMER_TOPIC,
                QUEUE,
                offsets[at],
                max_messages=end - at,
                max_bytes=max(BATCH_BYTES - total, 1),
                end_offset=offsets[end - 1] + 1,
                wait_for_disk=wait_for_disk,
            )
            total += sum(map(len, read.records))
            if found and total > BATCH_BYTES:
                break
            for gap in read.gaps:
                found |= dict.fromkeys(range(gap.from_offset, gap.to_offset))
            for record in read.records:
                message = self._store.decode(record)
                found[message.queue_offset] = message
            if read.next_offset <= offsets[end - 1]:
                break
            at = end
        return found

    def _parts(self, waited: Sequence[StoredMessage]) -> list[StepPart]:
        """The messages for their own queues, in the order in which they are due. What cannot be
        delivered to a topic or group that is merely missing waits on."""
        parts: dict[tuple[str, int, int], list[Message]] = {}
        missing: list[StoredMessage] = []
        for message in waited:
            place = self._place_of(message.system)
            if place is Nowhere.YET:
                missing.append(message)
            elif not isinstance(place, Nowhere):
                parts.setdefault(place, []).append(as_message(message))
        later = self._clock.now_ms() + MISSING_MS
        return [
            *(
                StepPart(topic, queue, each, number)
                for (topic, queue, number), each in parts.items()
            ),
            *([moved_part(missing, later)] if missing else []),
        ]

    def _place_of(self, system: Mapping[str, str]) -> "tuple[str, int, int] | Nowhere":
        """Topic, queue and generation for a message, if its topic or group was not deleted."""
        topic, queue_id = system[PROPERTY_REAL_TOPIC], int(system[PROPERTY_REAL_QUEUE])
        identity = system.get(PROPERTY_GENERATION)
        if topic.startswith(_ALWAYS_THERE):
            fate = self._fate_of_retry(topic, identity, system.get(ORIGIN_TOPIC))
            return (topic, queue_id, 0) if fate is None else fate
        view = self._metadata.snapshot.topics.get(topic)
        fate = self._fate(topic, int(identity or 0), view)
        if fate is not None:
            return fate
        assert view is not None
        return topic, queue_id % view.queues, view.generation

    def _fate_of_retry(
        self, topic: str, identity: str | None, origin: str | None
    ) -> "Nowhere | None":
        group = topic.split("%", 2)[2].partition("+")[0]
        of_group, of_topic = read_retry_identity(identity)
        snapshot = self._metadata.snapshot
        fate = self._fate(dead_letter_topic(group), of_group, snapshot.groups.get(group))
        if fate is None and origin is not None:
            fate = self._fate(origin, of_topic, snapshot.topics.get(origin))
        return fate

    def _fate(self, stored: str, generation: int, now: Topic | Group | None) -> "Nowhere | None":
        """None: what was meant is there. Generation 0: not known, of an earlier version."""
        if now is not None and generation in (0, now.generation):
            return None
        return Nowhere.EVER if self._store.is_gone(stored, generation) else Nowhere.YET

    def _flush_mode(self, topics: Collection[str]) -> FlushMode:
        """As durable as the strictest of the topics wants it."""
        for topic in topics:
            view = self._metadata.snapshot.topics.get(topic)
            if view is None or view.flush is FlushMode.SYNC:
                return FlushMode.SYNC
        return FlushMode.ASYNC

"""Delayed messages: kept in a system topic until they are due, then stored in their own.

A delayed message is a record of the timer topic that says where it goes and when. When it is due
one step stores the message in its own topic and a record in the timer topic that it is done; a
crash leaves both or neither, so there is exactly one copy. Which records wait is derived from the
topic (`timers`, `app.store.TimerLog`).

Due times are wall clock. A message is delivered when the wall clock shows its due time or later,
whatever made it show that: after a step forward what is due by the new time goes out at once, after
a step back nothing goes out before the new time has come to it. So with respect to the clock that
users see no message is early. The clock is looked at every 20 ms instead of sleeping up to the next
due time, so that a step is noticed and no second clock is needed.

Event loop only.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final

from app.broker.config import BrokerConfig
from app.broker.confirming import Confirmation
from app.broker.ports import Metadata, Store
from app.broker.reading import DiskAccess
from app.broker.timers import QUEUE, Timers, done_part, identity_of
from app.domain.clock import Clock
from app.domain.errors import CurlewError
from app.domain.limits import MIB
from app.domain.message import (
    PROPERTY_DUE,
    PROPERTY_GENERATION,
    PROPERTY_REAL_QUEUE,
    PROPERTY_REAL_TOPIC,
    PROPERTY_STEP,
    PROPERTY_TIMER,
    Message,
    StoredMessage,
)
from app.domain.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, TIMER_TOPIC
from app.domain.positions import FlushMode
from app.runtime.service import Service
from app.store import StepPart, Timer, TimerLogDamaged

_LOG: Final = logging.getLogger(__name__)

BATCH_MESSAGES: Final = 512
"""Messages of one delivering step at most."""

BATCH_BYTES: Final = 2 * MIB
"""Bytes of one delivering step, unless a single message is larger."""

TURN_SECONDS: Final = 1.0
"""How long one turn goes on when many are due; the next one follows soon."""

LOG_BYTES_MAX: Final = 256 * MIB
"""Log behind the last flush of the timer log after which the next one is due."""

_OF_WAITING: Final = frozenset(
    {PROPERTY_DUE, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE, PROPERTY_GENERATION, PROPERTY_STEP}
)
_ALWAYS_THERE: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


class Delays:
    """Delayed messages of one broker. `start` before use."""

    def __init__(
        self,
        store: Store,
        metadata: Metadata,
        clock: Clock,
        config: BrokerConfig,
        readers: Executor,
    ) -> None:
        self.timers = Timers(store, store.timer_log(), readers)
        self.problem: str | None = None
        """Why what is due is not delivered."""
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._readers = readers
        self._flushed_at = 0
        self._service = Service("delays", config.delay_check_seconds, self.turn)

    async def start(self) -> None:
        """Open the timer log and begin to deliver, as soon as it is up to date."""
        self.timers.load()
        self._flushed_at = self._store.status().written_end
        await self._service.start()

    async def stop(self) -> None:
        """Deliver no more; write the timer log down, so that the next start has nothing to read."""
        await self._service.stop()
        if self.timers.log.changes and self._store.status().failed is None:
            await self.flush()

    def part(self, message: Message, topic: str, queue_id: int, due_ms: int) -> StepPart:
        """The part of a step that stores `message` for delivery to a queue at `due_ms` or later.

        Of its reserved properties those that this module uses are replaced; everything else of the
        message is kept. `topic` may be a retry or dead-letter topic as well. Nobody sees the
        message before it is due; then it has the id that the append of this part gives, unless
        `message` has one.
        """
        system = {name: text for name, text in message.system.items() if name not in _OF_WAITING}
        system.pop(PROPERTY_TIMER, None)
        system[PROPERTY_REAL_TOPIC] = topic
        system[PROPERTY_REAL_QUEUE] = str(queue_id)
        system[PROPERTY_DUE] = str(due_ms)
        view = self._metadata.snapshot.topics.get(topic)
        if view is not None:
            system[PROPERTY_GENERATION] = str(view.generation)
        return StepPart(TIMER_TOPIC, QUEUE, [replace(message, system=system)])

    # --- delivering

    async def turn(self) -> None:
        """Deliver what is due. The service's turn; one at a time."""
        timers = self.timers
        if timers.damage is not None:
            _LOG.warning("the timer log is made again from its topic: %s", timers.damage)
            await timers.rebuild()
        await timers.catch_up()
        if not timers.count:
            await self._flush_when_due()
            return
        ends = self._clock.monotonic_s() + TURN_SECONDS
        try:
            while True:
                await timers.look_ahead()
                batch = timers.take_due(self._clock.now_ms(), BATCH_MESSAGES)
                if not batch or not await self._deliver(batch):
                    break
                if self._clock.monotonic_s() >= ends:
                    break
        except TimerLogDamaged:
            return
        await self._flush_when_due()

    async def _deliver(self, batch: Sequence[Timer]) -> bool:
        """Deliver claimed timers; False: it did not succeed, they wait on."""
        try:
            await self.deliver(batch)
        except CurlewError as error:
            problem = f"delayed messages cannot be delivered: {error.detail}"
            if problem != self.problem:
                _LOG.warning("%s", problem)
            self.problem = problem
            return False
        self.problem = None
        return True

    async def deliver(self, batch: Sequence[Timer]) -> None:
        """Deliver claimed timers in one step; those that do not fit are released."""
        timers = self.timers
        taken = list(batch)
        try:
            found = await self._read(batch)
            taken = [timer for timer in batch if timer.offset in found]
            timers.release([timer for timer in batch if timer.offset not in found])
        except BaseException:
            timers.release(taken)
            raise
        parts = self._parts([message for timer in taken if (message := found[timer.offset])])
        await self.end(taken, parts)

    async def end(self, claimed: Sequence[Timer], parts: Sequence[StepPart]) -> None:
        """End the waiting of claimed timers, in one step with `parts`; the claim ends with it.

        When it fails they wait on. Whoever is cancelled here leaves the step to finish.
        """
        confirmation = Confirmation()

        def settled(error: CurlewError | None) -> None:
            if error is not None:
                self.timers.release(claimed)
            confirmation.done(error)

        try:
            step = [*parts, done_part(claimed)]
            self._store.append_step(step, self._flush_mode(parts), settled)
        except CurlewError:
            self.timers.release(claimed)
            raise
        await confirmation.wait()
        await self.timers.catch_up()

    async def move(self, timer: Timer, waiting: StoredMessage, due_ms: int) -> None:
        """Let the message of a claimed timer wait at the end of the log, for another time."""
        await self.end([timer], [moved_part([waiting], due_ms)])

    async def read(self, timer: Timer) -> StoredMessage | None:
        """The record of a timer; None when it is damaged."""
        return (await self._read([timer])).get(timer.offset)

    async def read_claimed(self, timer: Timer) -> StoredMessage | None:
        """The same; when reading fails the claim is given up."""
        try:
            return await self.read(timer)
        except BaseException:
            self.timers.release([timer])
            raise

    async def _read(self, batch: Sequence[Timer]) -> dict[int, StoredMessage | None]:
        """The records of a batch, as many as one step takes; None where one is damaged."""

        def read(wait_for_disk: bool) -> dict[int, StoredMessage | None]:
            return self._read_batch(batch, wait_for_disk=wait_for_disk)

        return await DiskAccess(self._readers).run(read)

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
                _LOG.error("delayed messages at %s of the timer topic are damaged", gap)
                found |= dict.fromkeys(range(gap.from_offset, gap.to_offset))
            for record in read.records:
                message = self._store.decode(record)
                found[message.queue_offset] = message
            if read.next_offset <= offsets[end - 1]:
                break
            at = end
        return found

    def _parts(self, waited: Sequence[StoredMessage]) -> list[StepPart]:
        """The messages for their own queues, in the order in which they are due."""
        parts: dict[tuple[str, int], list[Message]] = {}
        for message in waited:
            place = self._place_of(message.system)
            if place is not None:
                parts.setdefault(place, []).append(as_message(message))
        return [StepPart(topic, queue, messages) for (topic, queue), messages in parts.items()]

    def _place_of(self, system: Mapping[str, str]) -> tuple[str, int] | None:
        """Topic and queue of a message; None when the topic was deleted since."""
        topic, queue_id = system[PROPERTY_REAL_TOPIC], int(system[PROPERTY_REAL_QUEUE])
        if topic.startswith(_ALWAYS_THERE):
            return topic, queue_id
        view = self._metadata.snapshot.topics.get(topic)
        generation = system.get(PROPERTY_GENERATION)
        if view is None or generation not in {None, str(view.generation)}:
            return None
        return topic, queue_id % view.queues

    def _flush_mode(self, parts: Sequence[StepPart]) -> FlushMode:
        """As durable as the strictest topic of the step wants it."""
        topics = self._metadata.snapshot.topics
        for part in parts:
            view = topics.get(part.topic)
            if view is None or view.flush is FlushMode.SYNC:
                return FlushMode.SYNC
        return FlushMode.ASYNC

    # --- the timer log

    async def _flush_when_due(self) -> None:
        written = self._store.status().written_end - self._flushed_at
        if self.timers.log.is_flush_due() or (
            written >= LOG_BYTES_MAX and self.timers.log.position > self.timers.log.watermark
        ):
            await self.flush()

    async def flush(self) -> None:
        """Write the timer log down as far as the topic was read, then trim the topic."""
        log = self.timers.log
        flushing = log.begin_flush()
        if flushing is None:
            return
        at = self._store.status().written_end
        try:
            # The files may know of nothing that a loss of power could take from the log.
            confirmation = Confirmation()
            self._store.flush(confirmation.done)
            await confirmation.wait()
            await asyncio.get_running_loop().run_in_executor(None, flushing.run)
        except (CurlewError, OSError, ValueError) as error:
            log.abandon(flushing)
            _LOG.warning("the timer log is not written: %s", error)
            return
        log.finish(flushing)
        self._flushed_at = at
        self._store.trim(TIMER_TOPIC, QUEUE, min(log.oldest_offset, log.watermark))


def moved_part(waiting: Sequence[StoredMessage], due_ms: int | None = None) -> StepPart:
    """The part of a step that stores records of the timer topic again; None: for the same time."""
    messages: list[Message] = []
    for record in waiting:
        system = {name: text for name, text in record.system.items() if name != PROPERTY_STEP}
        system[PROPERTY_TIMER] = identity_of(record)
        if due_ms is not None:
            system[PROPERTY_DUE] = str(due_ms)
        messages.append(replace(as_message(record), system=system))
    return StepPart(TIMER_TOPIC, QUEUE, messages)


def as_message(waited: StoredMessage) -> Message:
    """What is delivered of a record that waited: the message with its id and times."""
    system = {name: text for name, text in waited.system.items() if name not in _OF_WAITING}
    system[PROPERTY_TIMER] = identity_of(waited)
    return Message(
        waited.body,
        tag=waited.tag,
        keys=waited.keys,
        sharding_key=waited.sharding_key,
        properties=waited.properties,
        content_type=waited.content_type,
        message_id=waited.message_id,
        born_time_ms=waited.born_time_ms,
        system=system,
        reconsume_times=waited.reconsume_times,
    )

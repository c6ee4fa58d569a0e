"""Delayed messages as their senders see them: list, look at, cancel, deliver now, move.

A recall handle names the place where a message first waited. If it waits there no more, the key
index of the log tells whether it waits elsewhere (moved, or rolled to spare old segments) or was
delivered: both keep the message's id and its identity. Cancelling races with delivery as everything
that ends the waiting does: by claiming (`timer_index`). Event loop only.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.delays.delay_delivery import DelayDelivery
from app.broker.delays.delayed_sends import DelayedSends
from app.broker.delays.scheduled_places import blurred, place_of, token_of
from app.broker.delays.timer_index import FOREVER_MS, NOTHING
from app.broker.delays.timer_records import due_of, identity_of, identity_text
from app.broker.journal.cold_reads import ColdReads
from app.broker.journal.send_future import Sends
from app.broker.topic_lookup import find_topic
from app.domain.delays import Due
from app.domain.errors import (
    AlreadyDelivered,
    MessageNotFound,
    TimersNotReady,
)
from app.domain.handles.recall import RecallHandle, RecallSigner, invalid_recall_handle
from app.domain.message import (
    PROPERTY_DUE,
    PROPERTY_GENERATION,
    PROPERTY_REAL_QUEUE,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER,
    StoredMessage,
)
from app.domain.names import TIMER_TOPIC
from app.store import Timer, TimerLogDamaged

NEWEST: Final = 64
"""Messages with one id that are looked at for the right one."""
READ_AT_ONCE: Final = 64
"""Records of a page."""


class ScheduledMessage(NamedTuple):
    """A message that waits. `message` is the record in the timer topic."""

    message: StoredMessage
    topic: str
    queue_id: int
    deliver_time_ms: int
    recall_handle: str


class ScheduledPage(NamedTuple):
    """Messages by due time; `next_page_token` is None at the end."""

    messages: list[ScheduledMessage]
    scanned: int
    """Waiting messages of the wanted topics that were looked at: those of others are not counted,
    as the caller may not know of them."""
    next_page_token: str | None


class DelayedMessages:
    """Delayed messages that wait for their time. One per broker."""

    def __init__(
        self, context: Context, delays: DelayDelivery, signer: RecallSigner, sends: Sends | None
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._delays = delays
        self._clock = context.clock
        self._limits = context.limits
        self._readers = context.readers
        self._signer = signer
        self.sends = DelayedSends(context, delays, signer, sends)

    @property
    def waiting_count(self) -> int:
        """Everything that waits for its time; at most one check behind."""
        return self._delays.timers.count

    async def page(
        self, topic: str, page_size: int, page_token: str | None = None
    ) -> ScheduledPage:
        """Delayed messages of a topic. Looks at `scheduled_scan_max` waiting ones at most."""
        find_topic(self._metadata, topic)
        return await self._page(lambda name: name == topic, page_size, page_token)

    async def page_of_all(
        self, wanted: Callable[[str], bool], page_size: int, page_token: str | None = None
    ) -> ScheduledPage:
        """The same for all topics whose names are `wanted`, in one look."""
        return await self._page(wanted, page_size, page_token)

    async def _page(
        self, wanted: Callable[[str], bool], page_size: int, page_token: str | None
    ) -> ScheduledPage:
        await self._be_up_to_date()
        behind = NOTHING if page_token is None else place_of(page_token)
        limit = self._limits.scheduled_scan_max
        with _damage_is_told():
            waiting = await self._delays.timers.page(behind, FOREVER_MS, limit)
        found: list[ScheduledMessage] = []
        async for timer, message in self._records(waiting):
            if message is None or not self._is_of(message, wanted):
                continue
            if len(found) == page_size:
                return ScheduledPage(found, page_size, token_of(behind))
            found.append(self._scheduled(message))
            behind = timer
        token = None if len(waiting) < limit else token_of(blurred(behind, waiting[-1]))
        return ScheduledPage(found, len(found), token)

    async def _records(
        self, waiting: Sequence[Timer]
    ) -> AsyncIterator[tuple[Timer, StoredMessage | None]]:
        """Each with its record, None for one that is damaged: many are read at once, as each read
        may have to wait for a thread."""
        at = 0
        while at < len(waiting):
            batch = waiting[at : at + READ_AT_ONCE]
            records = await self._delays.read_many(batch)
            for number, timer in enumerate(batch):
                if number and timer.offset not in records:
                    break  # more than one step takes
                yield timer, records.get(timer.offset)
                at += 1

    async def get(self, topic: str, handle: str) -> ScheduledMessage:
        """One message; `MessageNotFound`, or `AlreadyDelivered`."""
        recall = self._read_handle(topic, handle)
        await self._be_up_to_date()
        for timer in await self._places(recall):
            with _damage_is_told():
                is_waiting = await self._delays.timers.is_waiting(timer)
            if is_waiting:
                message = await self._delays.read(timer)
                if message is not None and self._is_for_present(message, topic):
                    return self._scheduled(message)
        raise await self._absence(recall)

    async def cancel(self, topic: str, handle: str) -> None:
        """Take a message back; errors as `get`. It will never be delivered."""
        recall = self._read_handle(topic, handle)
        timer = await self._claim(recall)
        message = await self._delays.read_claimed(timer)
        if message is not None and not self._is_for_present(message, topic):
            self._delays.timers.release([timer])
            raise await self._absence(recall)
        await self._delays.end({timer: topic}, [])

    async def deliver(self, topic: str, handle: str) -> None:
        """Deliver a message now; errors as `get`."""
        recall = self._read_handle(topic, handle)
        timer, _ = await self._claim_and_read(recall)
        await self._delays.deliver([timer])

    async def move(self, topic: str, handle: str, due: Due) -> ScheduledMessage:
        """Deliver a message at another time; errors as `get`. The handle stays."""
        due_ms = due.at(self._clock.now_ms(), self._limits)
        timer, message = await self._claim_and_read(self._read_handle(topic, handle))
        await self._delays.move(timer, message, due_ms)
        return self._scheduled(message, due_ms)

    async def preview_move(self, topic: str, handle: str, due: Due) -> ScheduledMessage:
        """The message as `move` would leave it; errors as `move`."""
        due_ms = due.at(self._clock.now_ms(), self._limits)
        waiting = await self.get(topic, handle)
        return self._scheduled(waiting.message, due_ms)

    # --- finding

    async def _claim(self, recall: RecallHandle) -> Timer:
        await self._be_up_to_date()
        # Twice: it may move on while this looks.
        for _ in range(2):
            for timer in await self._places(recall):
                with _damage_is_told():
                    is_claimed = await self._delays.timers.claim_waiting(timer)
                if is_claimed:
                    return timer
        raise await self._absence(recall)

    async def _claim_and_read(self, recall: RecallHandle) -> tuple[Timer, StoredMessage]:
        """One that is damaged, or for a topic that was deleted, is as good as gone."""
        timer = await self._claim(recall)
        message = await self._delays.read_claimed(timer)
        if message is None or not self._is_for_present(message, recall.topic):
            self._delays.timers.release([timer])
            raise await self._absence(recall)
        return timer, message

    def _is_of(self, message: StoredMessage, wanted: Callable[[str], bool]) -> bool:
        """Whether it waits for a topic that is there, and wanted."""
        topic = message.system.get(PROPERTY_REAL_TOPIC, "")
        return wanted(topic) and self._is_for_present(message, topic)

    def _is_for_present(self, message: StoredMessage, topic: str) -> bool:
        """Whether it waits for the topic that has this name now."""
        view = self._metadata.snapshot.topics.get(topic)
        return view is not None and _is_for(message, topic, view.generation)

    async def _places(self, recall: RecallHandle) -> list[Timer]:
        """Where the message may wait: where it began to, and where it was moved to last."""
        places = [Timer(recall.due_ms, recall.offset)]
        for message in await self._with_id(TIMER_TOPIC, recall):
            due_ms = due_of(message)
            if due_ms is not None:
                places.append(Timer(due_ms, message.queue_offset))
        return places

    async def _with_id(self, topic: str, recall: RecallHandle) -> Sequence[StoredMessage]:
        """Records of a topic that are the message, the newest first."""

        def find(wait_for_disk: bool) -> list[memoryview]:
            return self._store.find_by_key(
                topic, recall.message_id, max_messages=NEWEST, wait_for_disk=wait_for_disk
            )

        records = await ColdReads(self._readers).run(find)
        found = [self._store.decode(record) for record in reversed(records)]
        identity = identity_text(Timer(recall.due_ms, recall.offset))
        return [m for m in found if m.system.get(PROPERTY_TIMER) == identity]

    async def _absence(self, recall: RecallHandle) -> AlreadyDelivered | MessageNotFound:
        for message in await self._with_id(recall.topic, recall):
            return AlreadyDelivered(
                f"message {recall.message_id!r} is in queue {message.queue_id} already",
                fields={"queue_id": message.queue_id, "queue_offset": message.queue_offset},
            )
        return MessageNotFound(
            f"message {recall.message_id!r} waits no more",
            hint="it was cancelled, or delivered so long ago that it is past retention",
        )

    async def _be_up_to_date(self) -> None:
        timers = self._delays.timers
        if timers.are_late:
            raise _not_ready()
        await timers.catch_up()

    # --- translating

    def _read_handle(self, topic: str, handle: str) -> RecallHandle:
        find_topic(self._metadata, topic)
        recall = self._signer.read(handle)
        if recall.topic != topic:
            raise invalid_recall_handle()
        return recall

    def _scheduled(self, message: StoredMessage, due_ms: int | None = None) -> ScheduledMessage:
        system = message.system
        topic = system[PROPERTY_REAL_TOPIC]
        first = place_of(identity_of(message))
        handle = RecallHandle(topic, first.offset, first.due_ms, message.message_id)
        return ScheduledMessage(
            message,
            topic,
            int(system[PROPERTY_REAL_QUEUE]),
            int(system[PROPERTY_DUE]) if due_ms is None else due_ms,
            self._signer.issue(handle),
        )


def _is_for(waiting: StoredMessage, topic: str, generation: int) -> bool:
    """Whether a message waits for this generation of a topic; none is named by early versions."""
    system = waiting.system
    if system.get(PROPERTY_REAL_TOPIC) != topic:
        return False
    return int(system.get(PROPERTY_GENERATION, 0)) in (0, generation)


@contextmanager
def _damage_is_told() -> Iterator[None]:
    """A damaged timer log is being made again: ask later."""
    try:
        yield
    except TimerLogDamaged as error:
        raise _not_ready() from error


def _not_ready() -> TimersNotReady:
    return TimersNotReady(
        "the delayed messages are being read from the log",
        hint="ask again later; what is due will be delivered",
        retry_after_s=5,
    )

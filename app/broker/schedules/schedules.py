"""Schedules at work: claiming due times, and sending their messages exactly once.

A few seconds before a due time a node claims it in the database (one node wins), appends the
message as a delayed one, so that it comes in time, and reports it as done. After a crash between
the claim and the report it looks in its log whether the message is there, by its id, which names
schedule and due time. So each due time is fired once, by the node that claimed it; if that node
never comes back, this one due time is lost and the following ones are fired by others.

Due times that have passed by more than a minute, because no node was up or the database was away,
are missed: the first of them is fired once for all, or they are skipped, as the schedule says.
Event loop only.
"""

import logging
from collections.abc import Callable
from itertools import islice
from typing import Final

from app.broker.context import Context
from app.broker.delays.delay_delivery import DelayDelivery
from app.broker.journal.append_future import AppendFuture
from app.broker.journal.cold_reads import ColdReads
from app.broker.ports import Topic
from app.broker.produce.message_types import check_type
from app.broker.produce.topic_admission import check_writable
from app.broker.row_faults import RowFaults, is_of_message
from app.broker.schedules.cron import due_times, next_due_ms
from app.broker.topic_lookup import find_topic, queue_of_key_here
from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_notes import TraceKind
from app.domain.access.actions import Action, Kind
from app.domain.changes.conditions import Changed, Terms
from app.domain.changes.merging import Named, by_name
from app.domain.errors import CurlewError, IllegalSetting, NoPermission, TopicNotFound
from app.domain.message import check_message
from app.domain.names import TIMER_TOPIC, check_name
from app.domain.positions import FlushMode
from app.domain.schedules import Firing, Missed, Schedule, ScheduleSettings
from app.runtime.service import Service

_LOG: Final = logging.getLogger(__name__)

AHEAD_MS: Final = 5_000
"""How long before a due time it is claimed; what is changed later comes too late for it."""

MISSED_MS: Final = 60_000
"""A due time that has passed by more is missed."""

CLAIMS_MAX: Final = 100
"""Due times that one turn claims."""

CLIENT_PREFIX: Final = "schedule:"
"""Before a schedule's name: the client id of the sender in traces."""

SHOWN: Final = 5
"""Due times that are shown of a schedule."""


class Schedules:
    """The schedules of a cluster, as one node fires them. `start` before use."""

    def __init__(
        self, context: Context, delays: DelayDelivery, message_trace: MessageTrace
    ) -> None:
        self._trace = message_trace
        self._store = context.store
        self._metadata = context.metadata
        self._delays = delays
        self._clock = context.clock
        self._limits = context.limits
        self._readers = context.readers
        self._node_id = context.store.store_id.hex()
        self._claimed: list[Firing] | None = None
        """Claimed and not reported; None: to be read from the database."""
        self._passed_over = 0
        """Due times that the last turn left: of other shards, or that cannot be fired."""
        self.faults = RowFaults("firing")
        """Schedules that cannot be fired, by name."""
        self.service = Service("schedules", context.config.schedule_check_seconds, self.turn)

    async def start(self) -> None:
        """Begin to fire."""
        await self.service.start()

    async def stop(self) -> None:
        """Fire no more."""
        await self.service.stop()

    # --- control plane

    async def change(
        self,
        name: str,
        named: Named,
        terms: Terms | None = None,
        *,
        owner: str | None = None,
        check: Callable[[Schedule | None], None] = lambda _present: None,
    ) -> Changed[Schedule]:
        """Make a schedule, or merge what is named into it. Raises what a send of its message would,
        `IllegalSetting`, `ScheduleNotFound` when it must exist, and `PreconditionFailed`.

        `check` is given what is there, and raises what keeps it as it is; `owner` is the principal
        by whose rights it is fired from now on.
        """
        check_name("schedule", name)
        return await self._metadata.schedules.change(
            name, named, self._due_of, terms, owner=owner, check=check
        )

    async def put(self, name: str, settings: ScheduleSettings) -> tuple[Schedule, bool]:
        """Make a schedule, or give it all these settings; True: made. Raises as `change`."""
        changed = await self.change(name, by_name(settings))
        return changed.after, changed.is_made

    def _due_of(self, settings: ScheduleSettings) -> int | None:
        """When settings are due next from now on, or what is wrong with them."""
        topic = find_topic(self._metadata, settings.topic)
        message = settings.message()
        check_message(message, self._limits)
        check_type(topic, message, is_delayed=True)
        due_ms = next_due_ms(settings.cron, settings.timezone, self._clock.now_ms())
        return None if settings.paused else due_ms

    def shown_due_times(self, schedule: Schedule) -> list[int]:
        """The next few."""
        if schedule.next_due_ms is None:
            return []
        settings = schedule.settings
        try:
            times = due_times(settings.cron, settings.timezone, schedule.next_due_ms)
        except IllegalSetting:  # its time zone was taken out of the database of zones
            return [schedule.next_due_ms]
        return [schedule.next_due_ms, *islice(times, SHOWN - 1)]

    # --- firing

    async def turn(self) -> None:
        """Claim what is due soon and send it. The service's turn."""
        try:
            if self._claimed is None:
                self._claimed = list(await self._metadata.schedules.firings(self._node_id))
            await self._claim()
            await self._fire()
        except CurlewError as error:
            self._claimed = None
            _LOG.warning("schedules wait: %s", error.detail)

    async def _claim(self) -> None:
        assert self._claimed is not None
        now_ms = self._clock.now_ms()
        book = self._metadata.schedules
        # What is left is due longest, and must not hide the others.
        due = await book.due(now_ms + AHEAD_MS, CLAIMS_MAX + self._passed_over)
        self._passed_over = 0
        for schedule in due:
            settings, due_ms = schedule.settings, schedule.next_due_ms
            assert due_ms is not None
            if self._is_elsewhere(settings):
                self._passed_over += 1
                continue  # the node that has its queue claims it
            is_missed = now_ms - due_ms > MISSED_MS
            after_ms = now_ms if is_missed else due_ms
            try:
                following = next_due_ms(settings.cron, settings.timezone, after_ms)
            except Exception as error:  # noqa: BLE001 - one schedule must not stop the others
                self.faults.note(schedule.name, error)
                self._passed_over += 1
                continue
            is_skipped = is_missed and settings.missed is Missed.SKIP
            firing = await book.move_on(schedule, following, None if is_skipped else self._node_id)
            if firing is not None:
                self._claimed.append(firing)

    async def _fire(self) -> None:
        """Send what is claimed. One that cannot be sent stays claimed and is tried again."""
        assert self._claimed is not None
        for firing in list(self._claimed):
            try:
                if self._is_permitted(firing) and not await self._is_sent(firing):
                    await self._send(firing)
            except Exception as error:
                if not (is_of_message(error) or isinstance(error, (TopicNotFound, NoPermission))):
                    raise
                self.faults.note(firing.schedule, error)
                continue
            await self._metadata.schedules.done(firing)
            self._claimed.remove(firing)
            self.faults.clear(firing.schedule)

    def _is_elsewhere(self, settings: ScheduleSettings) -> bool:
        """Whether what it sends now goes to another node's shard."""
        topic = self._metadata.snapshot.topics.get(settings.topic)
        if topic is None:
            return False
        if settings.sharding_key is None:
            return not topic.is_open_here
        return topic.shard_of(topic.queue_of_key(settings.sharding_key)) is not None

    def _is_permitted(self, firing: Firing) -> bool:
        """Whether its owner may still send there. Else this due time is passed over."""
        topic = firing.settings.topic
        if self._metadata.caller(firing.owner).may(Action.PUB, Kind.TOPIC, topic):
            return True
        _LOG.warning(
            "schedule %s is not fired: its owner %s may not send to topic %s any more",
            *(firing.schedule, firing.owner, topic),
        )
        return False

    async def _is_sent(self, firing: Firing) -> bool:
        def find(wait_for_disk: bool) -> bool:
            return any(
                self._store.find_by_key(
                    topic, firing.message_id, max_messages=1, wait_for_disk=wait_for_disk
                )
                for topic in (TIMER_TOPIC, firing.settings.topic)
            )

        return await ColdReads(self._readers).run(find)

    async def _send(self, firing: Firing) -> None:
        settings = firing.settings
        topic = self._metadata.snapshot.topics.get(settings.topic)
        if topic is None:
            self._check_deleted(firing)
            return
        check_writable(topic)
        queue_id = _queue_of(topic, settings, firing.due_ms)
        if queue_id is None:
            raise TopicNotFound(f"topic {topic.name!r} has its queue in another shard by now")
        message = settings.message(firing.message_id)
        part = self._delays.part(message, topic.name, queue_id, firing.due_ms, topic.generation)
        confirmation = AppendFuture()
        began_s = self._clock.monotonic_s()
        (appended,) = self._store.append_step((part,), FlushMode.SYNC, confirmation.done)
        await confirmation.wait()
        self._trace.sent_delayed(
            TraceKind.SENT,
            topic.name,
            (appended.first_queue_offset, 1),
            appended.store_time_ms,
            self._clock.monotonic_s() - began_s,
            (f"{CLIENT_PREFIX}{firing.schedule}", None, None),
        )

    def _check_deleted(self, firing: Firing) -> None:
        """Raise `TopicNotFound` when its topic is merely missing, as with an older database."""
        topic = firing.settings.topic
        if not self._store.is_gone(topic, 0):
            raise TopicNotFound(
                f"topic {topic!r} is not in the metadata database, and was not deleted here",
                hint="make it again with PUT, or restore the database that belongs to this store",
            )
        _LOG.warning("schedule %s: topic %s was deleted", firing.schedule, topic)


def _queue_of(topic: Topic, settings: ScheduleSettings, due_ms: int) -> int | None:
    """The queue of this node's shard that a due time is for, which was claimed here: that of its
    key, though it has moved since. None: this shard has none."""
    if (key := settings.sharding_key) is not None:
        return queue_of_key_here(topic, key)
    here = topic.writable_here
    return here[due_ms // 60_000 % len(here)] if here else None

"""Why a message is not delivered to a group, or what became of it: one answer, with what to do.

Reads the group's progress, leases, retries and dead letters and, where those say no more than
"done", the message's trace. Event loop only.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.delays.delay_delivery import DelayDelivery
from app.broker.failures.dead_letter_admin import DeadLetters, Selection
from app.broker.groups.consumption import Consumptions
from app.broker.groups.groups import Groups
from app.broker.insight.lag import check_known_group
from app.broker.journal.cold_reads import ColdReads
from app.broker.leasing.leases import LeaseState
from app.broker.leasing.subscriptions import LeasedQueue, Subscription
from app.broker.ports import Group
from app.broker.progress.progress_entries import ParkedMessage
from app.broker.retries_and_dead_letters import Origin, origin_of
from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_notes import TraceKind
from app.domain.consumers.consumption import Consumption
from app.domain.handles.receipt import RETRY_QUEUE_ID
from app.domain.limits import MIB
from app.domain.message import StoredMessage
from app.domain.names import retry_topic
from app.domain.settings import GroupMode

_RETRIES_READ: Final = 4_096
"""Waiting retries that are looked through for the message."""


class DeliveryState(StrEnum):
    """Where a message stands in a group."""

    READY = "ready"
    IN_FLIGHT = "in_flight"
    RETRYING = "retrying"
    DELAYED = "delayed"
    ACKED = "acked"
    DEAD = "dead"
    DONE = "done"
    NOT_BEGUN = "not_begun"
    EXPIRED = "expired"
    CLIENTS_KNOW = "clients_know"


class DeliveryStatus(NamedTuple):
    """The answer. `reason` is a sentence; `hint` says what to do, where something can be done."""

    standing: DeliveryState
    reason: str
    hint: str | None = None
    ahead: int | None = None
    """Messages of its queue that are ready before it."""
    attempt: int | None = None
    until_ms: int | None = None
    """When its lease, or its wait for the next attempt, ends."""


class DeliveryStatusReader:
    """Answers for all groups. One per broker."""

    def __init__(
        self,
        context: Context,
        groups: Groups,
        consumptions: Consumptions,
        delays: DelayDelivery,
        dead_letters: DeadLetters,
        message_trace: MessageTrace,
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._clock = context.clock
        self._groups = groups
        self._consumer_journal = groups.consumer_journal
        self._consumptions = consumptions
        self._delays = delays
        self._dead_letters = dead_letters
        self._message_trace = message_trace
        self._readers = context.readers

    async def look(self, message: StoredMessage, group: str) -> DeliveryStatus:
        """Where `message` stands in the group. Raises `GroupNotFound`."""
        check_known_group(self._metadata, group)
        settings = self._metadata.snapshot.groups[group]
        origin = origin_of(message)
        if settings.mode is GroupMode.BROADCAST:
            return DeliveryStatus(
                DeliveryState.CLIENTS_KNOW,
                "the group is in broadcast mode: each client keeps its own offsets",
            )
        state = self._consumer_journal.find((group, origin.topic, origin.queue_id))
        if state is None and self._is_read_by_offset(group, origin.topic):
            return DeliveryStatus(
                DeliveryState.NOT_BEGUN,
                f"the group has committed nothing in queue {origin.queue_id} of {origin.topic!r}",
                f"the member that owns the queue begins at {settings.start!r}, and commits",
            )
        if state is None:
            return DeliveryStatus(
                DeliveryState.NOT_BEGUN,
                f"the group has never received from queue {origin.queue_id} of {origin.topic!r}",
                f"it begins with its first receive, at {settings.start!r}",
            )
        if state.progress.is_acked(origin.queue_offset):
            return await self._after(origin, group)
        low = self._store.bounds(origin.topic, origin.queue_id).min_offset
        if origin.queue_offset < low:
            return DeliveryStatus(DeliveryState.EXPIRED, "it is past the topic's retention")
        parked = state.parked.get(origin.queue_offset)
        if parked is not None:
            return _parked(parked, group)
        if self._is_read_by_offset(group, origin.topic):
            return _before_commit(origin, group, max(state.progress.committed, low))
        subscription = self._groups.find(group, origin.topic)
        queue = subscription.find(origin.queue_id) if subscription else None
        return self._before(origin, settings, subscription, queue)

    def _is_read_by_offset(self, group: str, topic: str) -> bool:
        """Whether members read and commit, and nobody receives."""
        return self._consumptions.state(group, topic).consumption is Consumption.ASSIGNED

    def _before(
        self,
        origin: Origin,
        group: Group,
        subscription: Subscription | None,
        queue: LeasedQueue | None,
    ) -> DeliveryStatus:
        """It is not done, and was not handed on."""
        if subscription is None or queue is None:
            return DeliveryStatus(
                DeliveryState.READY,
                "nobody has received for the group since the node started",
                "start a consumer: POST …/messages:receive",
            )
        now_s = self._clock.monotonic_s()
        queue.leases.expire(now_s)
        held = queue.leases.state_of(origin.queue_offset)
        if held is not None and held.state is not LeaseState.RETURNED:
            return self._held(held.state, held.attempt, held.until_s)
        ahead = 0 if held else max(origin.queue_offset - queue.fetch_offset, 0)
        if group.paused:
            return DeliveryStatus(
                DeliveryState.READY,
                "the group is paused: nothing is handed out",
                f"let it go on: POST /v1/groups/{group.name}:resume",
                ahead,
            )
        if queue.order is not None and held is None and origin.queue_offset < queue.fetch_offset:
            return DeliveryStatus(
                DeliveryState.READY,
                "it waits for its turn: an earlier message of its sharding key is not done",
                "settle that one",
                ahead,
            )
        if subscription.in_flight.count >= group.max_in_flight:
            return DeliveryStatus(
                DeliveryState.READY,
                f"the group holds {subscription.in_flight.count} messages, as many as it may",
                "settle some, or raise max_in_flight of the group",
                ahead,
            )
        if subscription.line.is_empty:
            return DeliveryStatus(
                DeliveryState.READY,
                "it can be received, and no receive is waiting now",
                "is a consumer of the group running?",
                ahead,
            )
        return DeliveryStatus(
            DeliveryState.READY, "it is among the next to be received", None, ahead
        )

    def _held(self, state: LeaseState, attempt: int, until_s: float | None) -> DeliveryStatus:
        until_ms = None
        if until_s is not None:
            left_s = until_s - self._clock.monotonic_s()
            until_ms = self._clock.now_ms() + max(round(left_s * 1_000), 0)
        if state is LeaseState.LEASED:
            return DeliveryStatus(
                DeliveryState.IN_FLIGHT,
                "a consumer holds it",
                "it comes again when the lease ends without an ack",
                attempt=attempt,
                until_ms=until_ms,
            )
        if state is LeaseState.DELAYED:
            return DeliveryStatus(
                DeliveryState.DELAYED,
                "a delivery failed; it waits for the next",
                attempt=attempt,
                until_ms=until_ms,
            )
        return DeliveryStatus(
            DeliveryState.RETRYING,
            "a delivery has just failed; its retry is being written",
            None,
            0,
            attempt,
        )

    # --- after its original was done

    async def _after(self, origin: Origin, group: str) -> DeliveryStatus:
        """The original is done for the group: acked, left out, or handed on as a copy."""
        dead = await self._dead_letters.browse(
            group, Selection(message_ids=frozenset({origin.message_id})), max_letters=1
        )
        if dead.letters:
            letter = dead.letters[0]
            return DeliveryStatus(
                DeliveryState.DEAD,
                letter.reason or "it was given up",
                f"redrive it: POST /v1/groups/{group}/dlq/messages:redrive",
                attempt=letter.attempts,
            )
        retry = await self._waiting_retry(origin, group)
        if retry is not None:
            return retry
        return await self._by_its_trail(origin, group, all_letters_seen=dead.next_offset is None)

    async def _waiting_retry(self, origin: Origin, group: str) -> DeliveryStatus | None:
        """Look for its copy among the retries that are not done."""
        topic = retry_topic(group, origin.topic)
        state = self._consumer_journal.find((group, origin.topic, RETRY_QUEUE_ID))
        low, high = self._store.bounds(topic, 0)
        at = low if state is None else max(low, state.progress.committed)
        end = min(high, at + _RETRIES_READ)
        while at < end:
            start = at
            read = await ColdReads(self._readers).run(
                lambda wait, start=start: self._store.read(  # type: ignore[misc]  # a default
                    topic,
                    0,
                    start,
                    max_messages=_RETRIES_READ,
                    max_bytes=4 * MIB,
                    end_offset=end,
                    wait_for_disk=wait,
                )
            )
            for offset, record in zip(read.queue_offsets, read.records, strict=True):
                copy = self._store.decode(record)
                is_open = state is None or not state.progress.is_acked(offset)
                if is_open and origin_of(copy).message_id == origin.message_id:
                    if state is not None and offset in state.parked:
                        return _parked(state.parked[offset], group)
                    return self._of_retry(origin, group, offset, copy.reconsume_times + 1)
            at = max(read.next_offset, at + 1)
        return None

    def _of_retry(self, origin: Origin, group: str, offset: int, attempt: int) -> DeliveryStatus:
        subscription = self._groups.find(group, origin.topic)
        held = subscription.retry.leases.state_of(offset) if subscription else None
        if held is not None and held.state is not LeaseState.RETURNED:
            return self._held(held.state, held.attempt, held.until_s)
        if self._is_read_by_offset(group, origin.topic):
            return DeliveryStatus(
                DeliveryState.RETRYING,
                "a delivery failed, and the group has changed to members, which read no retries",
                "it is delivered when the group receives again, with force=true",
                attempt=attempt,
            )
        return DeliveryStatus(
            DeliveryState.RETRYING,
            "a delivery failed; the next one is ready to be received",
            None
            if subscription and not subscription.line.is_empty
            else "no receive is waiting now",
            attempt=attempt,
        )

    async def _by_its_trail(
        self, origin: Origin, group: str, *, all_letters_seen: bool
    ) -> DeliveryStatus:
        trail = await self._message_trace.trail(
            origin.topic, origin.queue_id, origin.queue_offset, group=group
        )
        last = trail.events[-1] if trail.events else None
        if last is not None and last.kind is TraceKind.ACKED:
            return DeliveryStatus(DeliveryState.ACKED, f"it was acked at {last.at_ms}")
        if last is not None and last.kind is TraceKind.DEAD_LETTERED and not all_letters_seen:
            return DeliveryStatus(
                DeliveryState.DEAD,
                last.detail or "it was given up",
                f"look for it: GET /v1/groups/{group}/dlq/messages",
                attempt=last.attempt,
            )
        await self._delays.catch_up()
        failed = last is not None and last.kind in (TraceKind.NACKED, TraceKind.EXPIRED)
        if last is not None and failed:
            waiting = self._delays.retry_count(group, origin.topic)
            if waiting:
                return DeliveryStatus(
                    DeliveryState.DELAYED,
                    last.detail or "a delivery failed; it waits for the next",
                    attempt=last.attempt,
                )
        return DeliveryStatus(
            DeliveryState.DONE,
            "it is done for the group: acked, left out by its filter, skipped by a commit or a "
            "reset, or before the offset where the group began",
            f"see its trail: GET /v1/topics/{origin.topic}/messages/{origin.message_id}/trace",
        )


def _before_commit(origin: Origin, group: str, first: int) -> DeliveryStatus:
    """Its group reads by offset; all below `first` is done or gone."""
    queue = f"queue {origin.queue_id} of {origin.topic!r}"
    return DeliveryStatus(
        DeliveryState.READY,
        f"the group reads by offset, and has committed {first} in {queue}",
        f"it is done when the queue's reader commits {origin.queue_offset + 1}; "
        f"who that is: GET /v1/groups/{group}/members",
        max(origin.queue_offset - first, 0),
    )


def _parked(message: ParkedMessage, group: str) -> DeliveryStatus:
    return DeliveryStatus(
        DeliveryState.DELAYED,
        f"it is parked, and blocks its key: {message.reason}",
        f"release it: POST /v1/groups/{group}/parked:release",
        attempt=message.attempts,
    )

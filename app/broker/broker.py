"""The broker's facade: what send, pull, receive and settle mean, without HTTP, SQL or OS calls.

Made by `node`, used by `api` and `web`. Every call runs on the event loop. After `stop`, every call
raises `ShuttingDown`; requests that wait then are answered at once, with nothing.

`principal` says who asks. Nothing looks at it until there is authentication.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from app.broker.assembly import BrokerAssembly
from app.broker.config import BrokerConfig
from app.broker.groups.offset_admin import Committer, refuse_broadcast
from app.broker.journal.cold_reads import ColdReads
from app.broker.leasing.subscriptions import Subscription
from app.broker.ports import Group, Metadata, Store, Topic
from app.broker.results import (
    ANONYMOUS,
    AckedAndSent,
    BatchItem,
    Committed,
    Delivery,
    Extend,
    FrameResult,
    Nack,
    Principal,
    PullRequest,
    PullResult,
    QueuePosition,
    QueueRange,
    ReceiveRequest,
    ReceiveResult,
    Send,
    SendResult,
    SettleAction,
    SettleResult,
)
from app.broker.settings_changes import SettingsChanges
from app.broker.streams.stream_registry import StreamRegistry
from app.broker.topic_lookup import find_topic
from app.domain.changes.merging import by_name
from app.domain.changes.terms import Terms
from app.domain.clock import Clock
from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.delays import Due
from app.domain.errors import (
    CurlewError,
    GroupNotFound,
    IllegalInvisibleTime,
    MessageNotFound,
)
from app.domain.limits import Limits
from app.domain.message import Message, StoredMessage
from app.domain.positions import FlushMode
from app.domain.settings import GroupSettings, TopicSettings


class Broker(BrokerAssembly):
    """The messaging semantics of one node. `start` before use, `stop` once at the end."""

    def __init__(
        self,
        store: Store,
        metadata: Metadata,
        clock: Clock,
        limits: Limits,
        config: BrokerConfig,
    ) -> None:
        super().__init__(store, metadata, clock, limits, config)
        self.streams = StreamRegistry(
            store,
            metadata,
            clock,
            limits,
            waiters=self._waiters,
            puller=self._puller,
            groups=self._groups,
            receive=self.receive,
            begin=self._lease_from,
        )
        self.settings_changes = SettingsChanges(
            store,
            metadata,
            groups=self._groups,
            book=self._book,
            members=self.members,
            waiters=self._waiters,
            lifecycle=self.lifecycle,
            limits=limits,
        )

    # --- sending

    async def send(
        self,
        topic: str,
        message: Message,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        due: Due | None = None,
        principal: Principal = ANONYMOUS,
    ) -> SendResult:
        """Store one message, or with `due` deliver it later. Errors carry `outcome`."""
        if self._closed_because:
            raise self._refusal_of_send()
        return await self._sender.send(topic, message, queue_id, flush, due)

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[BatchItem | CurlewError],
        *,
        queue_id: int | None = None,
        spread: bool = False,
        strict: bool = False,
        flush: FlushMode | None = None,
        principal: Principal = ANONYMOUS,
    ) -> list[SendResult | CurlewError]:
        """Store many; one result per entry, in order. An entry that is an error stays one.

        Messages without sharding key go to one queue together, unless `spread`. With `strict`
        all are stored or nothing is: they are one step.
        """
        if self._closed_because:
            raise self._refusal_of_send()
        return await self._sender.send_batch(
            topic, messages, queue_id=queue_id, spread=spread, strict=strict, flush=flush
        )

    async def send_frame(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        principal: Principal = ANONYMOUS,
    ) -> FrameResult:
        """Store a batch frame in one piece, in one queue."""
        if self._closed_because:
            raise self._refusal_of_send()
        return await self._sender.send_frame(topic, body, queue_id, flush)

    # --- pulling

    async def pull(
        self,
        topic: str,
        queue_id: int,
        request: PullRequest,
        *,
        principal: Principal = ANONYMOUS,
    ) -> PullResult:
        """Read from an offset. Nothing is leased."""
        self._check_open()
        return await self._puller.pull(topic, queue_id, request)

    @property
    def store_id(self) -> bytes:
        """Whoever decodes records elsewhere needs it for the ids of messages that have no own."""
        return self._store.store_id

    def decode(self, record: memoryview) -> StoredMessage:
        """A record of a `PullResult` as a message."""
        return self._store.decode(record)

    async def message(
        self, topic: str, message_id: str, *, principal: Principal = ANONYMOUS
    ) -> StoredMessage:
        """One message by its id, or `MessageNotFound`."""
        self._check_open()
        find_topic(self._metadata, topic)
        message = await ColdReads(self._readers).run(
            lambda wait: self._store.read_message(message_id, topic=topic, wait_for_disk=wait)
        )
        if message is None or message.topic != topic:
            raise MessageNotFound(
                f"topic {topic!r} has no message {message_id!r}",
                hint="it may be past the topic's retention",
            )
        return message

    # --- receiving

    async def receive(
        self,
        topic: str,
        group: str,
        request: ReceiveRequest,
        *,
        gone: Callable[[], bool],
        principal: Principal = ANONYMOUS,
    ) -> ReceiveResult:
        """Lease messages to a consumer. `gone` says whether the client has hung up."""
        self._check_open()
        view = find_topic(self._metadata, topic)
        self._receiver.check(request)
        settings = await self._groups.find_or_create_group(group)
        subscription, effects = await self._lease_from(settings, view, force=request.force)
        result = await self._receiver.receive(subscription, settings, request, gone)
        return result._replace(effects=effects) if effects else result

    async def _lease_from(
        self, group: Group, topic: Topic, *, force: bool = False
    ) -> tuple[Subscription, Sequence[ConsumptionEffect]]:
        """The subscription to lease from, and what `force` has ended for it. Raises
        `BroadcastGroup` or `ConsumptionConflict`."""
        refuse_broadcast(group)
        subscription = self._groups.find(group.name, topic.name)
        if subscription is not None and subscription.is_leasing:
            subscription = await self._groups.subscribe(group, topic)
            if subscription.is_leasing:
                return subscription, ()
        return await self.consumptions.lease(group, topic, force=force)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """The client went away before the answer was written: others may have the messages."""
        for delivery in deliveries:
            handle = self._signer.read(delivery.receipt_handle)
            subscription = self._groups.find(handle.group, handle.topic)
            queue = subscription.find(handle.queue_id) if subscription is not None else None
            if subscription is not None and queue is not None:
                self._receiver.give_back(
                    subscription, [(queue, handle.queue_offset, handle.lease_id)]
                )

    async def settle(
        self,
        topic: str,
        group: str,
        *,
        acks: Sequence[str] = (),
        nacks: Sequence[Nack] = (),
        extends: Sequence[Extend] = (),
        dead_letters: Sequence[Nack] = (),
        principal: Principal = ANONYMOUS,
    ) -> list[SettleResult]:
        """Settle handles: one result each, in the order acks, nacks, extends, dead letters."""
        self._check_open()
        view = find_topic(self._metadata, topic)
        settings = self._find_group(group)
        subscription = self._groups.find_or_stand_in(group, topic)
        results = await self._settler.settle(
            subscription, settings, view.flush, acks, nacks, extends, dead_letters
        )
        self.streams.note(results)
        return results

    async def ack_and_send(
        self,
        topic: str,
        group: str,
        acks: Sequence[str],
        sends: Sequence[Send],
        *,
        principal: Principal = ANONYMOUS,
    ) -> AckedAndSent:
        """Ack handles and store messages as one step: all of it or, with any bad entry, nothing.

        Errors that are raised carry `outcome`.
        """
        if self._closed_because:
            raise self._refusal_of_send()
        view = find_topic(self._metadata, topic)
        self._find_group(group)
        subscription = self._groups.find_or_stand_in(group, topic)
        done = await self._acks_and_sends.carry_out(subscription, view.flush, acks, sends)
        if done.refused is None:
            self.streams.note(done.acks)
        return done

    async def settle_one(
        self,
        handle: str,
        action: SettleAction,
        *,
        delay_ms: int | None = None,
        invisible_ms: int | None = None,
        reason: str | None = None,
        principal: Principal = ANONYMOUS,
    ) -> SettleResult:
        """Settle one handle, whose topic and group it names itself. Raises its error."""
        self._check_open()
        named = self._signer.read(handle)
        if action == "ack":
            results = await self.settle(named.topic, named.group, acks=(handle,))
        elif action == "nack":
            nack = Nack(handle, delay_ms, reason)
            results = await self.settle(named.topic, named.group, nacks=(nack,))
        elif action == "dead_letter":
            letter = Nack(handle, None, reason)
            results = await self.settle(named.topic, named.group, dead_letters=(letter,))
        elif invisible_ms is None:
            raise IllegalInvisibleTime("extending needs an invisible time")
        else:
            extend = Extend(handle, invisible_ms)
            results = await self.settle(named.topic, named.group, extends=(extend,))
        if results[0].error is not None:
            raise results[0].error
        return results[0]

    def _find_group(self, name: str) -> Group:
        settings = self._metadata.snapshot.groups.get(name)
        if settings is None:
            raise GroupNotFound(
                f"consumer group {name!r} does not exist",
                hint="a group is made by its first receive",
            )
        return settings

    # --- offsets

    async def offsets(
        self,
        topic: str,
        at: Literal["earliest", "latest"] | int,
        *,
        principal: Principal = ANONYMOUS,
    ) -> list[QueuePosition]:
        """An offset for each queue: the first, the end, or the first stored at or after a time."""
        self._check_open()
        view = find_topic(self._metadata, topic)
        bounds = [self._store.bounds(topic, queue_id) for queue_id in range(view.queues)]
        offsets = await self._groups.offsets_at(topic, bounds, at)
        return [QueuePosition(queue_id, offset) for queue_id, offset in enumerate(offsets)]

    def queue_bounds(self, topic: str) -> list[QueueRange]:
        """Readable offsets of each queue."""
        view = find_topic(self._metadata, topic)
        bounds = self._store.bounds
        return [QueueRange(queue_id, *bounds(topic, queue_id)) for queue_id in range(view.queues)]

    def committed_offsets(
        self, group: str, topic: str, *, principal: Principal = ANONYMOUS
    ) -> list[QueuePosition]:
        """The group's committed offsets, for the queues that have one."""
        find_topic(self._metadata, topic)
        return self._groups.committed(group, topic)

    async def commit_offsets(
        self,
        group: str,
        topic: str,
        rows: Sequence[QueuePosition],
        *,
        force: bool = False,
        take_over: bool = False,
        committer: Committer | None = None,
        principal: Principal = ANONYMOUS,
    ) -> Committed:
        """Commit forward; with `force` set them, backwards too, as a reset does.

        A commit by whoever reads by offset: `ConsumptionConflict` in a group that leases the topic,
        unless `take_over` ends its leases.
        """
        self._check_open()
        effects = await self.group_positions.commit(
            group, topic, rows, committer=committer, force=force, take_over=take_over
        )
        return Committed(self._groups.committed(group, topic), effects)

    # --- topics and groups

    async def put_topic(self, name: str, settings: TopicSettings) -> tuple[Topic, bool]:
        """Make a topic, or give it all these settings; True: made."""
        change = await self.settings_changes.change_topic(name, by_name(settings), Terms())
        return change.after, change.is_made

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages, for ever."""
        await self.settings_changes.delete_topic(name, Terms())

    async def put_group(self, name: str, settings: GroupSettings) -> tuple[Group, bool]:
        """Make a group, or give it all these settings; True: made.

        But whether it is paused: that is `flow`'s affair.
        """
        named = {k: value for k, value in by_name(settings).items() if k != "paused"}
        change = await self.settings_changes.change_group(name, named, Terms())
        return change.after, change.is_made

    async def delete_group(self, name: str) -> None:
        """Delete a group with its offsets and leases."""
        await self.settings_changes.delete_group(name, Terms())

"""The broker's facade: what send, pull, receive and settle mean, without HTTP, SQL or OS calls.

Made by `node`, used by `api` and `web`. Every call runs on the event loop. After `stop`, every call
raises `ShuttingDown`; requests that wait then are answered at once, with nothing.

`principal` says who asks. Nothing looks at it until there is authentication.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal

from app.broker.browsing import Browser
from app.broker.config import BrokerConfig
from app.broker.dead_letters import DeadLetters
from app.broker.delays import Delays
from app.broker.group_flow import GroupFlow
from app.broker.group_positions import Committer, GroupPositions, refuse_broadcast
from app.broker.groups import Groups
from app.broker.members import Members
from app.broker.offset_book import OffsetBook
from app.broker.operations import Operations
from app.broker.parking import Parking
from app.broker.ports import Group, Metadata, Store, StoreStatus, Topic
from app.broker.producers import Producers
from app.broker.progress_journal import ProgressJournal
from app.broker.pulling import Puller
from app.broker.reading import DiskAccess
from app.broker.receiving import Receiver
from app.broker.replaying import Replayer
from app.broker.requests import Requests
from app.broker.results import (
    ANONYMOUS,
    BatchItem,
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
    SendResult,
    SettleAction,
    SettleResult,
)
from app.broker.retrying import Retrier
from app.broker.scheduled import Scheduled
from app.broker.schedules import Schedules
from app.broker.sending import Sender
from app.broker.settling import Settler
from app.broker.streams import Streams
from app.broker.subscriptions import LeaseIds
from app.broker.taking import Taker
from app.broker.topic_positions import TopicPositions
from app.broker.topics import find_topic
from app.broker.trails import Trails
from app.broker.transactions import Transactions
from app.broker.waiters import Waiters
from app.domain.clock import Clock
from app.domain.delays import Due
from app.domain.errors import (
    CurlewError,
    GroupNotFound,
    IllegalInvisibleTime,
    MessageNotFound,
    Quota,
    ShuttingDown,
)
from app.domain.limits import Limits
from app.domain.message import Message, StoredMessage
from app.domain.positions import FlushMode
from app.domain.receipt import ReceiptSigner
from app.domain.settings import GroupSettings, TopicSettings
from app.runtime.service import Service

_LOG: Final = logging.getLogger(__name__)

RECEIPT_KEY_NAME: Final = "receipt-handles"
"""Under this name the metadata keeps the key that signs receipt handles."""


class Broker:
    """The messaging semantics of one node. `start` before use, `stop` once at the end."""

    def __init__(
        self,
        store: Store,
        metadata: Metadata,
        clock: Clock,
        limits: Limits,
        config: BrokerConfig,
    ) -> None:
        self.limits = limits
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._config = config
        self._waiters = Waiters(limits.waiters_max)
        self._readers = ThreadPoolExecutor(config.reader_threads, "broker-reader")
        self._book = OffsetBook(metadata)
        self.progress = ProgressJournal(store, self._readers)
        self._lease_ids = LeaseIds(clock.now_ms())
        self.delays = Delays(store, metadata, clock, config, self._readers)
        self.scheduled = Scheduled(store, metadata, self.delays, clock, limits, self._readers)
        self.schedules = Schedules(
            store, metadata, self.delays, clock, limits, config, self._readers
        )
        self._sender = Sender(store, metadata, limits, config, self.scheduled.sends)
        self._puller = Puller(store, metadata, clock, limits, self._waiters, self._readers)
        self.browser = Browser(store, metadata, limits, self._readers, self._check_open)
        self.producers = Producers(
            store,
            clock,
            limits,
            sender=self._sender,
            delayed=self.scheduled.sends,
            readers=self._readers,
            check_open=self._check_open_for_sends,
        )
        self.requests = Requests(store, clock, limits, self._sender, self._check_open_for_sends)
        self.positions = TopicPositions(store, metadata, limits, self._waiters)
        self._groups = Groups(
            store,
            metadata,
            readers=self._readers,
            lease_ids=self._lease_ids,
            book=self._book,
            progress=self.progress,
        )
        self.flow = GroupFlow(metadata, self._groups)
        self.streams = Streams(
            store,
            metadata,
            clock,
            limits,
            waiters=self._waiters,
            puller=self._puller,
            groups=self._groups,
            receive=self.receive,
        )
        self._make_journaled(store, metadata, clock, limits)
        self.members = Members(metadata, clock, limits, groups=self._groups)
        self.group_positions = GroupPositions(
            store, metadata, groups=self._groups, book=self._book, members=self.members
        )
        self._services = self._make_services(config)
        self._closed_because = "the broker has not started"
        """Empty while the broker works."""

    def _make_journaled(
        self, store: Store, metadata: Metadata, clock: Clock, limits: Limits
    ) -> None:
        """The parts whose state lies in system topics and who need no other part."""
        self.operations = Operations(clock, limits)
        self.trails = Trails(store, metadata, clock, limits, self._readers)
        self.dead_letters = DeadLetters(store, metadata, limits, self.operations, self._readers)
        self.transactions = Transactions(
            store,
            metadata,
            clock,
            limits,
            waiters=self._waiters,
            readers=self._readers,
            check_open=self._check_open,
            place=self._sender.place,
        )

    def _make_services(self, config: BrokerConfig) -> tuple[Service, ...]:
        self._offset_writer = Service(
            "offset-writer", config.offset_flush_seconds, self._book.write
        )
        self._lease_watch = Service("lease-watch", config.lease_check_seconds, self.expire_leases)
        return (
            self._offset_writer,
            self._lease_watch,
            Service("member-watch", config.member_check_seconds, self.members.turn),
            Service("trace", config.trace_write_seconds, self.trails.turn),
            Service("journal-snapshots", config.snapshot_check_seconds, self._write_snapshots),
            Service("transaction-checks", config.transaction_check_seconds, self.transactions.turn),
        )

    async def start(self) -> None:
        """Load what the metadata knows and take up work. Raises `MetadataUnavailable`."""
        if not self._closed_because:
            return
        self._equip(ReceiptSigner(await self._metadata.secret(RECEIPT_KEY_NAME)))
        await self.scheduled.start()
        await self._book.load()
        await self.progress.load(self._book, self._metadata.snapshot)
        await self.dead_letters.start()
        await self.transactions.start()
        self._store.on_arrival = self._waiters.on_arrival
        await self.producers.start()
        await self.delays.start()
        await self.schedules.start()
        for service in self._services:
            await service.start()
        self._closed_because = ""

    def _equip(self, signer: ReceiptSigner) -> None:
        """Make the parts that need the cluster's key."""
        self._signer = signer
        taker = Taker(
            self._store,
            self._clock,
            self.limits,
            signer=signer,
            lease_ids=self._lease_ids,
            book=self._book,
            groups=self._groups,
        )
        self._receiver = Receiver(
            self._store,
            self._metadata,
            self._clock,
            self.limits,
            self._config,
            waiters=self._waiters,
            readers=self._readers,
            groups=self._groups,
            taker=taker,
            replayer=Replayer(self._store, self._clock, signer),
            progress=self.progress,
        )
        self.retries = Retrier(
            self._store,
            self._metadata,
            self._clock,
            readers=self._readers,
            book=self._book,
            progress=self.progress,
            delays=self.delays,
        )
        self.parking = Parking(self._metadata, self._groups, self.progress, self.retries)
        self._settler = Settler(
            self._clock,
            self.limits,
            signer=signer,
            lease_ids=self._lease_ids,
            book=self._book,
            groups=self._groups,
            progress=self.progress,
            retrier=self.retries,
        )

    async def stop(self) -> None:
        """Answer who waits, refuse new work, write the offsets. A stopped broker stays stopped."""
        if self._closed_because:
            return
        self._closed_because = "the node is shutting down"
        self._waiters.close()
        self.requests.close()
        self.streams.close()
        self.members.bells.close()
        await self.operations.stop()
        await self.schedules.stop()
        await self.delays.stop()
        last_s = self._config.last_write_seconds
        await asyncio.gather(*[service.stop(last_s) for service in self._services])
        try:
            async with asyncio.timeout(last_s):
                await self._book.write()
        except TimeoutError:
            self._book.problem = "committed offsets cannot be written: the database is too slow"
        await self.trails.turn()
        if self._book.problem is not None:
            _LOG.warning("%s; the log has them", self._book.problem)
        self._readers.shutdown(wait=False)

    def readiness(self) -> list[str]:
        """Why this node should get no requests; empty when it should."""
        reasons = [self._closed_because] if self._closed_because else []
        failed = self._store.status().failed
        if failed is not None:
            reasons.append(f"the store takes no writes: {failed}")
        return reasons

    def degraded(self) -> list[str]:
        """What an operator should look at although requests are served."""
        return [self._book.problem] if self._book.problem is not None else []

    def store_status(self) -> StoreStatus:
        """A look at the store, for metrics."""
        return self._store.status()

    @property
    def waiting_count(self) -> int:
        """Requests that wait for messages or replies now."""
        return self._waiters.count + self.members.bells.count + self.requests.waiting_count

    @property
    def waiting_quota(self) -> Quota:
        """How many more requests may wait for messages."""
        return self._waiters.quota

    def _check_open(self) -> None:
        if self._closed_because:
            raise ShuttingDown(
                self._closed_because, hint="ask another node, or again later", retry_after_s=1
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

        Messages without sharding key go to one queue together, unless `spread`. With `strict` and
        an invalid entry nothing is stored.
        """
        if self._closed_because:
            raise self._refusal_of_send()
        return await self._sender.send_batch(
            topic, messages, queue_id=queue_id, spread=spread, strict=strict, flush=flush
        )

    async def send_frame(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int | None = None,
        flush: FlushMode | None = None,
        principal: Principal = ANONYMOUS,
    ) -> FrameResult:
        """Store a batch frame in one piece, in one queue."""
        if self._closed_because:
            raise self._refusal_of_send()
        return await self._sender.send_frame(topic, body, queue_id, flush)

    def _check_open_for_sends(self) -> None:
        if self._closed_because:
            raise self._refusal_of_send()

    def _refusal_of_send(self) -> ShuttingDown:
        return ShuttingDown(
            self._closed_because,
            hint="send to another node, or again later",
            outcome="not_stored",
            retry_after_s=1,
        )

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
        message = await DiskAccess(self._readers).run(
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
        settings = await self._groups.find_or_create_group(group)
        refuse_broadcast(settings)
        subscription = await self._groups.subscribe(settings, view)
        return await self._receiver.receive(subscription, settings, request, gone)

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
        subscription = self._groups.find(group, topic)
        if subscription is None:  # handles from before a restart, or from elsewhere
            subscription = await self._groups.subscribe(settings, view)
        results = await self._settler.settle(
            subscription, settings, view.flush, acks, nacks, extends, dead_letters
        )
        self.streams.note(results)
        return results

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

    async def expire_leases(self) -> None:
        """Deal with leases that have ended, and wake parked receives. A service calls this."""
        for subscription in self._groups.expire(self._clock.monotonic_s()):
            await self.retries.watch(subscription)
            self._groups.tell_of_room(subscription.in_flight, subscription.group)
        self.streams.expire()

    async def _write_snapshots(self) -> None:
        await self.dead_letters.journal.turn()
        await self.transactions.journal.turn()
        await self.progress.turn()
        await self.producers.journal.turn()

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
        committer: Committer | None = None,
        principal: Principal = ANONYMOUS,
    ) -> list[QueuePosition]:
        """Commit forward (backward when forced); return what holds afterwards.

        What a consumer has leased below a committed offset counts as done.
        """
        self._check_open()
        await self.group_positions.commit(group, topic, rows, committer=committer, force=force)
        return self._groups.committed(group, topic)

    # --- topics and groups

    async def put_topic(
        self, name: str, settings: TopicSettings, *, if_version: int | None = None
    ) -> tuple[Topic, bool]:
        """Make or change a topic; True: made."""
        made = await self._metadata.put_topic(name, settings, if_version=if_version)
        self._waiters.wake_topic(name)
        await self.members.follow_topics()
        return made

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages, for ever."""
        await self._metadata.delete_topic(name)
        self._store.delete_topic(name)
        self._groups.forget(topic=name)
        self._waiters.wake_topic(name)
        self.streams.wake()
        await self.members.follow_topics()

    async def put_group(
        self, name: str, settings: GroupSettings, *, if_version: int | None = None
    ) -> tuple[Group, bool]:
        """Make or change a group; True: made. Its mode stays while it has members."""
        await self.members.check_mode(name, settings.mode)
        made = await self._metadata.put_group(name, settings, if_version=if_version)
        self._groups.wake_everybody(name)
        return made

    async def delete_group(self, name: str) -> None:
        """Delete a group with its offsets and leases."""
        await self._metadata.delete_group(name)
        self._groups.forget(group=name)
        self.streams.wake()
        self.members.forget(name)
        self.dead_letters.forget(name)

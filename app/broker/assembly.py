"""What a broker is made of, and how it starts and stops.

The order matters: what is read back first, who is told last. The calls of clients are in `broker`.
Event loop only.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from app.broker.config import BrokerConfig
from app.broker.consume.ack_and_produce import AckAndProduce
from app.broker.consume.lease_fetcher import LeaseFetcher
from app.broker.consume.receive_dedup import ReceiveDedup
from app.broker.consume.receiver import Receiver
from app.broker.consume.settler import Settler
from app.broker.dedup.deduplicator import Deduplicator
from app.broker.delays.delay_delivery import DelayDelivery
from app.broker.delays.delayed_messages import DelayedMessages
from app.broker.failures.blocked_keys import BlockedKeys
from app.broker.failures.dead_letters import DeadLetters
from app.broker.failures.retry_scheduler import RetryScheduler
from app.broker.groups.consumption import Consumptions
from app.broker.groups.group_pause import GroupPause
from app.broker.groups.groups import Groups
from app.broker.groups.members import Members
from app.broker.groups.offset_admin import OffsetAdmin
from app.broker.health import Health
from app.broker.insight.delivery_status import DeliveryStatusReader
from app.broker.insight.lag import LagReader
from app.broker.jobs import Jobs
from app.broker.leasing.consumer_journal import ConsumerJournal
from app.broker.leasing.receipt_cache import ReceiptCache
from app.broker.leasing.subscriptions import LeaseIds
from app.broker.lifecycle.lifecycle import Lifecycle
from app.broker.lifecycle.name_room import NameRoom
from app.broker.ports import Metadata, Store, StoreStatus
from app.broker.produce.request_reply import Requests
from app.broker.produce.sender import Sender
from app.broker.progress.offset_cache import OffsetCache
from app.broker.read.browser import Browser
from app.broker.read.long_polls import LongPolls
from app.broker.read.puller import Puller
from app.broker.read.topic_ends import TopicEnds
from app.broker.row_faults import RowFaults
from app.broker.schedules.schedules import Schedules
from app.broker.streams.stream_registry import StreamRegistry
from app.broker.tracing.message_trace import MessageTrace
from app.broker.transactions.transactions import Transactions
from app.domain.clock import Clock
from app.domain.errors import (
    Quota,
    ShuttingDown,
)
from app.domain.identity import Deletion, Kind
from app.domain.limits import Limits
from app.runtime.loop_lag import LoopLag
from app.runtime.service import Service

_LOG: Final = logging.getLogger(__name__)

RECEIPT_KEY_NAME: Final = "receipt-handles"
"""Under this name the metadata keeps the key that signs receipt handles."""


class BrokerAssembly:
    """The parts, from start to stop. `Broker` says what is done with them."""

    streams: StreamRegistry

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
        self._waiters = LongPolls(limits.waiters_max)
        self._readers = ThreadPoolExecutor(config.reader_threads, "broker-reader")
        self._book = OffsetCache(metadata)
        self._name_room = NameRoom(store, metadata, limits)
        self.lifecycle = Lifecycle(store, metadata, self._name_room, self._forget)
        self.progress = ConsumerJournal(store, self._readers)
        self._lease_ids = LeaseIds(clock.now_ms())
        self.delays = DelayDelivery(store, metadata, clock, config, self._readers)
        self.loop_lag = LoopLag()
        self.delays.service.on_wake = self.loop_lag.note  # it wakes up most often
        self.scheduled = DelayedMessages(store, metadata, self.delays, clock, limits, self._readers)
        self.schedules = Schedules(
            store, metadata, self.delays, clock, limits, config, self._readers
        )
        self._sender = Sender(store, metadata, limits, config, self.scheduled.sends, self.lifecycle)
        self._puller = Puller(store, metadata, clock, limits, self._waiters, self._readers)
        self.browser = Browser(store, metadata, limits, self._readers, self._check_open)
        self.producers = Deduplicator(
            store,
            clock,
            limits,
            sender=self._sender,
            delayed=self.scheduled.sends,
            readers=self._readers,
            check_open=self._check_open_for_sends,
        )
        self.requests = Requests(store, clock, limits, self._sender, self._check_open_for_sends)
        self.positions = TopicEnds(store, metadata, limits, self._waiters)
        self._groups = self._make_groups(store, metadata, config)
        self.flow = GroupPause(metadata, self._groups)
        self._make_journaled(store, metadata, clock, limits)
        self._make_parts_for_members()
        self._make_readers_of_groups()
        self._snapshot_faults = RowFaults("writing the state")
        self._services = self._make_services(config)
        self.health = Health(store, self._book, self.delays, lambda: self._closed_because)
        self.health.watch_rows(
            self._groups.faults,
            self._snapshot_faults,
            self.delays.faults,
            self.schedules.faults,
            self.transactions.faults,
            self.members.faults,
        )
        self.health.watch(*self._services, self.delays.service, self.schedules.service)
        self._closed_because = "the broker has not started"
        """Empty while the broker works."""

    def _make_groups(self, store: Store, metadata: Metadata, config: BrokerConfig) -> Groups:
        return Groups(
            store,
            metadata,
            readers=self._readers,
            lease_ids=self._lease_ids,
            book=self._book,
            progress=self.progress,
            lifecycle=self.lifecycle,
            name_room=self._name_room,
            limits=self.limits,
            auto_create=config.auto_create_groups,
        )

    def _make_journaled(
        self, store: Store, metadata: Metadata, clock: Clock, limits: Limits
    ) -> None:
        """The parts whose state lies in system topics and who need no other part."""
        self.operations = Jobs(clock, limits)
        self.trails = MessageTrace(store, metadata, clock, limits, self._readers)
        self.dead_letters = DeadLetters(
            store, metadata, limits, self.operations, self._readers, self.trails
        )
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

    def _make_parts_for_members(self) -> None:
        """The kinds of consumption, and the parts for groups that read by offset."""
        self.consumptions = Consumptions(
            self._store,
            self._metadata,
            self._clock,
            self.limits,
            groups=self._groups,
            progress=self.progress,
            delays=self.delays,
            assignments=lambda: self.members,
        )
        self.members = Members(
            self._metadata,
            self._clock,
            self.limits,
            groups=self._groups,
            consumptions=self.consumptions,
        )
        self.group_positions = OffsetAdmin(
            self._store,
            self._metadata,
            groups=self._groups,
            book=self._book,
            members=self.members,
            consumptions=self.consumptions,
        )

    def _make_readers_of_groups(self) -> None:
        """The parts that look at groups and change nothing."""
        self.lag = LagReader(
            self._store,
            self._metadata,
            self._clock,
            groups=self._groups,
            progress=self.progress,
            book=self._book,
            delays=self.delays,
            dead_letters=self.dead_letters,
            readers=self._readers,
        )
        self.whereabouts = DeliveryStatusReader(
            self._store,
            self._metadata,
            self._clock,
            groups=self._groups,
            progress=self.progress,
            consumptions=self.consumptions,
            delays=self.delays,
            dead_letters=self.dead_letters,
            trails=self.trails,
            readers=self._readers,
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
            Service("consumption-watch", config.member_check_seconds, self.consumptions.turn),
            Service("trace", config.trace_write_seconds, self.trails.turn),
            Service("journal-snapshots", config.snapshot_check_seconds, self._write_snapshots),
            Service("transaction-checks", config.transaction_check_seconds, self.transactions.turn),
        )

    async def start(self) -> None:
        """Load what the metadata knows and take up work. Raises `MetadataUnavailable`."""
        if not self._closed_because:
            return
        self._equip(ReceiptCache(await self._metadata.secret(RECEIPT_KEY_NAME)))
        await self.scheduled.start()
        await self.lifecycle.start()
        await self._book.load()
        await self.progress.load(self._book, self._metadata.snapshot)
        await self._book.write()
        await self.members.load()
        await self.dead_letters.start()
        await self.transactions.start()
        self._store.on_arrival = self._waiters.on_arrival
        await self.producers.start()
        await self.delays.start()
        await self.schedules.start()
        for service in self._services:
            await service.start()
        self._closed_because = ""

    def _equip(self, signer: ReceiptCache) -> None:
        """Make the parts that need the cluster's key."""
        self._signer = signer
        taker = LeaseFetcher(
            self._store,
            self._clock,
            self.limits,
            signer=signer,
            lease_ids=self._lease_ids,
            book=self._book,
            groups=self._groups,
            trails=self.trails,
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
            replayer=ReceiveDedup(self._store, self._clock, signer),
            progress=self.progress,
        )
        self.retries = RetryScheduler(
            self._store,
            self._metadata,
            self._clock,
            readers=self._readers,
            lease_ids=self._lease_ids,
            book=self._book,
            progress=self.progress,
            delays=self.delays,
            trails=self.trails,
        )
        self.parking = BlockedKeys(self._metadata, self._groups, self.progress, self.retries)
        self._settler = Settler(
            self._clock,
            self.limits,
            signer=signer,
            lease_ids=self._lease_ids,
            book=self._book,
            groups=self._groups,
            progress=self.progress,
            retrier=self.retries,
            trails=self.trails,
        )
        self._acks_and_sends = AckAndProduce(
            self._store,
            self._clock,
            settler=self._settler,
            sender=self._sender,
            delayed=self.scheduled.sends,
            groups=self._groups,
            lease_ids=self._lease_ids,
            book=self._book,
            progress=self.progress,
        )

    async def stop(self) -> None:
        """Answer who waits, refuse new work, write the offsets. A stopped broker stays stopped."""
        if self._closed_because:
            return
        self._closed_because = "the node is shutting down"
        self.health.is_stopped = True
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

    def _forget(self, deletion: Deletion) -> None:
        """A topic or group has ended in the store: so it does here, in this turn."""
        name = deletion.name
        if deletion.kind is Kind.TOPIC:
            self.producers.forget_topic(name, deletion.generation)
            self._groups.forget(topic=name)
            self._waiters.wake_topic(name)
        else:
            self._groups.forget(group=name)
            self.members.forget(name)
            self.dead_letters.forget(name)
        self.streams.wake()

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

    async def expire_leases(self) -> None:
        """Deal with leases that have ended, and wake parked receives. A service calls this.

        A subscription whose failed deliveries cannot be dealt with keeps no other from its turn.
        """
        groups = self._groups
        groups.follow_settings()
        for subscription in groups.expire(self._clock.monotonic_s()):
            with groups.faults.guard(subscription.row):
                await self.retries.watch(subscription)
            groups.tell_of_room(subscription.in_flight, subscription.group)
        self.streams.expire()

    async def _write_snapshots(self) -> None:
        journals = {
            "dead letters": self.dead_letters.journal.turn,
            "transactions": self.transactions.journal.turn,
            "groups": self.progress.turn,
            "producers": self.producers.journal.turn,
        }
        for name, turn in journals.items():
            with self._snapshot_faults.guard(name):
                await turn()

"""The broker of a node: its parts, and how they start and stop. No HTTP, SQL or OS calls.

Each part is named after its module, and says what its requests mean. The order matters: what is
read back first, who is told last. Event loop only.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Self

from app.broker.config import BrokerConfig
from app.broker.consume.ack_and_produce import AckAndProduce
from app.broker.consume.news import News
from app.broker.consume.receiver import Receiver
from app.broker.consume.settler import Settler
from app.broker.context import Context
from app.broker.dedup.dedup_journal import DedupJournal
from app.broker.dedup.deduplicator import Deduplicator
from app.broker.dedup.producers import Producers
from app.broker.delays.delay_delivery import DelayDelivery
from app.broker.delays.delayed_messages import DelayedMessages
from app.broker.delays.delayed_sends import DelayedSends
from app.broker.failures.blocked_keys import BlockedKeys
from app.broker.failures.dead_letter_admin import DeadLetters
from app.broker.failures.failed_deliveries import FailedDeliveries
from app.broker.figures.clients import Clients
from app.broker.figures.counters import STEP_S
from app.broker.figures.lost_answers import LostAnswers
from app.broker.groups.committed_offsets import CommittedOffsets
from app.broker.groups.consumption import Consumptions
from app.broker.groups.group_filters import GroupFilters
from app.broker.groups.group_pause import GroupPause
from app.broker.groups.groups import Groups
from app.broker.groups.held_deliveries import HeldDeliveries
from app.broker.health import Health
from app.broker.hooks.hooks import Hooks, NamedHook
from app.broker.insight.delivery_status import DeliveryStatusReader
from app.broker.insight.lag import LagReader
from app.broker.jobs import Jobs
from app.broker.journal.send_future import sends_of
from app.broker.leasing.consumer_journal import ConsumerJournal
from app.broker.leasing.epochs import Epochs
from app.broker.leasing.receipt_cache import ReceiptCache
from app.broker.lifecycle.lifecycle import Lifecycle
from app.broker.lifecycle.name_room import NameRoom
from app.broker.members.members import Members
from app.broker.members.queue_locks import QueueLocks
from app.broker.offsets.offset_admin import OffsetAdmin
from app.broker.offsets.offset_commits import OffsetCommits
from app.broker.polling.poller import Poller
from app.broker.ports import Metadata, Store
from app.broker.produce.request_reply import Requests
from app.broker.produce.sender import Sender
from app.broker.progress.offset_cache import OffsetCache
from app.broker.read.browser import Browser
from app.broker.read.far_reads import FarReads
from app.broker.read.long_polls import LongPolls
from app.broker.read.puller import Puller
from app.broker.read.topic_ends import TopicEnds
from app.broker.row_faults import RowFaults
from app.broker.schedules.schedules import Schedules
from app.broker.settings_changes import SettingsChanges
from app.broker.streams.stream_registry import StreamRegistry
from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_search import TraceSearch
from app.broker.transactions.transactions import Transactions
from app.broker.warm_parts import NOTHING_KEPT, KeptUp, WarmParts
from app.domain.access.audit import ForcedLog, forget_forced
from app.domain.clock import Clock, StepTimes
from app.domain.handles.recall import RecallSigner
from app.domain.identity import Deletion, Kind
from app.domain.limits import Limits
from app.domain.positions import TimestampMs
from app.runtime.loop_lag import LoopLag
from app.runtime.service import Service, within

_LOG: Final = logging.getLogger(__name__)

TOLD_SECONDS: Final = 0.2
"""A begin that takes so long has a line in the log."""

RECEIPT_KEY_NAME: Final = "receipt-handles"
"""Under this name the metadata keeps the key that signs receipt handles."""

RECALL_KEY_NAME: Final = "recall-handles"
"""Under this name the metadata keeps the key that signs recall handles."""


class HandleKeys(NamedTuple):
    """The cluster's keys, 32 bytes each: handles of one node are good on another."""

    receipts: bytes
    recalls: bytes


class Broker:
    """The messaging semantics of one node: the sum of its parts.

    `open` makes and starts one; `stop` ends it, once. Requests before and after raise
    `ShuttingDown`; those that wait when it stops are answered at once, with nothing.
    """

    def __init__(self, context: Context, keys: HandleKeys, kept: KeptUp = NOTHING_KEPT) -> None:
        limits, config = context.limits, context.config
        self.limits = limits
        self.store = context.store
        self.metadata = context.metadata
        self._clock = context.clock
        self.config = config
        self._gate = context.gate
        self.made_by_use = context.made_by_use
        self.statistics, self.hooks, self.lost = context.statistics, context.hooks, context.lost
        self.clients = Clients(context.metadata, context.clock, limits)
        self._readers = context.readers
        self.loop_lag = LoopLag()

        # State that several parts share.
        self.long_polls = long_polls = LongPolls(limits.waiters_max)
        self.offset_cache = OffsetCache(context.metadata)
        self.consumer_journal = ConsumerJournal(context, kept.progress)
        self.epochs = Epochs(context)
        name_room = NameRoom(context)
        self.lifecycle = Lifecycle(context, name_room, self._forget)
        self.message_trace = trace = MessageTrace(context)
        self.jobs = Jobs(context)
        offsets = CommittedOffsets(context, self.offset_cache, self.consumer_journal, name_room)
        self.groups = groups = Groups(context, offsets, self.lifecycle)

        # Sending and reading.
        self.delays = DelayDelivery(context, kept.timer_log)
        self.delays.service.on_wake = self.loop_lag.note  # it wakes up most often
        self.sends = sends = sends_of(context)
        recalls = RecallSigner(keys.recalls, context.store.store_id)
        self.delayed_messages = DelayedMessages(context, self.delays, recalls, sends)
        delayed = self.delayed_messages.sends
        self.schedules = Schedules(context, self.delays, trace)
        self.sender = Sender(context, delayed, self.lifecycle, sends)
        self.dedup_journal = dedup = DedupJournal(context, kept.producers)
        self.producers = Producers(context, dedup)
        self.deduplicator = Deduplicator(context, dedup, self.sender, delayed, sends)
        self.request_reply = Requests(context, self.sender)
        place = self.sender.place
        self.transactions = Transactions(context, long_polls, place, kept.transactions)
        self.puller = Puller(context, long_polls, FarReads.of(context.store))
        self.browser = Browser(context)
        self.topic_ends = TopicEnds(context, long_polls)

        # Groups: kinds of consumption, members, failures.
        self.consumptions = Consumptions(context, groups, self.delays, lambda: self.members)
        self.group_filters = GroupFilters(context, groups, self.clients, lambda: self.members)
        self.members = Members(context, groups, self.consumptions, self.group_filters)
        self.queue_locks = QueueLocks(context, self.members)
        self.held_deliveries = HeldDeliveries(context, groups)
        self.group_pause = GroupPause(context.metadata, groups)
        self.dead_letters = DeadLetters(context, self.jobs, trace)
        self.failed_deliveries = FailedDeliveries(context, groups, self.delays, trace)
        self.blocked_keys = BlockedKeys(context, groups, self.failed_deliveries)
        self.settings_changes = SettingsChanges(
            context, groups, self.members, long_polls, self.lifecycle
        )

        self._make_consumer_side(context, keys, delayed)

        # Looking on.
        self.lag = LagReader(context, groups, self.delays, self.dead_letters)
        self.delivery_status = DeliveryStatusReader(
            context, groups, self.consumptions, self.delays, self.dead_letters, trace
        )
        self.trace_search = TraceSearch(context, trace)
        self._snapshot_faults = RowFaults("writing the state")
        self.services = self._make_services(config)
        self.health = self._make_health(context)

    def _make_consumer_side(
        self, context: Context, keys: HandleKeys, delayed: DelayedSends
    ) -> None:
        """Offsets, receiving and settling."""
        long_polls, groups, trace = self.long_polls, self.groups, self.message_trace
        self.offset_admin = OffsetAdmin(context, groups, self.members, self.consumptions)
        self.offset_commits = OffsetCommits(
            context, groups, self.members, self.consumptions, self.offset_admin
        )
        signer = ReceiptCache(keys.receipts, context.store.store_id)
        filters = self.group_filters
        self.receiver = Receiver(
            context, long_polls, groups, self.consumptions, filters, signer, trace
        )
        self.news = News(context, long_polls, groups)
        releases = self.receiver.releases
        self.streams = StreamRegistry(context, long_polls, self.puller, groups, self.receiver)
        self.settler = Settler(
            context, groups, signer, self.failed_deliveries, trace, releases, self.streams.note
        )
        self.ack_and_produce = AckAndProduce(
            context, self.settler, self.sender, delayed, groups, self.streams.note
        )
        self.poller = Poller(
            *(context, long_polls, groups, self.members, self.consumptions, filters),
            *(self.receiver, self.settler, self.failed_deliveries),
        )

    @classmethod
    async def open(
        cls,
        store: Store,
        metadata: Metadata,
        clock: Clock,
        limits: Limits,
        config: BrokerConfig,
        hooks: Sequence[NamedHook] = (),
        *,
        epoch_floor: int = 0,
        lost: LostAnswers | None = None,
        forced: ForcedLog = forget_forced,
        warm: WarmParts | None = None,
    ) -> Self:
        """Make a broker and start it. Raises `MetadataUnavailable`.

        Its epoch is above `epoch_floor`, the newest that others know. `lost` outlives it. `forced`
        is the audit. `warm` was kept up over this store while the replica followed.
        """
        kept = NOTHING_KEPT
        if warm is not None:
            kept = warm.hand_over(asyncio.get_running_loop().call_soon_threadsafe)
        keys = HandleKeys(
            await metadata.secret(RECEIPT_KEY_NAME), await metadata.secret(RECALL_KEY_NAME)
        )
        readers = ThreadPoolExecutor(config.reader_threads, "broker-reader")
        context = Context(
            *(store, metadata, clock, limits, config, readers),
            hooks=Hooks(hooks),
            lost=lost or LostAnswers(),
            forced=forced,
        )
        broker = cls(context, keys, kept)
        try:
            await broker.start(epoch_floor)
        except BaseException:  # a term may end while it begins
            await asyncio.shield(asyncio.ensure_future(broker._give_up()))
            raise
        return broker

    def _make_services(self, config: BrokerConfig) -> tuple[Service, ...]:
        return (
            Service("offset-writer", config.offset_flush_seconds, self.offset_cache.write),
            Service("lease-watch", config.lease_check_seconds, self.expire_leases),
            Service("member-watch", config.member_check_seconds, self.members.turn),
            Service("poll-watch", config.member_check_seconds, self.poller.intervals.turn),
            Service("consumption-watch", config.member_check_seconds, self.consumptions.turn),
            Service("statistics", STEP_S, self.statistics.turn),
            Service("clients", STEP_S, self.clients.turn),
            Service("trace", config.trace_write_seconds, self.message_trace.turn),
            Service("journal-snapshots", config.snapshot_check_seconds, self._write_snapshots),
            Service(
                "transaction-checks",
                config.transaction_check_seconds,
                self.transactions.checks.turn,
            ),
        )

    def _make_health(self, context: Context) -> Health:
        health = Health(context, self.offset_cache, self.delays)
        health.watch_rows(
            self.groups.faults,
            self._snapshot_faults,
            self.delays.faults,
            self.schedules.faults,
            self.transactions.checks.faults,
            self.members.faults,
        )
        health.watch(*self.services, self.delays.service, self.schedules.service)
        return health

    async def start(self, epoch_floor: int = 0) -> None:
        """Load what the metadata and the log know, and take up work. Raises
        `MetadataUnavailable`. A broker that works stays as it is."""
        if not self._gate.closed_because:
            return
        times = StepTimes(self._clock.monotonic_s)
        self.metadata.on_deletions = self.lifecycle.hear_of
        await self.lifecycle.start()
        times.end("names")
        await self._start_progress(epoch_floor, times)
        await self.members.load()
        await self.dead_letters.start()
        times.end("members and dead letters")
        await self.transactions.start()
        times.end("transactions")
        self.store.on_arrival = self.long_polls.on_arrival
        await self.dedup_journal.start()
        times.end("producers")
        await self.delays.start()
        await self.schedules.start()
        for service in self.services:
            await service.start()
        self.lifecycle.open()
        self._gate.closed_because = ""
        times.end("services")
        level = logging.INFO if times.total_s >= TOLD_SECONDS else logging.DEBUG
        _LOG.log(level, "the begin of the broker took %s", times)

    async def _start_progress(self, epoch_floor: int, times: StepTimes) -> None:
        """Read back how far the groups are, and begin an epoch, above all leases of before.

        What SQL has counts once: in a log without epochs, of a version that kept offsets there.
        """
        await self.epochs.load()
        copy = await self.offset_cache.read_copy()
        times.end("copy of offsets")
        early = {} if self.epochs.is_known else copy
        await self.consumer_journal.load(self.metadata.snapshot, early)
        times.end("progress")
        self.offset_cache.begin(self.consumer_journal.committed(), copy)
        await self.offset_cache.write()
        times.end("offsets")
        await self.epochs.begin(self.groups.lease_ids, epoch_floor)
        times.end("epoch")
        await self.held_deliveries.take_up()
        times.end("open deliveries")

    async def stop(self) -> None:
        """Answer who waits, refuse new work, write the offsets. A stopped broker stays stopped:
        asked again, it ends at once what the first stop waits for, or has waited for."""
        if self._gate.closed_because:
            await self._cut_off()
            return
        self._gate.closed_because = "the node is shutting down"
        self.health.is_stopped = True
        self.long_polls.close()
        self.request_reply.close()
        self.streams.close()
        self.hooks.close()
        self.members.notifier.close()
        await self.jobs.stop()
        await self.schedules.stop()
        await self.delays.stop()
        last_s = self.config.last_write_seconds
        await asyncio.gather(*[service.stop(last_s) for service in self.services])
        offsets = self.offset_cache
        try:
            await within(last_s, offsets.write())
        except TimeoutError:
            offsets.problem = "committed offsets cannot be written: the database is too slow"
        await self.message_trace.turn()
        if offsets.problem is not None:
            _LOG.warning("%s; the log has them", offsets.problem)
        self._readers.shutdown(wait=False)

    async def _cut_off(self) -> None:
        await self.jobs.cut_off()
        own = (self.schedules.service, self.delays.service, *self.services)
        await asyncio.gather(*[service.stop(0) for service in own])
        self._readers.shutdown(wait=False)

    async def _give_up(self) -> None:
        """End what a start that was cut off has begun; nobody uses the store behind it."""
        for service in (self.schedules.service, self.delays.service, *self.services):
            await service.stop()
        await asyncio.to_thread(self.end_reads)

    def end_reads(self) -> None:
        """Wait until no thread reads or mends the store's files. Behind `stop`; blocks, so not the
        event loop. A request that was cut off leaves its read under way."""
        self._readers.shutdown(wait=True)

    def _forget(self, deletion: Deletion) -> None:
        """A topic or group has ended in the store: so it does here, in this turn."""
        name = deletion.name
        if deletion.kind is Kind.TOPIC:
            self.dedup_journal.forget_topic(name, deletion.generation)
            self.statistics.forget_topic(name)
            self.clients.forget_topic(name)
            self.groups.forget(topic=name)
            self.long_polls.wake_topic(name)
        else:
            self.groups.forget(group=name)
            self.statistics.forget_group(name)
            self.clients.forget_group(name)
            self.members.forget(name)
            self.poller.forget(name)
            self.dead_letters.forget(name)
        self.streams.wake()

    @property
    def waiting_count(self) -> int:
        """Requests that wait for messages or replies now."""
        return (
            self.long_polls.count + self.members.notifier.count + self.request_reply.waiting_count
        )

    def store_now_ms(self) -> TimestampMs:
        """The wall clock by which messages are stored."""
        return self._clock.now_ms()

    async def expire_leases(self) -> None:
        """Deal with leases that have ended, and wake parked receives. A service calls this.

        A subscription whose failed deliveries cannot be dealt with keeps no other from its turn.
        """
        groups = self.groups
        groups.follow_settings()
        for subscription in await groups.expire(self._clock.monotonic_s()):
            with groups.faults.guard(subscription.row):
                await self.failed_deliveries.watch(subscription)
            groups.tell_of_room(subscription.in_flight, subscription.group)
        self.streams.expire()

    async def _write_snapshots(self) -> None:
        journals = {
            "dead letters": self.dead_letters.journal.turn,
            "transactions": self.transactions.journal.turn,
            "groups": self.consumer_journal.turn,
            "producers": self.dedup_journal.journal.turn,
            "epochs": self.epochs.journal.turn,
        }
        for name, turn in journals.items():
            with self._snapshot_faults.guard(name):
                await turn()

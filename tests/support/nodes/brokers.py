"""A broker on a store and metadata in memory, on a clock that stands still."""

import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from msgspec import structs

from app.broker import Broker, BrokerConfig
from app.broker.broker import HandleKeys
from app.broker.context import Context
from app.broker.ports import Group, Topic
from app.broker.results import (
    Delivery,
    Nack,
    PullRequest,
    PullResult,
    QueuePosition,
    ReceiveRequest,
    SendResult,
)
from app.domain.changes.conditions import Terms
from app.domain.changes.merging import by_name
from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.domain.settings import CustomizedRetry, GroupSettings, TopicSettings
from tests.support.metadata.memory_metadata import MemoryMetadata
from tests.support.stores.clock import FakeClock
from tests.support.stores.memory_store import MemoryStore

KEYS = HandleKeys(b"receipts".ljust(32), b"recalls".ljust(32))
TOPIC = "orders"
GROUP = "billing"
IDLE = BrokerConfig(
    offset_flush_seconds=3600,
    lease_check_seconds=3600,
    snapshot_check_seconds=3600,
    transaction_check_seconds=3600,
    delay_check_seconds=3600,
    schedule_check_seconds=3600,
    trace_write_seconds=3600,
    member_check_seconds=3600,
)
"""Services do nothing by themselves; a test runs their turns."""


LONG_AWAY_MS = 1 << 62


def never_gone() -> bool:
    return False


@dataclass
class World:
    """A broker and everything around it."""

    clock: FakeClock = field(default_factory=FakeClock)
    limits: Limits = field(default_factory=Limits)
    config: BrokerConfig = IDLE
    is_away_long: bool = True
    """A start finds that the leases of before have all ended, wherever the clock stands."""

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        self.metadata = MemoryMetadata(self.clock)
        self.broker = self.new_broker()

    def new_broker(self) -> Broker:
        """As after a restart: the same store and metadata, nothing else kept."""
        readers = ThreadPoolExecutor(self.config.reader_threads, "broker-reader")
        context = Context(self.store, self.metadata, self.clock, self.limits, self.config, readers)
        broker = Broker(context, KEYS)
        if self.is_away_long:
            broker.consumer_journal.open._now_ms = LONG_AWAY_MS
        return broker

    async def restart(self) -> None:
        await self.broker.stop()
        self.broker = self.new_broker()
        await self.broker.start()

    async def kill(self) -> None:
        """As after kill -9: what was confirmed is in the log, and SQL has heard of nothing more."""
        self.metadata.is_down = True
        await self.broker.stop()
        self.metadata.is_down = False
        self.clock.advance(ms=1)
        self.broker = self.new_broker()
        await self.broker.start()

    async def retry_at_once(self) -> None:
        """A failed delivery is repeated without a pause."""
        await self.group(GroupSettings(retry_policy=CustomizedRetry((0,))))

    async def lapse(self, *, s: float = 0, ms: int = 0) -> None:
        """Let time pass, and the services have their turns."""
        self.clock.advance(s=s, ms=ms)
        await self.broker.expire_leases()
        await self.broker.delays.turn()

    async def topic(self, queues: int = 1, name: str = TOPIC) -> None:
        await self.metadata.put_topic(name, TopicSettings(queues=queues, flush=FlushMode.ASYNC))

    async def group(self, settings: GroupSettings, name: str = GROUP) -> None:
        await self.metadata.put_group(name, settings)

    async def send(
        self, *bodies: bytes, queue_id: int = 0, tag: str | None = None
    ) -> list[SendResult]:
        return [
            await self.broker.sender.send(TOPIC, Message(body, tag=tag), queue_id=queue_id)
            for body in bodies
        ]

    async def pull(
        self, offset: int | None = 0, *, queue_id: int = 0, **more: object
    ) -> PullResult:
        request = dataclasses.replace(PullRequest(offset=offset), **more)  # type: ignore[arg-type]
        return await self.broker.puller.pull(TOPIC, queue_id, request)

    async def receive(
        self,
        max_messages: int = 10,
        *,
        group: str = GROUP,
        topic: str = TOPIC,
        gone: Callable[[], bool] = never_gone,
        **more: object,
    ) -> list[Delivery]:
        request = structs.replace(ReceiveRequest(max_messages=max_messages), **more)
        return (await self.broker.receiver.receive(topic, group, request, gone=gone)).deliveries

    async def ack(self, *deliveries: Delivery, group: str = GROUP) -> list[type | None]:
        """The class of each error, None where there is none."""
        handles = [delivery.receipt_handle for delivery in deliveries]
        results = await self.broker.settler.settle(TOPIC, group, acks=handles)
        return [type(result.error) if result.error else None for result in results]

    async def nack(self, *deliveries: Delivery, delay_ms: int = 0) -> None:
        nacks = [Nack(delivery.receipt_handle, delay_ms) for delivery in deliveries]
        results = await self.broker.settler.settle(TOPIC, GROUP, nacks=nacks)
        assert [result.error for result in results] == [None] * len(deliveries)

    async def commit(
        self, offset: int, *, queue_id: int = 0, force: bool = False, take_over: bool = False
    ) -> Sequence[ConsumptionEffect]:
        """What the commit has ended."""
        rows = [QueuePosition(queue_id, offset)]
        committed = await self.broker.offset_commits.commit(
            GROUP, TOPIC, rows, force=force, take_over=take_over
        )
        return committed.effects

    def committed(self, group: str = GROUP) -> dict[int, int]:
        return dict(self.broker.groups.offsets.committed(group, TOPIC))

    @property
    def waiting(self) -> int:
        """Parked requests."""
        return self.broker.waiting_count


async def put_topic(broker: Broker, name: str, settings: TopicSettings) -> Topic:
    """Make a topic, or give it all these settings."""
    changes = broker.settings_changes
    return (await changes.change_topic(name, by_name(settings), Terms())).after


async def put_group(broker: Broker, name: str, settings: GroupSettings) -> Group:
    """Make a group, or give it all these settings."""
    changes = broker.settings_changes
    return (await changes.change_group(name, by_name(settings), Terms())).after


@asynccontextmanager
async def running(
    queues: int = 1, limits: Limits | None = None, config: BrokerConfig = IDLE
) -> AsyncIterator[World]:
    """A started broker with a topic of `queues` queues."""
    world = World(limits=limits or Limits(), config=config)
    await world.topic(queues)
    await world.broker.start()
    try:
        yield world
    finally:
        await world.broker.stop()


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [delivery.message.body for delivery in deliveries]


def offsets(deliveries: Sequence[Delivery]) -> list[int]:
    return [delivery.message.queue_offset for delivery in deliveries]

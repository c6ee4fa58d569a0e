"""A broker whose store has a gate, and its messages over HTTP: a test says what is confirmed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from app.api.admission import Admission
from app.api.dataplane.routes import build_router
from app.api.gateway import Gateway
from app.api.http.request_context import AsgiApp
from app.api.telemetry.metrics import Sources
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.broker.figures.lost_answers import LostAnswers
from app.broker.results import PullRequest
from app.domain.limits import Limits
from app.domain.positions import FlushMode, ReplicationMode
from app.domain.settings import GroupSettings, TopicSettings
from app.store import MessageStore, StoreConfig
from tests.support.clients.asgi import Answer, call
from tests.support.exposition import render_metrics
from tests.support.metadata.memory_metadata import MemoryMetadata
from tests.support.nodes.brokers import GROUP, IDLE, TOPIC
from tests.support.stores.clock import FakeClock
from tests.support.stores.held_back import HoldingGate
from tests.support.stores.simulated_files import SimulatedFiles

EARLY: Final = "early"
"""A topic whose sends are answered when the leader has them; `TOPIC` says nothing of it."""

BEGUN: Final = "begun"
"""A topic of one message."""

CONFIG = StoreConfig(
    segment_bytes=1 << 20, record_bytes_max=1 << 16, index_slots=64, index_entries=512
)


@dataclass
class Leader:
    """A broker that leads, the gate of its store, and the HTTP before it."""

    broker: Broker
    store: MessageStore
    metadata: MemoryMetadata
    gate: HoldingGate
    files: SimulatedFiles
    lost: LostAnswers
    app: AsgiApp

    async def post(
        self,
        path: str,
        body: bytes,
        headers: Sequence[tuple[bytes, bytes]] = (),
        query: bytes = b"",
    ) -> Answer:
        return await call(self.app, "POST", path, body, headers=headers, query=query)

    async def bodies(self, topic: str = TOPIC) -> list[bytes]:
        """Of the messages that anybody can read."""
        found = await self.broker.puller.pull(topic, 0, PullRequest(offset=0))
        return [bytes(self.store.decode(record).body) for record in found.read.records]

    def metrics(self) -> str:
        return render_metrics(Sources(self.broker, self.metadata, RequestMetrics(), None, 0))

    def confirm(self) -> None:
        """Everything, from now on too."""
        self.gate.is_open = True
        self.gate.confirm_all()


@asynccontextmanager
async def leading(*, replication_wait_ms: int = 60_000) -> AsyncIterator[Leader]:
    """Nothing is confirmed but what the broker's start has written, and one message behind it: the
    start waits for no confirmation, so it is over when that is confirmed."""
    clock, gate, files = FakeClock(), HoldingGate(), SimulatedFiles()
    limits, lost = Limits(replication_wait_ms=replication_wait_ms), LostAnswers()
    gate.is_open = True
    store = MessageStore.open(files, CONFIG, clock, asyncio.get_running_loop(), gate=gate)
    metadata = MemoryMetadata(clock)
    plain = TopicSettings(queues=1, flush=FlushMode.ASYNC)
    early = TopicSettings(queues=1, flush=FlushMode.ASYNC, replication=ReplicationMode.ASYNC)
    await metadata.put_topic(TOPIC, plain)
    await metadata.put_topic(EARLY, early)
    await metadata.put_topic(BEGUN, plain)
    await metadata.put_group(GROUP, GroupSettings(start="earliest"))
    broker = await Broker.open(store, metadata, clock, limits, IDLE, lost=lost)

    async def nothing(*_: object) -> None:
        raise AssertionError("no path of the control plane")

    router = build_router(broker, limits)
    app = Gateway(router, nothing, Admission(header_block_bytes_max=9_999, local_only=True))
    leader = Leader(broker, store, metadata, gate, files, lost, app)
    first = await leader.post(f"/v1/topics/{BEGUN}/messages", b"")
    assert first.status == 201, first.body
    gate.is_open = False
    try:
        yield leader
    finally:
        leader.confirm()
        await broker.stop()
        store.close()

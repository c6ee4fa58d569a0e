"""Small stores for tests: tiny segments, so that rolling and many files come soon."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.domain.errors import CurlewError
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import (
    Answer,
    Appended,
    Done,
    FileSystem,
    Gate,
    MessageStore,
    StepPart,
    StoreConfig,
    paths,
)
from app.store.formats.frame.batch_frame import parse_request
from app.store.read.lookups import read_record
from app.store.write.worker import WriterThread
from tests.support.clients.frames import request_frame
from tests.support.stores.clock import FakeClock
from tests.support.stores.fast_paths import switched
from tests.support.stores.turns import ManualTurns, inline

SMALL = StoreConfig(
    segment_bytes=4096,
    queue_file_units=16,
    record_bytes_max=2048,
    index_slots=64,
    index_entries=512,
)


@dataclass
class OpenStore:
    """A store on manual turns, and what its callers were told."""

    files: FileSystem
    store: MessageStore
    turns: ManualTurns
    clock: FakeClock
    outcomes: list[CurlewError | None] = field(default_factory=list)

    def append(
        self,
        body: bytes,
        *,
        queue_id: int = 0,
        flush: FlushMode = FlushMode.SYNC,
        topic: str = "orders",
        tag: str | None = None,
    ) -> Appended:
        """Append without waiting for the outcome."""
        return self.append_all(
            [Message(body, tag=tag)], queue_id=queue_id, flush=flush, topic=topic
        )

    def append_all(
        self,
        messages: Sequence[Message],
        *,
        queue_id: int = 0,
        flush: FlushMode = FlushMode.SYNC,
        topic: str = "orders",
    ) -> Appended:
        return self.store.append(topic, queue_id, messages, flush, self.outcomes.append)

    def append_frame(
        self,
        messages: Sequence[Message],
        *,
        queue_id: int = 0,
        entry: StepPart | None = None,
        done: Done | None = None,
        answer: Answer | None = None,
    ) -> Appended:
        """The same for a frame, as it comes over HTTP."""
        data = request_frame(messages, "orders")
        frame = parse_request(data, topic="orders", limits=Limits())
        done = done or self.outcomes.append
        return self.store.append_frame(
            "orders", queue_id, frame, FlushMode.SYNC, done, entry, answer=answer
        )

    def settle(self, outcomes: int | None = None) -> None:
        """Run turns until every append so far (or `outcomes` of them) has its outcome."""
        wanted = outcomes if outcomes is not None else len(self.outcomes) + 1
        self.turns.run_until(lambda: len(self.outcomes) >= wanted)

    def send(self, body: bytes, **place: object) -> Appended:
        """Append and wait; the send must succeed."""
        appended = self.append(body, **place)  # type: ignore[arg-type]
        self.settle(len(self.outcomes) + 1)
        assert self.outcomes[-1] is None
        return appended

    def bodies(self, topic: str = "orders", queue_id: int = 0, at_once: int = 7) -> list[bytes]:
        """Every readable body of a queue, in order; a gap shows as b'GAP'."""
        bounds = self.store.bounds(topic, queue_id)
        found: dict[int, bytes] = {}
        offset = bounds.min_offset
        while offset < bounds.max_offset:
            result = self.store.read(
                topic, queue_id, offset, max_messages=at_once, max_bytes=3000, wait_for_disk=True
            )
            for queue_offset, record in zip(result.queue_offsets, result.records, strict=True):
                message = self.store.decode(record)
                assert message.queue_offset == queue_offset
                found[queue_offset] = message.body
            for gap in result.gaps:
                found.update(dict.fromkeys(range(gap.from_offset, gap.to_offset), b"GAP"))
            assert result.next_offset > offset
            offset = result.next_offset
        assert sorted(found) == list(range(bounds.min_offset, bounds.max_offset))
        return [found[offset] for offset in sorted(found)]


def open_store(
    files: FileSystem,
    config: StoreConfig = SMALL,
    *,
    threads: bool = True,
    clock: FakeClock | None = None,
    gate: Gate | None = None,
) -> OpenStore:
    turns, clock = ManualTurns(), clock or FakeClock()
    workers = WriterThread if threads else inline(turns)
    store = MessageStore.open(files, switched(config), clock, turns, workers=workers, gate=gate)
    return OpenStore(files, store, turns, clock)


def lose_checkpoints(root: Path) -> None:
    """Remove the checkpoint and its copy."""
    for name in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
        (root / name).unlink()


def read_at(store: MessageStore, at: int, *, wait_for_disk: bool = False) -> memoryview | None:
    """The confirmed record that begins at a physical offset, or None."""
    source, confirmed = store._reader.source, store._writer.watermarks.confirmed
    return read_record(source, at, confirmed, wait_for_disk=wait_for_disk)


def undispatched_bytes(store: MessageStore) -> int:
    """Units of queues that are in memory alone, as before a checkpoint."""
    return sum(queue.tail_bytes for queue in store._queues)

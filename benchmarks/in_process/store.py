"""Measure the store alone; prints a table, writes no file.

`python -m benchmarks.in_process.store [NAME …]`.

Every row is the median of three runs on a store in a temporary directory; records have bodies of
1 KiB. Rates are per second of processor
time, so that neighbours on the machine matter less; the CRC-32 is printed beside them as a measure.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import google_crc32c

from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.positions import FlushMode, TimestampMs
from app.store import MessageStore, OsFiles, StoreConfig, as_buffers
from app.store.formats.frame.batch_frame import (
    FLAG_TAG_HASHES,
    HEADER,
    MAGIC,
    VERSION,
    encode_answer,
    parse_request,
)
from app.store.formats.frame.request_records import EMPTY_CHECKSUM
from app.store.formats.record.checksum import crc32
from app.store.formats.record.record import CHECKSUM_BYTES, encode_record
from tests.support.stores.turns import ManualTurns

BODY = bytes(range(256)) * 4
LIMITS = Limits()


class WallClock:
    """The store's clock."""

    def now_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic_s(self) -> float:
        return time.monotonic()


@contextmanager
def opened(root: Path) -> Iterator[tuple[MessageStore, ManualTurns]]:
    """A store with default sizes."""
    turns = ManualTurns()
    store = MessageStore.open(OsFiles(root), StoreConfig(), WallClock(), turns)
    try:
        yield store, turns
    finally:
        store.close()


def frame(count: int, body_bytes: int = len(BODY)) -> bytes:
    """A request frame of `count` records with tag hashes."""
    record = bytearray(
        encode_record(
            topic=b"orders",
            queue_id=0,
            queue_offset=0,
            physical_offset=0,
            body=BODY[:body_bytes],
            properties=b"TAGS\x01a\x02",
            born_time_ms=0,
            store_time_ms=0,
            store_host=bytes(8),
            born_host=bytes(8),
        )
    )
    record[-CHECKSUM_BYTES:] = EMPTY_CHECKSUM
    sizes = len(record).to_bytes(4) * count
    rest = sizes + (97).to_bytes(8) * count + bytes(record) * count
    head = HEADER.pack(
        MAGIC, VERSION, FLAG_TAG_HASHES, 0, count, google_crc32c.value(rest), 0, len(record) * count
    )
    return head + rest


def per_second(count: int, action: Callable[[], object]) -> float:
    """Calls per second of processor time."""
    start = time.process_time()
    action()
    return count / (time.process_time() - start)


def append_single(per_turn: int, **message: object) -> float:
    """Async appends, `per_turn` of them in each turn of the loop."""
    count = 20_000
    wanted = Message(BODY, tag="a", **message)  # type: ignore[arg-type]
    done: list[object] = []
    with tempfile.TemporaryDirectory() as root, opened(Path(root)) as (store, turns):

        def run() -> None:
            for number in range(count):
                store.append("orders", 0, (wanted,), FlushMode.ASYNC, done.append)
                if number % per_turn == per_turn - 1:
                    turns.run()
            turns.run_until(lambda: len(done) == count)

        run()
        done.clear()
        return per_second(count, run)


def append_frames() -> float:
    """Frames of 1,000 records, parsed and appended."""
    body, frames = frame(1000), 100
    done: list[object] = []
    with tempfile.TemporaryDirectory() as root, opened(Path(root)) as (store, turns):

        def run() -> None:
            for _ in range(frames):
                request = parse_request(body, topic="orders", limits=LIMITS)
                store.append_frame("orders", 0, request, FlushMode.ASYNC, done.append)
                turns.run()
            turns.run_until(lambda: len(done) == frames)

        run()
        done.clear()
        return per_second(frames * 1000, run)


def filled(
    store: MessageStore, turns: ManualTurns, frames: int, body_bytes: int = len(BODY)
) -> None:
    """Append frames of 1,000 messages."""
    done: list[object] = []
    body = frame(1000, body_bytes)
    for number in range(frames):
        request = parse_request(body, topic="orders", limits=LIMITS)
        store.append_frame("orders", 0, request, FlushMode.ASYNC, done.append)
        turns.run_until(lambda wanted=number: len(done) > wanted)  # type: ignore[misc]


def pull(max_messages: int, *, answer: bool = False) -> float:
    """Reads of a hot queue; with `answer` the frame is made too."""
    with tempfile.TemporaryDirectory() as root, opened(Path(root)) as (store, turns):
        filled(store, turns, 100)

        def run() -> None:
            offset = 0
            while offset < 100_000:
                read = store.read(
                    "orders", 0, offset, max_messages=max_messages, max_bytes=1 << 20,
                    wait_for_disk=True,
                )  # fmt: skip
                if answer:
                    sizes, records = as_buffers(read.records)
                    encode_answer(sizes, read.tag_hashes, records, offset)
                offset = read.next_offset

        run()
        return per_second(100_000, run)


def opening(*, clean: bool) -> float:
    """Bytes of log a second after a kill; messages a second after a clean stop."""
    with tempfile.TemporaryDirectory() as root:
        with opened(Path(root)) as (store, turns):
            filled(store, turns, 300)
            size = store.status().written_end
        if not clean:
            for path in Path(root).glob("checkpoint.curlew*"):
                path.unlink()
        start = time.process_time()
        with opened(Path(root)) as (store, _):
            took = time.process_time() - start
            scanned = store.status().recovery.scanned_bytes
            assert scanned == (0 if clean else size)
        return 300_000 / took if clean else size / took / 1e6


def crc_ceiling() -> float:
    """The checksum alone."""
    view = memoryview(BODY)
    return per_second(200_000, lambda: [crc32(view[:]) for _ in range(200_000)])


ROWS: dict[str, tuple[str, Callable[[], float]]] = {
    "crc": ("CRC-32 of 1 KiB, calls/s (ceiling)", crc_ceiling),
    "append": ("append, one a turn, async, messages/s", lambda: append_single(1)),
    "append32": ("append, 32 a turn, async, messages/s", lambda: append_single(32)),
    "keys": ("append with 2 keys, messages/s", lambda: append_single(32, keys=("k1", "k2"))),
    "frames": ("parse and append frames of 1,000, messages/s", append_frames),
    "pull": ("read up to 1 MiB a call, messages/s", lambda: pull(10_000)),
    "answer": ("the same with the answer frame, messages/s", lambda: pull(10_000, answer=True)),
    "pull32": ("read 32 a call, messages/s", lambda: pull(32)),
    "pull1": ("read 1 a call, messages/s", lambda: pull(1)),
    "recover": ("open without a checkpoint, MB/s", lambda: opening(clean=False)),
    "clean": ("open after a clean stop, messages/s", lambda: opening(clean=True)),
}  # fmt: skip


def main(names: list[str]) -> None:
    """Measure and print the rows named, or all."""
    for name in names or ROWS:
        title, measure = ROWS[name]
        runs = [measure() for _ in range(3)]
        print(
            f"{title:50} {statistics.median(runs):>14,.0f}   {min(runs):,.0f} to {max(runs):,.0f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])

"""Memory of a store, in a process of its own.

`python -m benchmarks.in_process.store_memory GIB QUEUES`.

Fills a store with frames of 1,000 x 1 KiB, spread over the queues, with a checkpoint every 500
frames; stops and opens it, then reads from every queue. Prints the resident bytes after each tenth
of the filling and at the end, as JSON.
"""

import json
import sys
import tempfile
from pathlib import Path

from app.domain.positions import FlushMode
from app.store import MessageStore
from app.store.formats.frame.batch_frame import parse_request
from benchmarks.in_process.store import LIMITS, frame, opened
from tests.support.stores.turns import ManualTurns

TOPIC = "orders"
CHECKPOINT_FRAMES = 500


def resident_bytes() -> int:
    """RSS of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmRSS in /proc/self/status")


def fill(store: MessageStore, turns: ManualTurns, frames: int, queues: int) -> list[int]:
    """Append frames; RSS after each tenth."""
    body = frame(1000)
    done: list[object] = []
    seen: list[int] = []
    for number in range(frames):
        request = parse_request(body, topic=TOPIC, limits=LIMITS)
        store.append_frame(TOPIC, number % queues, request, FlushMode.ASYNC, done.append)
        turns.run_until(lambda wanted=number: len(done) > wanted)  # type: ignore[misc]
        if number % CHECKPOINT_FRAMES == CHECKPOINT_FRAMES - 1:
            flushed: list[object] = []
            store.flush(flushed.append)
            turns.run_until(lambda now=flushed: bool(now))  # type: ignore[misc]
            store.begin_checkpoint().run()
        if (number + 1) * 10 // frames > number * 10 // frames:
            seen.append(resident_bytes())
    return seen


def measure(size_bytes: int, queues: int) -> dict[str, object]:
    """Fill, stop, open, read."""
    frames = max(size_bytes // len(frame(1000)), queues)
    with tempfile.TemporaryDirectory(dir=".") as root:
        with opened(Path(root)) as (store, turns):
            filling = fill(store, turns, frames, queues)
        with opened(Path(root)) as (store, _):
            reopened = resident_bytes()
            for queue_id in range(queues):
                store.read(
                    TOPIC, queue_id, 0, max_messages=1000, max_bytes=1 << 20, wait_for_disk=True
                )
            read = resident_bytes()
    return {"filling": filling, "reopened": reopened, "read": read}


if __name__ == "__main__":
    print(json.dumps(measure(int(float(sys.argv[1]) * 2**30), int(sys.argv[2]))))

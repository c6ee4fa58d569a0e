"""Logs with all kinds of blocks, made by the store itself, for tests of what replicas exchange."""

import random

from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import StepPart
from app.store.formats.record.record import decode_fields
from app.store.fs.files import FileSystem
from app.store.log.atomic_batch import records_left
from app.store.log.commit_log import CommitLog
from app.store.log.log_scan import LogScanner
from app.store.replica.block_walk import LogShape
from tests.support.stores.stores import SMALL, OpenStore, open_store

SHAPE = LogShape(SMALL.segment_bytes)


def append_step(opened: OpenStore, bodies: list[bytes]) -> None:
    half = len(bodies) // 2
    parts = [
        StepPart("orders", 1, [Message(body) for body in bodies[:half]]),
        StepPart("rmq_sys_progress", 0, [Message(body) for body in bodies[half:]]),
    ]
    opened.store.append_step(parts, FlushMode.SYNC, opened.outcomes.append)
    opened.turns.run()
    assert opened.outcomes[-1] is None


def fill(files: FileSystem, seed: int = 1, blocks: int = 40) -> int:
    """Append messages, batches, frames and steps over several segments; the end of the log."""
    chance = random.Random(seed)
    opened = open_store(files, threads=False)
    for _ in range(blocks):
        body = b"%d" % chance.randint(0, 9) * chance.randint(1, 400)
        kind = chance.randrange(4)
        if kind == 0:
            opened.send(body)
        elif kind == 1:
            opened.append_all([Message(body), Message(body, tag="a", keys=("k",))])
        elif kind == 2:
            opened.append_frame([Message(body[:200])] * chance.randint(1, 9))
        else:
            append_step(opened, [body[:100]] * chance.randint(2, 6))
        opened.turns.run()
    end = opened.store.status().written_end
    opened.store.close()
    return end


def block_ends(log: CommitLog) -> list[int]:
    """Behind each lone record and each step, as the scan of an opening finds them."""
    records = LogScanner(log).records(log.start)
    return [at + len(record) for at, record in records if not records_left(record)]


def last_of_step(log: CommitLog) -> tuple[int, int]:
    """Physical offset and size of the last record of the first step."""
    found = [
        (at, len(record))
        for at, record in LogScanner(log).records(log.start)
        if b"MQ_STEP\x010\x02" in decode_fields(record).properties
    ]
    return found[0]

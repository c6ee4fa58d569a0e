"""Every bit of a small store flipped, blocks zeroed, copied, swapped, put back from an older copy.

The store lies in memory. A `Sample` has two states of it: after a clean stop and after a kill, with
an older copy of each. `damages` names every way to hurt it; `look` opens a hurt one, reads all, and
says what is wrong. Shared by the test (a sample of the damages) and the sweep (all).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from app.domain.message import java_hash
from app.store import StoreUnusable, paths
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store

QUEUES = 2
TAGS = ("a", "b")
MESSAGES = 28
BLOCK_BYTES = (64, 512)

Key = tuple[int, int]


class Damage(NamedTuple):
    """What is done to one file. `bit` flips; otherwise the block `[start, end)` changes."""

    path: str
    what: str
    start: int
    end: int = 0
    other: int = 0
    """Where another block is taken from."""


class Stored(NamedTuple):
    body: bytes
    tag: str
    physical_offset: int
    size: int


@dataclass
class Sample:
    """A store to be hurt, and what is in it."""

    files: SimulatedFiles
    older: SimulatedFiles
    clean: bool
    stored: dict[Key, Stored] = field(default_factory=dict)
    log_end: int = 0

    def used_bytes(self, path: str) -> int:
        """How much of a file means anything; the rest is zeros."""
        return len(bytes(self.files.names[path].seen).rstrip(b"\0"))


class Report(NamedTuple):
    """What a hurt store did wrong; nothing when all is empty."""

    wrong: list[str]
    """Other bytes than were sent, or a store that does not go on."""
    lost: list[Key]
    """Records that the damage does not touch and that are not served."""
    undetected: list[Key]
    """Records that are not what they were and are served."""
    reused: list[Key]
    """Offsets that are given to another message."""


def make_sample(*, clean: bool) -> Sample:
    files = SimulatedFiles()
    opened = open_store(files, threads=False)
    older = files
    stored: dict[Key, Stored] = {}
    for number in range(MESSAGES):
        queue_id = number % 3 % QUEUES
        body = b"message %d " % number + bytes((number,)) * (number * 13 % 230)
        tag = TAGS[number % 2]
        before = opened.store.status().written_end
        place = opened.append(body, queue_id=queue_id, tag=tag)
        opened.turns.run()
        if number == MESSAGES // 2:
            opened.store.begin_checkpoint().run()
            older = files.kill()
        result = opened.store.read(
            "orders", queue_id, place.first_queue_offset, max_messages=1, max_bytes=1
        )
        message = opened.store.decode(result.records[0])
        assert message.physical_offset >= before
        stored[queue_id, place.first_queue_offset] = Stored(
            body, tag, message.physical_offset, len(result.records[0])
        )
    end = opened.store.status().written_end
    if clean:
        opened.store.close()
    return Sample(files.kill(), older, clean, stored, end)


def bit_flips(sample: Sample, path: str) -> Iterator[Damage]:
    for bit in range(sample.used_bytes(path) * 8):
        yield Damage(path, "bit", bit)


def block_changes(sample: Sample, path: str) -> Iterator[Damage]:
    """Blocks zeroed, overwritten with another, swapped with the next, put back from before."""
    used = sample.used_bytes(path)
    for size in BLOCK_BYTES:
        starts = range(0, used, size)
        for start in starts:
            end = min(start + size, used)
            yield Damage(path, "zero", start, end)
            yield Damage(path, "older", start, end)
            for other in (0, start + size, used // size // 2 * size):
                if other != start and other + end - start <= used:
                    yield Damage(path, "copy", start, end, other)
                    yield Damage(path, "swap", start, end, other)


def hurt(sample: Sample, damage: Damage) -> SimulatedFiles:
    files = sample.files.kill()
    inode = files.names[damage.path]
    content = inode.seen
    start, end = damage.start, damage.end
    if damage.what == "bit":
        content[start // 8] ^= 1 << start % 8
    elif damage.what == "zero":
        content[start:end] = bytes(end - start)
    elif damage.what == "older":
        before = sample.older.names.get(damage.path)
        old = bytes(before.seen)[start:end] if before else b""
        content[start:end] = old.ljust(end - start, b"\0")
    else:
        other = slice(damage.other, damage.other + end - start)
        mine, content[start:end] = bytes(content[start:end]), bytes(content[other])
        if damage.what == "swap":
            content[other] = mine
    inode.safe = bytearray(content)
    inode.unsynced.clear()
    return files


def look(sample: Sample, damage: Damage) -> Report:
    """Open the hurt store, read everything twice (all, and by tag), and send one more."""
    files = hurt(sample, damage)
    hit = set(touched(sample, files))
    try:
        opened = open_store(files, threads=False)
    except StoreUnusable:
        return Report([], sorted(sample.stored), [], [])
    wrong: list[str] = []
    missing = [key for key in sample.stored if not serves(opened, sample, key, wrong)]
    place = opened.append(b"one more", queue_id=0)
    opened.turns.run()
    result = opened.store.read("orders", 0, place.first_queue_offset, max_messages=1, max_bytes=1)
    if opened.outcomes != [None] or result.queue_offsets != [place.first_queue_offset]:
        wrong.append("the store does not go on")
    new = (0, place.first_queue_offset)
    return Report(
        wrong,
        lost=[key for key in missing if key not in hit],
        undetected=[key for key in hit if key not in missing],
        reused=[new] if new in sample.stored and new not in hit else [],
    )


def serves(opened: OpenStore, sample: Sample, key: Key, wrong: list[str]) -> bool:
    """Whether one message is read as it was sent, by its offset and by its tag."""
    queue_id, offset = key
    bounds = opened.store.bounds("orders", queue_id)
    if not bounds.min_offset <= offset < bounds.max_offset:
        return False
    stored = sample.stored[key]
    served = True
    for hashes in (None, frozenset({java_hash(stored.tag)})):
        result = opened.store.read(
            "orders",
            queue_id,
            offset,
            max_messages=1,
            max_bytes=1,
            tag_hashes=hashes,
            wait_for_disk=True,
        )
        if offset not in result.queue_offsets:
            served = False
            continue
        record = result.records[result.queue_offsets.index(offset)]
        try:
            message = opened.store.decode(record)
        except ValueError as error:
            wrong.append(f"{key} is served and cannot be read: {error}")
            continue
        if (message.body, message.tag, message.queue_id) != (stored.body, stored.tag, queue_id):
            wrong.append(f"{key} reads {message.body[:20]!r} with tag {message.tag}")
    return served


def touched(sample: Sample, files: SimulatedFiles) -> Iterator[Key]:
    """Messages whose records are not what they were."""
    for key, stored in sample.stored.items():
        base = stored.physical_offset - stored.physical_offset % 4096
        start = stored.physical_offset - base
        path = paths.segment(base)
        before = bytes(sample.files.names[path].seen[start : start + stored.size])
        inode = files.names.get(path)
        if inode is None or bytes(inode.seen[start : start + stored.size]) != before:
            yield key


def damages(sample: Sample) -> Iterator[Damage]:
    """Every flip and every block change of every file."""
    for path in sorted(sample.files.names):
        if not sample.files.names[path].directory:
            yield from bit_flips(sample, path)
            yield from block_changes(sample, path)

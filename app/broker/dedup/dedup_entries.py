"""The rows of `DedupTable`, and the entries of the journal that say how they change. Pure."""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from app.broker.dedup.dedup_refusals import in_progress, stored_before
from app.broker.dedup.tokens import Placed, ProducerToken, read_topic_key, with_generation
from app.domain.limits import STORE_TIME_LEAD_MS_MAX

PRODUCER: Final = "p"
KEY: Final = "k"
SEAL: Final = "s"
SEQUENCE: Final = "q"
PLAN: Final = "n"
EPOCH: Final = "e"
DELETED: Final = "d"
FORGOTTEN: Final = "f"
"""Kinds of entries: the first field of each."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[Any]).decode


@dataclass(slots=True)
class SequenceNumbers:
    """One sequence of a producer."""

    next_seq: int = 0
    confirmed: int = 0
    """Below this the messages are safe; between it and `next_seq` they are being written."""
    results: deque[tuple[int, Placed]] = field(default_factory=deque)


@dataclass(slots=True)
class KnownProducer:
    """A producer with its sequences, by topic key and scope."""

    epoch: int
    used_ms: int
    sequences: dict[tuple[str, int], SequenceNumbers] = field(default_factory=dict)


class Fresh(NamedTuple):
    """To be stored, but for the first `skip` messages, which a crash has left of it in a queue."""

    skip: int = 0
    queue_id: int | None = None


class SequenceState(NamedTuple):
    """One sequence of a producer, for whoever asks. `queue_id` None: of the whole topic."""

    topic: str
    queue_id: int | None
    next_seq: int


class ProducerState(NamedTuple):
    """What is known of a producer. None: never used, or sealed and forgotten."""

    epoch: int | None
    sealed_epoch: int | None
    sequences: list[SequenceState]


def idle_producer(producers: dict[str, KnownProducer], oldest_ms: int, at_most: int) -> str | None:
    """The first of so many producers, in the order of their last use, that was not used since then
    and has one sequence at most."""
    for producer_id, producer in islice(producers.items(), at_most):
        if producer.used_ms > oldest_ms:
            return None
        if len(producer.sequences) <= 1:
            return producer_id
    return None


def kept_count(placed: Placed, end_of: Callable[[int], int]) -> int:
    """How many messages of a request its queues still have; only a frame, which lies in one queue,
    is cut short."""
    if len(placed.firsts) != 1:
        return placed.size
    queue, first = placed.firsts[0]
    return min(max(end_of(queue) - first, 0), placed.size)


def state_of(
    producer: KnownProducer | None, sealed: tuple[int, int] | None, gone: Container[str]
) -> ProducerState:
    """What is known of a producer, without its sequences in topics that are `gone`."""
    sequences = [] if producer is None else sorted(producer.sequences.items())
    return ProducerState(
        None if producer is None else producer.epoch,
        None if sealed is None else sealed[0],
        [
            SequenceState(read_topic_key(topic)[0], queue if queue >= 0 else None, each.next_seq)
            for (topic, queue), each in sequences
            if topic not in gone
        ],
    )


def sequence_entry(
    producer_id: str, producer: KnownProducer, where: tuple[str, int], sequence: SequenceNumbers
) -> bytes:
    """The row of a snapshot with one sequence."""
    row = *where, producer.used_ms, sequence.next_seq, list(sequence.results)
    return encode(SEQUENCE, producer_id, producer.epoch, *row)


def chunks_of(rows: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    """The rows of a snapshot as lines, in chunks of about so many bytes."""
    lines: list[bytes] = []
    size = 0
    for line in rows:
        if size + len(line) > bytes_max:
            yield b"\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield b"\n".join(lines)


def first_result(claim: ProducerToken, sequence: SequenceNumbers, count: int) -> Placed:
    """Where a repeated request went. Raises `RequestInProgress` or `AlreadyStored`."""
    if claim.seq + count > sequence.confirmed:
        raise in_progress()
    for seq, placed in sequence.results:
        if seq == claim.seq and placed.size == count:
            return placed
    raise stored_before(claim.producer_id, claim.seq, count, sequence.next_seq)


def take_back(sequence: SequenceNumbers, seq: int) -> None:
    """Forget `seq` and what came after it; it is not stored."""
    sequence.next_seq = min(sequence.next_seq, seq)
    drop_results(sequence, seq)


def drop_results(sequence: SequenceNumbers, seq: int) -> None:
    """Forget the results of `seq` and what came after it."""
    while sequence.results and sequence.results[-1][0] >= seq:
        sequence.results.pop()


def adopted(line: bytes, generation_of: Callable[[str], int]) -> bytes:
    """An entry of a snapshot whose topic has a generation, if one is known for its name."""
    fields = decode(line)
    place = {KEY: 1, SEQUENCE: 3, PLAN: 3}.get(fields[0])
    if place is None:
        return line
    named = with_generation(fields[place], generation_of)
    if named == fields[place]:
        return line
    fields[place] = named
    return encode(*fields)


def encode(*fields: object) -> bytes:
    """An entry."""
    return _encode(fields)


def decode(entry: bytes) -> list[Any]:
    """The fields of an entry, the kind first."""
    return _decode(entry)


def expire_seals(
    seals: dict[str, tuple[int, int]], oldest_ms: int, now_ms: int, at_most: int
) -> list[str]:
    """Drop the first seals, family → epoch and when, whose window is over, and return whose they
    were; one that is ahead of the clock has its window from now on."""
    over: list[str] = []
    for _ in range(at_most):
        family, (epoch, sealed_ms) = next(iter(seals.items()), ("", (0, oldest_ms)))
        if oldest_ms <= sealed_ms <= now_ms + STORE_TIME_LEAD_MS_MAX:
            break
        del seals[family]
        if sealed_ms < oldest_ms:
            over.append(family)
        else:
            seals[family] = epoch, now_ms
    return over


def placed_of(fields: list[Any]) -> Placed:
    """Invert what an entry says of a `Placed`."""
    count, queues, firsts = fields
    return Placed(count, tuple(queues), tuple(map(tuple, firsts)))

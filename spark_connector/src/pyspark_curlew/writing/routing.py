"""Which queue a row goes to. Pure.

A row that names its queue goes there; one with a key goes where the service would put it
(RocketMQ's rule, Java's hash of the key); others go together to the queue that is next in turn. A
queue's rows keep their order. Called by `write_task`.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_curlew.errors import RowRefused
from pyspark_curlew.wire.spans import limits_of

_LOW_32: Final = np.uint64(0xFFFFFFFF)


class KeyQueues(NamedTuple):
    """Where keys go while shards drain: over the first `hashed` queues, but to those in `kept` in
    place of one whose keys have moved."""

    hashed: int
    kept: Sequence[int]


def by_queue(
    queues: int,
    wanted: pa.Array | None,
    keys: pa.Array | None,
    turns: NDArray[np.int64],
    queue_ids: Sequence[int] | None = None,
    column: str = "queue",
    of_keys: KeyQueues | None = None,
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Queues that get rows (at least one), and which ones, ascending; a queue may come again.

    `turns` says for each row whose turn it is if the row has neither a queue nor a key. `queue_ids`
    are so many queues in the place of the first ones; whether a queue that a row wants is there the
    service says then. `column`: where rows say it.
    """
    ids = np.arange(queues) if queue_ids is None else np.asarray(queue_ids, dtype=np.int64)
    target = ids[turns % queues]
    if keys is None and wanted is None:
        runs = np.split(np.arange(len(target)), np.flatnonzero(np.diff(target)) + 1)
        yield from ((int(target[run[0]]), run) for run in runs)
        return
    if keys is not None:
        hashes = java_hashes(keys)
        places = ids[np.abs(hashes) % queues] if of_keys is None else _kept_places(hashes, of_keys)
        has_key = np.asarray(keys.is_valid())
        target[has_key] = places[has_key]
    if wanted is not None:
        given = np.asarray(wanted.is_valid())
        numbers = np.asarray(wanted.fill_null(0)).astype(np.int64)
        strange = given & ((numbers < 0) | ((numbers >= queues) & (queue_ids is None)))
        if strange.any():
            raise RowRefused(
                f"column {column!r} has {numbers[strange][0]}; the topic has queues 0 to"
                f" {queues - 1}"
            )
        target[given] = numbers[given]
    order = np.argsort(target, kind="stable")
    present, firsts = np.unique(target[order], return_index=True)
    yield from zip(present.tolist(), np.split(order, firsts[1:]), strict=True)


def _kept_places(hashes: NDArray[np.int64], of_keys: KeyQueues) -> NDArray[np.int64]:
    """The queue of each key: its own, or where that one's keys have moved, the one with the highest
    score for the key of those that kept theirs (rendezvous hashing, as the service does)."""
    places = np.abs(hashes) % of_keys.hashed
    kept = np.asarray(of_keys.kept, dtype=np.int64)
    moved = np.flatnonzero(~np.isin(places, kept))
    if len(moved):
        numbers = hashes[moved].astype(np.uint64) & _LOW_32
        best = np.zeros(len(moved), dtype=np.uint64)
        for queue in of_keys.kept:  # the score, and behind it the queue that says which one it is
            salt = _mixed(np.array([queue + 1], dtype=np.uint64))
            best = np.maximum(best, _mixed(numbers ^ salt) << np.uint64(32) | np.uint64(queue))
        places[moved] = (best & _LOW_32).astype(np.int64)
    return places


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The last step of MurmurHash3, 32 bits each."""
    numbers = numbers ^ numbers >> np.uint64(16)
    numbers = numbers * np.uint64(0x85EBCA6B) & _LOW_32
    numbers = numbers ^ numbers >> np.uint64(13)
    numbers = numbers * np.uint64(0xC2B2AE35) & _LOW_32
    return numbers ^ numbers >> np.uint64(16)


def java_hashes(keys: pa.Array) -> NDArray[np.int64]:
    """Java's `String.hashCode` of each binary value read as UTF-8; 0 for null."""
    limits = limits_of(keys)
    data = np.frombuffer(keys.buffers()[2] or b"", dtype=np.uint8)
    if len(data) and (data[limits[0] : limits[-1]] >= 0x80).any():
        return np.array([_java_hash(key) for key in keys.to_pylist()], dtype=np.int64)
    starts, lengths = limits[:-1], np.diff(limits)
    hashes = np.zeros(len(keys), dtype=np.uint32)
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > place)
        hashes[rows] = hashes[rows] * np.uint32(31) + data[starts[rows] + place]
    return hashes.astype(np.int32).astype(np.int64)


def _java_hash(key: bytes | None) -> int:
    units = (key or b"").decode().encode("utf-16-be")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[index : index + 2], "big")) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value

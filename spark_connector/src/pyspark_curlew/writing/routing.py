"""Which queue a row goes to. Pure.

A row that names its queue goes there; one with a key goes where the service would put it
(RocketMQ's rule, Java's hash of the key); others go together to the queue that is next in turn. A
queue's rows keep their order. Called by `write_task`.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_curlew.errors import RowRefused
from pyspark_curlew.writing.rows import not_text


def by_queue(
    queues: int, wanted: pa.Array | None, keys: pa.Array | None, turns: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Queues that get rows (at least one), and which ones, ascending; a queue may come again.

    `turns` says for each row whose turn it is if the row has neither a queue nor a key.
    """
    target = turns % queues
    if keys is None and wanted is None:
        runs = np.split(np.arange(len(target)), np.flatnonzero(np.diff(target)) + 1)
        yield from ((int(target[run[0]]), run) for run in runs)
        return
    if keys is not None:
        hashes = np.abs(java_hashes(keys)) % queues
        has_key = np.asarray(keys.is_valid()) & (_lengths(keys) > 0)
        target[has_key] = hashes[has_key]
    if wanted is not None:
        given = np.asarray(wanted.is_valid())
        numbers = np.asarray(wanted.fill_null(0)).astype(np.int64)
        strange = given & ((numbers < 0) | (numbers >= queues))
        if strange.any():
            raise RowRefused(
                f"column 'queue' has {numbers[strange][0]}; the topic has queues 0 to {queues - 1}"
            )
        target[given] = numbers[given]
    order = np.argsort(target, kind="stable")
    present, firsts = np.unique(target[order], return_index=True)
    yield from zip(present.tolist(), np.split(order, firsts[1:]), strict=True)


def java_hashes(keys: pa.Array) -> NDArray[np.int64]:
    """Java's `String.hashCode` of each binary value read as UTF-8; 0 for null."""
    limits = _limits(keys)
    data = np.frombuffer(keys.buffers()[2] or b"", dtype=np.uint8)
    if len(data) and (data[limits[0] : limits[-1]] >= 0x80).any():
        return np.array([_java_hash(key) for key in keys.to_pylist()], dtype=np.int64)
    starts, lengths = limits[:-1], _lengths(keys)
    hashes = np.zeros(len(keys), dtype=np.uint32)
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > place)
        hashes[rows] = hashes[rows] * np.uint32(31) + data[starts[rows] + place]
    return hashes.astype(np.int32).astype(np.int64)


def _java_hash(key: bytes | None) -> int:
    try:
        units = (key or b"").decode().encode("utf-16-be")
    except UnicodeDecodeError:
        raise not_text("key") from None
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[index : index + 2], "big")) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def _limits(keys: pa.Array) -> NDArray[np.int64]:
    offsets = np.frombuffer(keys.buffers()[1], dtype=np.int32)
    return offsets[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)


def _lengths(keys: pa.Array) -> NDArray[np.int64]:
    return np.diff(_limits(keys)) if len(keys) else np.zeros(0, dtype=np.int64)

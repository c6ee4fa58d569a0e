"""Rows as records and frames that the service reads, in the queues that it would choose."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark_curlew.errors import RowRefused
from pyspark_curlew.writing.encode import encode_records, fitting, frame_of, total_bytes
from pyspark_curlew.writing.routing import by_queue, java_hashes

from app.domain.limits import Limits
from app.domain.message import RESERVED_PROPERTIES, queue_for_sharding_key
from app.store.formats.frame.batch_frame import parse_request

CHARACTERS = st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"])
TEXT = st.text(CHARACTERS, min_size=1, max_size=9)
TAGS = st.text("ab- \u00e9", min_size=1, max_size=9).filter(lambda tag: tag == tag.strip())
NAMES = TEXT.filter(lambda name: name not in RESERVED_PROPERTIES)
MAPS = st.none() | st.dictionaries(NAMES, TEXT, max_size=3)
ROWS = st.lists(
    st.tuples(st.binary(max_size=50), st.none() | TEXT, st.none() | TAGS, MAPS), min_size=1
)
BINARY_MAP = pa.map_(pa.binary(), pa.binary())


def columns(rows: list[Any]) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    values, keys, tags, maps = zip(*rows, strict=True)
    pairs = [None if one is None else list(one.items()) for one in maps]
    return (
        pa.array(values, pa.binary()),
        pa.array([None if key is None else key.encode() for key in keys], pa.binary()),
        pa.array([None if tag is None else tag.encode() for tag in tags], pa.binary()),
        pa.array(pairs, BINARY_MAP),
    )


def expected_tail(key: str | None, tag: str | None, pairs: dict[str, str] | None) -> bytes:
    parts = [("__SHARDINGKEY", key), ("TAGS", tag), *(pairs or {}).items()]
    text = "".join(f"{name}\x01{value}\x02" for name, value in parts if value)
    return text.encode() + b"__CRC32#\x010000000000\x02"


@settings(deadline=None)
@given(ROWS, st.integers(1, 9), st.integers(1, 400), st.integers(0, 3))
def test_the_service_reads_what_is_sent(
    rows: list[Any], most: int, size: int, skipped: int
) -> None:
    whole = [column.slice(min(skipped, len(rows) - 1)) for column in columns(rows)]
    rows = rows[min(skipped, len(rows) - 1) :]
    records = encode_records("orders", *whole)
    left = list(rows)
    while len(records):
        fit = fitting(records, most, size)
        assert fit <= most
        part = records.slice(0, max(fit, 1))
        assert total_bytes(part) <= size or not fit
        assert fit in {most, len(records)} or total_bytes(records.slice(0, fit + 1)) > size
        records = records.slice(len(part))
        cut = len(part) // 2
        frame = frame_of([part.slice(0, cut), part.slice(cut)] if cut else [part])
        parsed = parse_request(b"".join(frame), topic="orders", limits=Limits())
        assert parsed.count == len(part)
        for start, length, body in zip(
            parsed.positions, parsed.sizes, parsed.body_lengths, strict=True
        ):
            value, key, tag, pairs = left.pop(0)
            record = bytes(parsed.records[start : start + length])
            assert record[88 : 88 + body] == value
            assert record.endswith(expected_tail(key, tag, pairs))
    assert left == []


def test_a_value_alone_is_enough() -> None:
    frame = frame_of([encode_records("orders", pa.array(["a", "b"]), None, None, None)])
    assert parse_request(b"".join(frame), topic="orders", limits=Limits()).count == 2


@pytest.mark.parametrize(
    ("values", "keys", "words"),
    [([None], [b"k"], "'value' is null"), ([b"v"], [b"k" * 40_000], "exceed 32767 bytes")],
)
def test_a_row_that_cannot_be_a_message(values: Any, keys: Any, words: str) -> None:
    with pytest.raises(RowRefused, match=words):
        encode_records(
            "orders", pa.array(values, pa.binary()), pa.array(keys, pa.binary()), None, None
        )


@given(st.lists(st.none() | TEXT, max_size=12), st.integers(1, 7))
def test_keys_go_where_the_service_would_put_them(keys: list[str | None], queues: int) -> None:
    encoded = pa.array([None if key is None else key.encode() for key in keys], pa.binary())
    assert len(java_hashes(encoded)) == len(keys)
    if keys:
        turns = np.full(len(keys), 3, dtype=np.int64)
        placed = dict(by_queue(queues, None, encoded, turns))
        assert sorted(row for rows in placed.values() for row in rows) == list(range(len(keys)))
        for queue, rows in placed.items():
            assert list(rows) == sorted(rows)
            for row in rows:
                key = keys[row]
                assert queue == (queue_for_sharding_key(key, queues) if key else 3 % queues)


@pytest.mark.parametrize("has_keys", [True, False])
def test_rows_go_to_the_queues_of_the_plan_where_others_drain(has_keys: bool) -> None:
    texts = [str(number) for number in range(40)]
    keys = pa.array([each.encode() for each in texts], pa.binary()) if has_keys else None
    turns = np.arange(40, dtype=np.int64)
    placed = list(by_queue(2, None, keys, turns, [1, 4]))
    for queue, rows in placed:
        for row in rows:
            place = queue_for_sharding_key(texts[row], 2) if has_keys else row % 2
            assert queue == [1, 4][place]
    assert {queue for queue, _ in placed} == {1, 4}
    named = dict(by_queue(2, pa.array([3, None], pa.int32()), None, turns[:2], [1, 4]))
    assert {queue: list(rows) for queue, rows in named.items()} == {3: [0], 4: [1]}


def test_a_named_queue_goes_before_the_key() -> None:
    keys = pa.array([b"a", b"a", b"a"], pa.binary())
    turns = np.zeros(3, dtype=np.int64)
    placed = dict(by_queue(4, pa.array([2, None, 0], pa.int32()), keys, turns))
    assert {queue: list(rows) for queue, rows in placed.items()} == {2: [0], 1: [1], 0: [2]}


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (pa.int8(), -1),
        (pa.int16(), 4),
        (pa.int32(), 2**31 - 1),
        (pa.int64(), 2**31),
        (pa.int64(), 2**32),
        (pa.int64(), 2**63 - 1),
        (pa.int64(), -(2**63)),
    ],
)
def test_a_queue_of_any_integral_type_is_one_of_the_topics(kind: pa.DataType, number: int) -> None:
    turns = np.zeros(2, dtype=np.int64)
    placed = dict(by_queue(4, pa.array([0, 3], kind), None, turns))
    assert {queue: list(rows) for queue, rows in placed.items()} == {0: [0], 3: [1]}
    with pytest.raises(RowRefused, match=f"has {number}; the topic has queues 0 to 3"):
        list(by_queue(4, pa.array([0, number], kind), None, turns))

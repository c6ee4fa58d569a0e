"""Our formats against stores that RocketMQ 4.9.8 wrote.

The numbers are in `tests.support.stores.rocketmq_store`; the real files, where they are at hand
beside the repository, must be equal to what is built from the numbers, and are read as well.
"""

import hashlib
import json
import struct

import numpy as np
import pytest

from app.domain.message import java_hash
from app.store.formats.files import key_index
from app.store.formats.files.consume_queue import UNIT
from app.store.formats.files.key_index import IndexHeader, decode_header, key_hashes
from app.store.formats.files.rocketmq_files import (
    RocketCheckpoint,
    encode_rocket_checkpoint,
)
from app.store.formats.record.record import (
    CHECKSUM_BYTES,
    END_OF_FILE_BYTES,
    Found,
    decode_fields,
    decode_properties,
    encode_record,
    inspect,
)
from tests.support.stores import rocketmq_store
from tests.support.stores.rocketmq_store import (
    BORN_HOST,
    ENTRIES,
    GOLDEN,
    SLOTS,
    STORE6,
    STORE6_ENTRIES,
    STORE6_INDEX_HEADER,
    STORE6_RECORD_1,
    STORE6_SIZES,
    STORE6_SLOTS,
    STORE6_TAG_HASHES,
    STORE_HOST,
    T0,
    Sent,
    store200_messages,
)

BUILT = {"store6": rocketmq_store.store6(), "store200": rocketmq_store.store200()}
REAL = {name: files for name in BUILT if (files := rocketmq_store.golden(name)) is not None}
DIGESTS = {"store6": "edb0a89448f7b4fb", "store200": "76c5ad8fc2445cdd"}
SIX = [pytest.param(BUILT["store6"], id="built")]
TWO_HUNDRED = [pytest.param(BUILT["store200"], id="built")]
if REAL:
    SIX.append(pytest.param(REAL["store6"], id="real"))
    TWO_HUNDRED.append(pytest.param(REAL["store200"], id="real"))


def check_record(data: bytes, at: int, sent: Sent, left: int) -> int:
    size = int.from_bytes(data[at : at + 4])
    raw = memoryview(data)[at : at + size]
    finding = inspect(raw, sent.offset, left=left, checksum_required=False)
    assert finding == (Found.RECORD, sent.size, "")
    fields = decode_fields(raw)
    assert fields.total_size == sent.size == size
    assert fields.magic == 0xDAA320A7
    assert (fields.queue_id, fields.queue_offset) == (sent.queue_id, sent.queue_offset)
    assert fields.physical_offset == sent.offset
    assert (fields.flag, fields.system_flag) == (7, 0)
    assert (fields.born_time_ms, fields.store_time_ms) == (sent.time - 5, sent.time)
    assert (fields.born_host, fields.store_host) == (BORN_HOST, STORE_HOST)
    assert (fields.reconsume_times, fields.prepared_offset) == (0, 0)
    assert (fields.body, fields.topic) == (sent.body, sent.topic)
    pairs = decode_properties(fields.properties)
    assert pairs.pop("u") == "v"
    assert pairs.pop("UNIQ_KEY") == sent.unique_key
    assert (pairs.pop("KEYS", None), pairs.pop("TAGS", None)) == (sent.keys, sent.tag)
    assert not pairs
    return at + size


def test_the_numbers_make_the_real_files() -> None:
    """Where the real files are at hand; `BUILT` is pinned by its own digest in any case."""
    for name, files in REAL.items():
        assert BUILT[name] == files
    digests = {
        name: hashlib.sha256(b"".join(files[path] for path in sorted(files))).hexdigest()[:16]
        for name, files in BUILT.items()
    }
    assert digests == DIGESTS


@pytest.mark.parametrize("files", SIX)
def test_store6_records(files: dict[str, bytes]) -> None:
    assert [sent.size for sent in STORE6] == STORE6_SIZES
    first, second = (files[f"commitlog/{base:020d}"] for base in (0, 1024))
    assert first.startswith(STORE6_RECORD_1)
    assert decode_fields(first[:168]).body_crc == 0x3610A686
    at = 0
    for sent in STORE6[:4]:
        at = check_record(first, at, sent, 1024 - at)
    assert at == 943
    end = inspect(memoryview(first)[at:], at, left=81)
    assert end == (Found.END_OF_FILE, 81, "")
    at = 0
    for sent in STORE6[4:]:
        at = check_record(second, at, sent, 1024 - at)
    assert at == 1648 - 1024
    rest = memoryview(second)[at : at + END_OF_FILE_BYTES]
    assert inspect(rest, 1648, left=1024 - at).found is Found.NOTHING


@pytest.mark.parametrize("files", SIX)
def test_store6_queues(files: dict[str, bytes]) -> None:
    for queue, members in {"TopicA/0": [0, 1, 4, 5], "TopicA/1": [2], "TopicB/0": [3]}.items():
        units = list(UNIT.iter_unpack(files[f"consumequeue/{queue}/{0:020d}"]))
        assert units[: len(members)] == [
            (STORE6[n].offset, STORE6_SIZES[n], STORE6_TAG_HASHES[n]) for n in members
        ]
        assert units[len(members) :] == [(0, 0, 0)] * (10 - len(members))
    assert (java_hash("TagA"), java_hash("TagB")) == (2598919, 2598920)


@pytest.mark.parametrize("files", SIX)
def test_store6_index(files: dict[str, bytes]) -> None:
    data = files["index/20261121093631002"]
    assert len(data) == key_index.file_bytes(SLOTS, ENTRIES) == 20440
    assert decode_header(data) == IndexHeader(*STORE6_INDEX_HEADER)
    assert key_index.encode_header(decode_header(data)) == data[:40]
    slots = struct.unpack_from(f">{SLOTS}i", data, key_index.slot_at(0))
    assert {slot: entry for slot, entry in enumerate(slots) if entry} == STORE6_SLOTS
    start = key_index.entry_at(SLOTS, 1)
    entries = np.frombuffer(data, key_index.ENTRIES, 12, start)
    assert entries.tolist() == STORE6_ENTRIES
    assert key_index.chain_heads(entries, SLOTS).tolist() == list(slots)
    texts = [
        key_index.index_key(sent.topic, key)
        for sent in STORE6
        for key in (sent.unique_key, *(sent.keys or "").split())
    ]
    assert key_hashes(texts) == [entry[0] for entry in STORE6_ENTRIES]
    assert [key_index.seconds_since(T0, T0 + ms) for ms in (0, 2500, 65000)] == [0, 2, 65]
    assert key_index.seconds_since(T0, T0 - 1) == 0


@pytest.mark.parametrize("files", SIX)
def test_store6_checkpoint(files: dict[str, bytes]) -> None:
    made = encode_rocket_checkpoint(RocketCheckpoint(T0 + 65000, T0 + 65000, 0))
    assert made == files["checkpoint"]


@pytest.mark.parametrize("files", TWO_HUNDRED)
def test_store200_whole(files: dict[str, bytes]) -> None:
    messages = store200_messages()
    log = files[f"commitlog/{0:020d}"]
    at = 0
    for sent in messages:
        at = check_record(log, at, sent, len(log) - at)
    assert at == 46590
    for queue_id in (0, 1):
        units = list(UNIT.iter_unpack(files[f"consumequeue/TopicA/{queue_id}/{0:020d}"]))
        assert units == [
            (sent.offset, sent.size, java_hash(f"Tag{n % 3}"))
            for n, sent in enumerate(messages)
            if n % 2 == queue_id
        ]
    index = files["index/20261121094130570"]
    assert decode_header(index) == IndexHeader(T0, T0 + 1990, 0, 46337, 100, 401)
    entries = np.frombuffer(index, key_index.ENTRIES, 400, key_index.entry_at(SLOTS, 1))
    heads = struct.unpack_from(f">{SLOTS}i", index, key_index.slot_at(0))
    assert key_index.chain_heads(entries, SLOTS).tolist() == list(heads)
    assert struct.unpack_from(">qqq", files["checkpoint"]) == (T0 + 1990, T0 + 1990, 0)


@pytest.mark.parametrize("sent", STORE6, ids=lambda sent: str(sent.offset))
def test_ours_differs_from_theirs_by_the_checksum_alone(sent: Sent) -> None:
    theirs = rocketmq_store.record(sent)
    ours = encode_record(
        topic=sent.topic.encode(),
        queue_id=sent.queue_id,
        queue_offset=sent.queue_offset,
        physical_offset=sent.offset,
        body=sent.body,
        properties=sent.properties + b"\x02",
        born_time_ms=sent.time - 5,
        store_time_ms=sent.time,
        store_host=STORE_HOST,
        born_host=BORN_HOST,
        flag=7,
    )
    at = len(theirs) - len(sent.properties) - 2
    assert ours[4:at] == theirs[4:at]
    assert ours[at + 2 : -CHECKSUM_BYTES] == sent.properties + b"\x02"
    assert len(ours) == len(theirs) + 1 + CHECKSUM_BYTES


HASHES = [
    ("", 0, 0),
    ("TagA", 2598919, 2598919),
    ("Aa", 2112, 2112),
    ("BB", 2112, 2112),
    ("polygenelubricants", -2147483648, 0),
    ("DESIGNING WORKHOUSES", -2147483648, 0),
    ("你好", 652829, 652829),
    ("tag with space", -1742848654, 1742848654),
    ("\U0001f600", 1772899, 1772899),
    ("TopicA#k1", -1903240649, 1903240649),
]


def test_hashes_are_those_of_java() -> None:
    vectors = list(HASHES)
    path = GOLDEN / "hashes.json"
    if path.exists():
        vectors += [(v["s"], v["hashCode"], v["indexHash"]) for v in json.loads(path.read_text())]
    assert [java_hash(text) for text, _, _ in vectors] == [code for _, code, _ in vectors]
    assert key_hashes([text for text, _, _ in vectors]) == [index for _, _, index in vectors]
    assert key_hashes([]) == []


PROPERTIES = [
    ("", {}),
    ("a", {}),
    ("k\x01v", {"k": "v"}),
    ("k\x01v\x02k2\x01v2", {"k": "v", "k2": "v2"}),
    ("k\x01\x02", {}),
    ("\x01v\x02k2\x01v2", {"k2": "v2"}),
    ("k\x01v\x01w", {"k": "v\x01w"}),
    ("k\x01v\x02k\x01w", {"k": "w"}),
    ("\x02\x02k\x01v", {"k": "v"}),
]


def test_properties_are_read_by_their_rules() -> None:
    vectors = list(PROPERTIES)
    path = GOLDEN / "properties.json"
    if path.exists():
        vectors += [(v["raw"], v["map"]) for v in json.loads(path.read_text())]
    for raw, pairs in vectors:
        assert decode_properties(raw.encode()) == pairs, raw

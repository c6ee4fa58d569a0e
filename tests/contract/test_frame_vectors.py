"""The vectors of the batch frame, to which the server, the reader and Spark's decoder are held."""

import base64
import importlib.util
import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import google_crc32c
import httpx
import numpy as np
import pytest
from pyspark_curlew.errors import FrameDamaged, ProtocolViolation, Unsupported
from pyspark_curlew.wire.columns import Decoded, decode
from pyspark_curlew.wire.frame import parse_frame

from app.store.formats.frame.batch_frame import FLAG_CRC32, encode_answer, encode_answer_unseen
from app.store.formats.record.record import decode_message
from tests.support.nodes.node import ROOT, run_node

Vector = dict[str, Any]

PLACE = ROOT / "openapi" / "vectors"
VECTORS = json.loads((PLACE / "batch-frames.json").read_text())
GOOD: list[Vector] = VECTORS["good"]
REQUESTS = [each for each in GOOD if each["direction"] == "request"]
ANSWERS = [each for each in GOOD if each["direction"] == "answer"]
BAD: list[Vector] = VECTORS["bad"]
FRAMES = "application/vnd.curlew.batch"
READER = ROOT / "clients" / "python" / "batch_frames.py"
READER_LINES_MAX = 66
TOPIC_URL = "/v1/topics/orders"


def name_of(vector: Vector) -> str:
    return str(vector["name"])


def raw_of(vector: Vector) -> bytes:
    return bytes.fromhex(vector["hex"])


def body_of(record: Vector) -> bytes:
    return base64.b64decode(record["body_base64"], validate=True)


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    """The reader, imported as if it had been copied from its place."""
    spec = importlib.util.spec_from_file_location("batch_frames", READER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_crc32(frame: bytes) -> bytes:
    """The frame with the other checksum, which is the one that the Spark connector asks for."""
    flags = bytes([frame[5] | FLAG_CRC32])
    return frame[:5] + flags + frame[6:12] + struct.pack(">I", zlib.crc32(frame[32:])) + frame[16:]


def decoded(frame: bytes, store_id: bytes = bytes(4)) -> Decoded:
    """What the Spark connector makes of an answer."""
    return decode(parse_frame(frame), "orders", 3, store_id, include_properties=True)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        run_node(tmp_path_factory.mktemp("frames") / "data") as node,
        httpx.Client(base_url=node.url, timeout=60) as client,
    ):
        client.put(TOPIC_URL, json={"queues": 1, "flush": "async"}).raise_for_status()
        yield client


def test_the_vectors_are_what_their_maker_makes() -> None:
    made = subprocess.run([sys.executable, PLACE / "make.py"], check=True, capture_output=True)
    assert made.stdout.decode() == (PLACE / "batch-frames.json").read_text()


# --- the reader -----------------------------------------------------------------------------


def test_the_reader_is_short_and_leans_on_the_standard_library() -> None:
    lines = READER.read_text().splitlines()
    assert len(lines) <= READER_LINES_MAX
    imports = [line for line in lines if line.startswith(("import", "from"))]
    assert imports == ["import struct", "import zlib"]


@pytest.mark.parametrize("vector", GOOD, ids=name_of)
def test_the_reader_reads(reader: ModuleType, vector: Vector) -> None:
    records = reader.read_frame(raw_of(vector))
    assert len(records) == len(vector["records"])
    for record, meant in zip(records, vector["records"], strict=True):
        body, properties = record["body"], dict(record["properties"])
        assert properties.pop("__CRC32#")
        assert (body, properties) == (body_of(meant), meant["properties"])
        rest = meant.keys() - {"body_base64", "properties"}
        assert {name: record[name] for name in rest} == {name: meant[name] for name in rest}


@pytest.mark.parametrize("vector", BAD, ids=name_of)
def test_the_reader_refuses_what_is_damaged(reader: ModuleType, vector: Vector) -> None:
    if vector["direction"] == "both":
        with pytest.raises((ValueError, struct.error)):
            reader.read_frame(raw_of(vector))


# --- the server -----------------------------------------------------------------------------


def post(http: httpx.Client, vector: Vector) -> httpx.Response:
    url = TOPIC_URL + "/messages:batch"
    return http.post(url, content=raw_of(vector), headers={"content-type": FRAMES})


def shown(view: Vector) -> Vector:
    """A message of a pull in the words of a vector."""
    names = {
        "tag": "TAGS",
        "sharding_key": "__SHARDINGKEY",
        "content_type": "MQ_CONTENT_TYPE",
    }
    properties = {name: view[field] for field, name in names.items() if field in view}
    if view["keys"]:
        properties["KEYS"] = " ".join(view["keys"])
    return {
        "topic": view["topic"],
        "born_time_ms": view["born_time_ms"],
        "body_base64": view["body_base64"],
        "properties": {**view["properties"], **properties},
    }


def test_the_server_delivers_each_record_in_its_time(http: httpx.Client) -> None:
    vector = next(
        each for each in REQUESTS if each["name"].endswith("five records, delivery times")
    )
    first = int(http.head(TOPIC_URL + "/queues/0").headers["mq-max-offset"])
    sent = post(http, vector)
    assert sent.status_code == 200, sent.text
    assert (sent.json()["count"], sent.json()["delayed_count"]) == (5, 1)
    assert sent.json()["first_queue_offset"] == first
    wanted = f"offset={first}&min_messages=5&wait=30s&body=base64"
    views = http.get(f"{TOPIC_URL}/queues/0/messages?{wanted}").json()["messages"]
    *others, waited = vector["records"][:2] + vector["records"][3:] + [vector["records"][2]]
    for view, meant in zip(views, [*others, waited], strict=True):
        assert view["body_base64"] == meant["body_base64"]
        assert view["born_time_ms"] == meant["born_time_ms"]


@pytest.mark.parametrize(
    "vector", [each for each in REQUESTS if "delivery_time" not in each["records"][0]], ids=name_of
)
def test_the_server_takes_and_gives_back(
    http: httpx.Client, reader: ModuleType, vector: Vector
) -> None:
    sent = post(http, vector)
    assert sent.status_code == 200, sent.text
    first = sent.json()["first_queue_offset"]
    assert sent.json()["count"] == len(vector["records"])
    url = f"{TOPIC_URL}/queues/0/messages?offset={first}"
    views = http.get(url + "&body=base64").json()["messages"]
    for view, meant in zip(views, vector["records"], strict=True):
        properties = dict(meant["properties"])
        unique = properties.pop("UNIQ_KEY", None)
        assert shown(view) == {**meant, "properties": properties}
        assert unique == view.get("unique_id")

    frame = http.get(url, headers={"accept": FRAMES})
    records = reader.read_frame(frame.content)
    assert [record["queue_offset"] for record in records] == [v["queue_offset"] for v in views]
    assert [record["body"] for record in records] == [body_of(v) for v in vector["records"]]
    batch, _ = decoded(with_crc32(frame.content), bytes.fromhex(frame.headers["mq-store-id"]))
    rows = batch.to_pylist()
    assert [row["message_id"] for row in rows] == [view["message_id"] for view in views]
    assert [row["value"] for row in rows] == [body_of(v) for v in vector["records"]]


@pytest.mark.parametrize("vector", BAD, ids=name_of)
def test_the_server_refuses_whole(http: httpx.Client, vector: Vector) -> None:
    before = http.head(TOPIC_URL + "/queues/0").headers["mq-max-offset"]
    refused = post(http, vector)
    assert refused.status_code in {400, 413}, refused.text
    problem = refused.json()
    assert (problem["code"], problem["outcome"]) in {
        ("MALFORMED_FRAME", "not_stored"),
        ("PAYLOAD_TOO_LARGE", "not_stored"),
    }
    if "index" in vector:
        assert problem["index"] == vector["index"], problem["detail"]
    assert http.head(TOPIC_URL + "/queues/0").headers["mq-max-offset"] == before


@pytest.mark.parametrize("vector", ANSWERS, ids=name_of)
def test_the_server_answers_in_these_bytes(reader: ModuleType, vector: Vector) -> None:
    raw = raw_of(vector)
    (count,) = struct.unpack_from(">I", raw, 8)
    sizes = struct.unpack_from(f">{count}I", raw, 32)
    hashes = struct.unpack_from(f">{count}q", raw, 32 + 4 * count)
    starts = [32 + 12 * count + sum(sizes[:index]) for index in range(count)]
    records = [raw[s : s + size] for s, size in zip(starts, sizes, strict=True)]
    stored = b"".join(records)
    for parts in ([stored], records):
        first = vector["first_queue_offset"]
        with_crc32 = bool(raw[5] & FLAG_CRC32)
        lead = encode_answer(np.array(sizes, np.int64), hashes, parts, first, with_crc32=with_crc32)
        assert lead + stored == raw
        if with_crc32:
            unseen = encode_answer_unseen(
                np.array(sizes, np.int64), hashes, zlib.crc32(stored), first
            )
            assert unseen == lead
    for record, meant in zip(records, vector["records"], strict=True):
        message = decode_message(record, bytes(4))
        assert message.body == body_of(meant)
        assert (message.queue_offset, message.tag) == (
            meant["queue_offset"],
            meant["properties"].get("TAGS"),
        )


# --- Spark ----------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", ANSWERS, ids=name_of)
def test_spark_decodes(vector: Vector) -> None:
    raw = raw_of(vector)
    if not raw[5] & FLAG_CRC32:
        with pytest.raises(ProtocolViolation, match="not asked for"):
            decoded(raw)
    batch, offsets = decoded(with_crc32(raw))
    meant = vector["records"]
    assert offsets.tolist() == [each["queue_offset"] for each in meant]
    for row, each in zip(batch.to_pylist(), meant, strict=True):
        properties = each["properties"]
        assert row["value"] == body_of(each)
        assert row["tag"] == properties.get("TAGS")
        assert row["timestamp"].timestamp() * 1000 == each["store_time_ms"]
        assert row["born_timestamp"].timestamp() * 1000 == each["born_time_ms"]
        assert dict(row["properties"]).items() <= properties.items()


@pytest.mark.parametrize(
    "vector", [each for each in BAD if each["direction"] == "both"], ids=name_of
)
def test_spark_refuses_what_is_damaged(vector: Vector) -> None:
    raw = bytearray(raw_of(vector))
    is_sound = len(raw) >= 32 and not raw[5] & FLAG_CRC32
    is_sound = is_sound and google_crc32c.value(bytes(raw[32:])) == int.from_bytes(raw[12:16])
    if len(raw) > 5:
        raw[5] |= 1  # it looks at answers only
    with pytest.raises((FrameDamaged, ProtocolViolation, Unsupported)):
        decoded(with_crc32(bytes(raw)) if is_sound else bytes(raw))

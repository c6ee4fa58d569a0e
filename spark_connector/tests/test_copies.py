"""Rows that are read and written again with changes: what columns and what properties say."""

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark_curlew.errors import RequestRefused, RowRefused
from pyspark_curlew.http.client import CurlewClient
from pyspark_curlew.writing.producer_identity import Producer
from pyspark_curlew.writing.rows import TIME, columns_to_send
from pyspark_curlew.writing.sink_options import parse_sink_options
from pyspark_curlew.writing.write_task import Sender, send_all

from app.domain.errors import IllegalProperty
from app.domain.limits import Limits
from app.domain.message import (
    FIELD_PROPERTIES,
    RESERVED_PROPERTIES,
    Message,
    check_message,
    queue_for_sharding_key,
)
from app.runtime.system_clock import SystemClock
from spark_connector.tests.support.real_node import RealNode
from spark_connector.tests.support.stored import rows_at, values_at
from tests.support.nodes.waiting import wait_until

MAP = pa.map_(pa.string(), pa.string())
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def send(node: RealNode, topic: str, *, most: str = "5000", **columns: Any) -> None:
    given = {"endpoint": node.base_url, "topic": topic, "sendMaxMessages": most}
    options = parse_sink_options(given)
    producer = Producer(f"spark:{topic}", 0, 0)
    sender = Sender(options, CurlewClient(options.http), 0, producer)
    batch = pa.RecordBatch.from_pydict(columns)
    assert send_all(sender, iter([batch])) == batch.num_rows


def read(node: RealNode, topic: str) -> list[dict[str, Any]]:
    shown = {"includeProperties": "true", "includeHeaders": "true"}
    return sorted(rows_at(node.base_url, topic, shown), key=lambda row: row["value"])


def maps(*rows: dict[str, str]) -> pa.Array:
    return pa.array([list(row.items()) for row in rows], MAP)


def test_a_column_wins_over_the_map(real: RealNode, topic: str) -> None:
    """A copy with another key and tag has these, and lies in the queue of its key."""
    copy = f"{topic}-copy"
    for name in (topic, copy):
        real.add_topic(name, 4)
    send(real, topic, value=[b"a", b"b"], key=["u1", "u2"], tag=["created", "paid"])
    rows = read(real, topic)
    pairs = pa.array([row["properties"] for row in rows], MAP)
    assert {name for row in rows for name, _ in row["properties"]} == {"TAGS", "__SHARDINGKEY"}
    keys = ["x-u1", "x-u2"]
    send(real, copy, value=[b"a", b"b"], key=keys, tag=["copied", None], properties=pairs)
    copies = read(real, copy)
    assert [row["key"] for row in copies] == [b"x-u1", b"x-u2"]
    assert [row["tag"] for row in copies] == ["copied", None], "also where it is null"
    assert [row["queue"] for row in copies] == [queue_for_sharding_key(key, 4) for key in keys]
    assert [row["partition"] for row in copies] == [row["queue"] for row in copies]


@pytest.mark.parametrize("with_column", [True, False])
def test_the_order_of_a_key_is_kept_with_and_without_the_column(
    real: RealNode, topic: str, with_column: bool
) -> None:
    real.add_topic(topic, 4)
    columns = {"key": ["k"] * 8} if with_column else {}
    pairs = maps(*[{"__SHARDINGKEY": "k", "n": str(n)} for n in range(8)])
    values = [b"%d" % number for number in range(8)]
    send(real, topic, value=values, properties=pairs, **columns)
    rows = read(real, topic)
    assert {row["queue"] for row in rows} == {queue_for_sharding_key("k", 4)}
    assert [row["offset"] for row in rows] == list(range(8))
    assert {row["key"] for row in rows} == {b"k"}


def test_a_copy_has_what_the_message_had_and_the_stores_id_is_its_own(
    real: RealNode, topic: str
) -> None:
    """What was delayed keeps in `UNIQ_KEY` the id that the store gave it: no part of a copy."""
    real.add_topic(topic, 1)
    real.add_topic(f"{topic}-copy", 1)
    own = {"KEYS": "a b", "MQ_CONTENT_TYPE": "text/plain", "region": "eu"}
    given = maps({**own, "UNIQ_KEY": "mine-1"}, own, {**own, "UNIQ_KEY": "mine-2"}, own)
    send(real, topic, value=[b"a", b"b", b"c", b"d"], properties=given, delayMs=[0, 0, 50, 50])
    wait_until(lambda: len(read(real, topic)) == 4)
    rows = read(real, topic)
    shown = [dict(row["properties"]) for row in rows]
    assert shown == [dict(pairs) for pairs in given.to_pylist()]
    pairs = pa.array([row["properties"] for row in rows], MAP)
    send(real, f"{topic}-copy", value=[row["value"] for row in rows], properties=pairs)
    copies = read(real, f"{topic}-copy")
    assert [dict(row["properties"]) for row in copies] == shown
    ids = {row["message_id"] for row in [*rows, *copies]}
    assert len(ids) == 8, "each is the store's own"


def test_two_rows_of_a_request_with_one_id_are_refused_by_name(real: RealNode, topic: str) -> None:
    real.add_topic(topic, 1)
    with pytest.raises(RequestRefused, match="record 1: property 'UNIQ_KEY' is 'one', as in"):
        send(real, topic, value=[b"a", b"b"], properties=maps(*[{"UNIQ_KEY": "one"}] * 2))
    assert read(real, topic) == []


def test_headers_are_properties_in_kafkas_form(real: RealNode, topic: str) -> None:
    real.add_topic(topic, 1)
    headers = pa.array([[{"key": "region", "value": b"eu"}], None], HEADERS)
    send(real, topic, value=[b"a", b"b"], headers=headers)
    assert [row["headers"] for row in read(real, topic)] == [
        [{"key": "region", "value": b"eu"}],
        [],
    ]
    for wrong, words in (
        ([{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}], "has a name twice"),
        ([{"key": "a", "value": b"\xff"}], r"'headers' has bytes .* base64\(h\.value\)"),
        ([{"key": "DELAY", "value": b"1"}], "'headers' has the reserved name 'DELAY'"),
        ([{"key": "CORRELATION_ID", "value": b"1"}], "reserved name 'CORRELATION_ID'"),
        ([{"key": "a", "value": None}], "'headers' is null or empty .* a value .* for 'a'"),
        ([{"key": "a", "value": b""}], "'headers' is null or empty .* a value .* for 'a'"),
        ([{"key": "", "value": b"1"}], "'headers' is null or empty .* a name is wanted: write"),
        ([{"key": None, "value": b"1"}], "'headers' is null or empty .* a name is wanted: write"),
        ([None], "'headers' is null or empty .* a name is wanted: write filter"),
        ([{"key": "a", "value": b"\x01"}], r"'headers' has a character U\+0001"),
        ([{"key": "TAGS", "value": b"a||b"}], "property 'TAGS' of column 'headers' has 'a"),
    ):
        with pytest.raises(RowRefused, match=words):
            send(real, topic, value=[b"a"], headers=pa.array([wrong], HEADERS))


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
@pytest.mark.parametrize("column", ["properties", "headers"])
def test_a_reserved_name_is_a_field_of_the_message_or_refused(name: str, column: str) -> None:
    """As in a frame; what has a field of its own in JSON, JSON refuses among the properties."""
    with pytest.raises(IllegalProperty):
        check_message(Message(b"", properties={name: "x"}), Limits())
    pairs = [{"key": name, "value": b"x"}, {"key": "o", "value": b"y"}]
    given = maps({name: "x", "o": "y"}) if column == "properties" else pa.array([pairs], HEADERS)
    batch = pa.RecordBatch.from_pydict({"value": [b"a"], column: given})
    if name not in FIELD_PROPERTIES:
        with pytest.raises(RowRefused, match=f"'{column}' has the reserved name '{name}'"):
            columns_to_send(batch)
        return
    sent = columns_to_send(batch)
    expected = {b"o"} if name == "__SHARDINGKEY" else {b"o", name.encode()}
    assert {pair[0] for pair in sent.column("properties").to_pylist()[0]} == expected
    assert ("key" in sent.schema.names) == (name == "__SHARDINGKEY")


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_rows_of_a_slice_have_their_own_properties(cut: int) -> None:
    pairs = maps(*[{"__SHARDINGKEY": f"k{n}"} if n % 2 else {"a": f"v{n}"} for n in range(4)], {})
    whole = pa.RecordBatch.from_pydict({"value": [b"v"] * 5, "properties": pairs})
    sent = columns_to_send(whole.slice(cut))
    keys = [b"k1" if n == 1 else b"k3" if n == 3 else None for n in range(5)]
    assert sent.column("key").to_pylist() == keys[cut:]
    expected = [[(b"a", b"v%d" % n)] if n in {0, 2} else [] for n in range(5)]
    assert sent.column("properties").to_pylist() == expected[cut:]


def test_what_has_passed_is_now() -> None:
    moment = datetime.datetime.fromtimestamp(1_700_000_000.1234, datetime.UTC)
    at = pa.array([moment, None, datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)])
    times = columns_to_send(pa.RecordBatch.from_pydict({"value": [b""] * 3, "deliverAt": at}))
    assert times.column(TIME).to_pylist() == [1_700_000_000_123, 0, 0]
    delays = pa.RecordBatch.from_pydict({"value": [b""] * 4, "delayMs": [50, None, -100, 0]})
    assert columns_to_send(delays).column(TIME).to_pylist() == [-50, 0, 0, 0]
    assert TIME not in columns_to_send(delays.slice(1)).schema.names


@pytest.mark.parametrize("column", ["deliverAt", "delayMs"])
def test_rows_that_are_delivered_later(real: RealNode, topic: str, column: str) -> None:
    """Once each, although the task runs twice; those without a delay come at once, in order."""
    soon = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000 + 0.3, datetime.UTC)
    later: Any = soon if column == "deliverAt" else 300
    real.add_topic(topic, 2)
    rows = {
        "value": [b"%d" % n for n in range(20)],
        "key": [f"k{n % 3}" for n in range(20)],
        "tag": ["t"] * 20,
        column: [later if n % 2 else None for n in range(20)],
    }
    for most in ("2", "5"):
        send(real, topic, most=most, **rows)
    assert set(values_at(real.base_url, topic)) >= set(range(0, 20, 2))
    wait_until(lambda: len(values_at(real.base_url, topic)) >= 20)
    assert values_at(real.base_url, topic) == list(range(20))

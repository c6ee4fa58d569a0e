"""Rows that are delivered later: sent as JSON, once each, in portions of rows and bytes."""

import base64
import datetime
import json
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark_curlew.client import CurlewClient
from pyspark_curlew.producing import Producer
from pyspark_curlew.sending import Sender, send_all
from pyspark_curlew.sink_options import parse_sink_options

from app.runtime.system_clock import SystemClock
from spark_connector.tests.support.fake_node import run_fake_node
from spark_connector.tests.support.real_node import run_real_node
from spark_connector.tests.support.stored import values_at
from tests.support.nodes.waiting import wait_until


def test_rows_that_are_delivered_later(tmp_path: Path) -> None:
    """Once each, although the task runs twice; those without a delay come at once."""
    soon = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000 + 0.3, datetime.UTC)
    kinds = [("value", pa.binary()), ("key", pa.string()), ("tag", pa.string())]
    schema = pa.schema([*kinds, ("deliverAt", pa.timestamp("us", "UTC"))])
    rows = [
        {"value": b"%d" % n, "key": f"k{n}", "tag": "t", "deliverAt": soon if n % 2 else None}
        for n in range(10)
    ]
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 2)
        for _ in range(2):
            options = parse_sink_options(
                {"endpoint": node.base_url, "topic": "orders", "sendMaxMessages": "2"}
            )
            sender = Sender(options, CurlewClient(options.http), 0, Producer("spark:q2", 0, 0))
            part = pa.RecordBatch.from_pylist(rows, schema)
            assert send_all(sender, iter([part])) == 10
        assert set(values_at(node.base_url)) >= {0, 2, 4, 6, 8}
        wait_until(lambda: len(values_at(node.base_url)) >= 10)
        assert values_at(node.base_url) == list(range(10))


@given(st.lists(st.integers(0, 900), min_size=1, max_size=9), st.integers(1, 4))
@settings(deadline=None, max_examples=30)
def test_delayed_rows_are_sent_in_portions_of_bytes_too(sizes: list[int], most: int) -> None:
    """Or some large ones are more than the service takes in a request."""
    with run_fake_node() as node:
        node.add_topic("orders", 2)
        given = {"sendMaxMessages": str(most), "sendMaxBytes": "1024"}
        options = parse_sink_options({"endpoint": node.base_url, "topic": "orders", **given})
        values = [b"%d" % number * size for number, size in enumerate(sizes)]
        rows = pa.RecordBatch.from_pydict({"value": values, "delayMs": [1] * len(values)})
        parts = [rows.slice(first, 2) for first in range(0, len(values), 2)]
        sender = Sender(options, CurlewClient(options.http), 0, None)
        assert send_all(sender, iter(parts)) == len(values)
    requests = [body.split(b"\n") for _, _, body in node.sent]
    lines = [json.loads(line) for lines in requests for line in lines]
    assert [base64.b64decode(line["body_base64"]) for line in lines] == values
    for each in requests:
        assert len(each) <= most
        assert len(b"\n".join(each)) <= 1024 or len(each) == 1


def test_delayed_rows_of_a_repeated_batch_keep_the_size_of_their_portions(tmp_path: Path) -> None:
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 2)
        for count, most in ((6, 3), (20, 4)):
            options = parse_sink_options(
                {"endpoint": node.base_url, "topic": "orders", "sendMaxMessages": str(most)}
            )
            sender = Sender(options, CurlewClient(options.http), 0, Producer("spark:q", 0, 1))
            values = [b"%d" % number for number in range(count)]
            rows = pa.RecordBatch.from_pydict({"value": values, "delayMs": [1] * count})
            assert send_all(sender, iter([rows])) == count
        wait_until(lambda: len(values_at(node.base_url)) >= 20)
        assert values_at(node.base_url) == list(range(20))

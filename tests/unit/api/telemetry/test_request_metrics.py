"""Counting answers, and the Prometheus text made of the counts."""

import re

from app.api.http.memory_budget import MemoryBudget
from app.api.telemetry.metrics import Sources
from app.api.telemetry.request_metrics import CLIENT_GONE, LATENCY_BUCKETS_S, RequestMetrics
from app.api.telemetry.traffic_metrics import node_labels
from app.domain.limits import Limits
from tests.support.exposition import render_metrics
from tests.support.nodes.brokers import World

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? -?[0-9.e+-]+')


NODE = node_labels(World().broker)


class Counts:
    """The connections of a made-up server."""

    open_count = 3
    refused_count = 2
    late_count = 1
    handshakes_failed_count = 0
    pressure = MemoryBudget(Limits())


def rendered(traffic: RequestMetrics) -> dict[str, float]:
    world = World()
    text = render_metrics(Sources(world.broker, world.metadata, traffic, Counts(), 0))
    assert text.endswith("\n")
    values = {}
    families: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            name = line.split()[2]
            assert name not in families, "a family is declared twice"
            families.add(name)
        elif not line.startswith("#"):
            assert LINE.fullmatch(line), line
            series, _, value = line.rpartition(" ")
            name = re.sub(r"_(bucket|sum|count)$", "", series.partition("{")[0])
            assert name in families, f"{name} is not declared"
            assert series not in values, f"{series} is given twice"
            values[series] = float(value)
    return values


def test_messages_and_bytes_are_counted_both_ways() -> None:
    traffic = RequestMetrics()
    traffic.taken_in(2, 30)
    traffic.taken_in(1, 5)
    traffic.sent_out(4, 7)
    values = rendered(traffic)
    assert values["curlew_http_messages_in_total"] == 3
    assert values["curlew_http_bytes_in_total"] == 35
    assert values["curlew_http_messages_out_total"] == 4
    assert values["curlew_http_bytes_out_total"] == 7


def test_answers_are_counted_by_operation_and_status() -> None:
    traffic = RequestMetrics()
    for status in (200, 200, 404, 0):
        traffic.answered("pull", status, 0.002)
    values = rendered(traffic)
    name = "curlew_http_answers_total"
    assert values[f'{name}{{operation="pull",status="200"}}'] == 2
    assert values[f'{name}{{operation="pull",status="404"}}'] == 1
    assert values[f'{name}{{operation="pull",status="{CLIENT_GONE}"}}'] == 1


def test_latencies_are_cumulative_and_a_bound_belongs_to_its_bucket() -> None:
    traffic = RequestMetrics()
    for seconds in (LATENCY_BUCKETS_S[0], 0.002, 1_000.0):
        traffic.answered("send", 201, seconds)
    values = rendered(traffic)
    name = "rocketmq_rpc_latency"
    send = f'{NODE},operation="send",request_code="send",protocol_type="http",response_code="201"'
    assert values[f'{name}_bucket{{{send},le="0.5"}}'] == 1
    assert values[f'{name}_bucket{{{send},le="2.5"}}'] == 2
    assert values[f'{name}_bucket{{{send},le="30000"}}'] == 2
    assert values[f'{name}_bucket{{{send},le="+Inf"}}'] == 3
    assert values[f"{name}_count{{{send}}}"] == 3
    assert abs(values[f"{name}_sum{{{send}}}"] - 1_000_002.5) < 0.001


def test_the_node_behind_is_described() -> None:
    world = World()
    world.store.state.start, world.store.state.written_end = 100, 700
    world.store.state.flushed_end, world.store.state.pending_bytes = 600, 40
    text = render_metrics(Sources(world.broker, world.metadata, RequestMetrics(), Counts(), 0))
    disk = f'{{{NODE},storage_type="local",storage_medium="disk"}}'
    assert f"\nrocketmq_storage_size{disk} 600\n" in text
    assert f"\nrocketmq_storage_flush_behind_bytes{disk} 100\n" in text
    assert f"\nrocketmq_broker_permission{{{NODE}}} 0\n" in text
    assert "\ncurlew_storage_pending_bytes 40\n" in text
    assert "\ncurlew_ready 0\n" in text, "a broker that has not started is not ready"
    assert "\ncurlew_http_connections 3\n" in text
    assert "\ncurlew_http_refused_total 2\n" in text
    assert "\ncurlew_http_late_total 1\n" in text


def test_the_disk_and_the_syncs_of_the_log_are_told() -> None:
    world = World()
    world.store.state.segments = 3
    for seconds in (0.0004, 0.003, 9.0):
        world.store.sync_times.note(seconds)
    sources = Sources(world.broker, world.metadata, RequestMetrics(), None, 0)
    text = render_metrics(sources)
    assert "\ncurlew_disk_bytes 2000\n" in text
    assert "\ncurlew_disk_free_bytes 500\n" in text
    assert "\ncurlew_log_segments 3\n" in text
    for line in ('_bucket{le="0.0005"} 1', '_bucket{le="0.005"} 2', '_bucket{le="2.5"} 2'):
        assert f"\ncurlew_log_sync_seconds{line}\n" in text
    assert "\ncurlew_log_sync_seconds_sum 9.0034\n" in text
    assert "\ncurlew_log_sync_seconds_count 3\n" in text
    world.store.disk = None
    text = render_metrics(sources)
    assert "curlew_disk" not in text, "a disk that does not answer keeps nothing else back"
    assert "\ncurlew_log_segments 3\n" in text


def test_a_server_without_a_guard_has_no_connections_to_count() -> None:
    world = World()
    text = render_metrics(Sources(world.broker, world.metadata, RequestMetrics(), None, 0))
    assert "curlew_http_connections" not in text


def test_the_lag_of_the_event_loop_is_told() -> None:
    world = World()
    for late_s in (0.001, 0.06, 0.04):
        world.broker.loop_lag.note(late_s)
    first, second = (
        render_metrics(Sources(world.broker, world.metadata, RequestMetrics(), None, 0))
        for _ in range(2)
    )
    assert "\ncurlew_event_loop_lag_max_seconds 0.06\n" in first
    assert "\ncurlew_event_loop_lag_max_seconds 0\n" in second
    for line in ('_bucket{le="0.005"} 1', '_bucket{le="0.05"} 2', '_bucket{le="+Inf"} 3'):
        assert f"\ncurlew_event_loop_lag_seconds{line}\n" in second
    assert "\ncurlew_event_loop_lag_seconds_sum 0.101000\n" in second

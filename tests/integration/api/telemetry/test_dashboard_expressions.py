"""The expressions of RocketMQ 5's Grafana dashboards, evaluated against `/metrics` after traffic.

Each expression is what a panel or a variable asks. A name or a label that a node does not have
would leave the panel empty, without an error; what we do not have is listed in the docs.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from tests.support.nodes.node import ROOT, run_node
from tests.support.nodes.waiting import wait_until

NODE: Final = 'cluster="$cluster",node_id="$node_id"'
TOPIC: Final = f'{NODE},topic="$topic"'
PAIR: Final = f'{TOPIC},consumer_group="$consumer_group"'


def above(bound: float) -> Callable[[float], bool]:
    return lambda value: value > bound


def exactly(expected: float) -> Callable[[float], bool]:
    return lambda value: value == expected


PANELS: Final[tuple[tuple[str, Callable[[float], bool]], ...]] = (
    # Throughput of the cluster, of nodes, of topics, of groups.
    ("sum(rate(rocketmq_messages_in_total[1m])) by (cluster)", exactly(5)),
    ("sum(rate(rocketmq_messages_in_total[1m])) by (cluster, node_id)", exactly(5)),
    ('sum(rate(rocketmq_messages_in_total{node_type="broker"}[1m])) by (node_id)', exactly(5)),
    (f"sum(rate(rocketmq_messages_in_total{{{NODE}}}[1m])) by (topic)", exactly(5)),
    ("sum(rate(rocketmq_messages_in_total[1m])) by (message_type)", exactly(5)),
    ('sum(rate(rocketmq_messages_in_total{message_type="fifo"}[1m]))', exactly(1)),
    ('sum(rate(rocketmq_messages_in_total{is_system="false"}[1m])) by (topic)', exactly(5)),
    ("topk(10, sum(rate(rocketmq_messages_in_total[1m])) by (topic))", exactly(5)),
    (f"sum(rate(rocketmq_throughput_in_total{{{TOPIC}}}[1m]))", exactly(20)),
    ("sum(rate(rocketmq_throughput_in_total[1m])) by (cluster, node_id)", exactly(25)),
    (f"sum(rate(rocketmq_messages_out_total{{{PAIR}}}[1m]))", exactly(3)),
    ("sum(rate(rocketmq_messages_out_total[1m])) by (consumer_group, topic)", exactly(3)),
    ('sum(rate(rocketmq_messages_out_total{is_retry="false"}[1m])) by (topic)', exactly(3)),
    ('sum(rate(rocketmq_messages_out_total{is_system="false"}[1m]))', exactly(3)),
    (f"sum(rate(rocketmq_throughput_out_total{{{PAIR}}}[1m]))", exactly(15)),
    ("sum(rate(rocketmq_throughput_out_total[1m])) by (cluster, node_id)", exactly(15)),
    # Groups: what waits, and for how long.
    (f"sum(rocketmq_consumer_lag_messages{{{PAIR}}})", exactly(2)),
    ("sum(rocketmq_consumer_lag_messages) by (consumer_group, topic)", exactly(2)),
    ('sum(rocketmq_consumer_lag_messages{is_retry="false"}) by (consumer_group)', exactly(2)),
    (f"sum(rocketmq_consumer_ready_messages{{{PAIR}}})", exactly(1)),
    (f"sum(rocketmq_consumer_inflight_messages{{{PAIR}}})", exactly(1)),
    (f"max(rocketmq_consumer_lag_latency{{{PAIR}}})", above(0)),
    (f"max(rocketmq_consumer_queueing_latency{{{PAIR}}})", above(0)),
    ("max(rocketmq_consumer_lag_latency) by (consumer_group, topic)", above(0)),
    (f"sum(increase(rocketmq_send_to_dlq_messages_total{{{PAIR}}}[1m]))", exactly(1)),
    ("sum(rocketmq_send_to_dlq_messages_total) by (consumer_group, topic)", exactly(1)),
    # Sizes and times.
    (f'sum(increase(rocketmq_message_size_bucket{{{TOPIC},le="1024"}}[1m]))', exactly(4)),
    ("sum(rate(rocketmq_message_size_bucket[1m])) by (le, topic, message_type)", above(0)),
    (
        "histogram_quantile(0.99, sum(rate(rocketmq_rpc_latency_bucket[1m])) by"
        " (le, request_code, response_code, protocol_type, node_id))",
        above(0),
    ),
    (
        f"sum(rate(rocketmq_rpc_latency_sum{{{NODE}}}[1m])) by (request_code)"
        f" / sum(rate(rocketmq_rpc_latency_count{{{NODE}}}[1m])) by (request_code)",
        above(0),
    ),
    (
        'sum(rate(rocketmq_rpc_latency_count{request_code="send_message",response_code="201"}[1m]))',
        exactly(5),
    ),
    # Clients.
    (
        "sum(rocketmq_producer_connections{protocol_type='http'})"
        " by (cluster, node_id, language, version, protocol_type)",
        above(0),
    ),
    (
        "sum(rocketmq_consumer_connections{consumer_group='billing',is_system='false'})"
        " by (cluster, node_id, consumer_group, consume_mode, language, version, protocol_type)",
        above(0),
    ),
    # The node.
    (f"rocketmq_storage_size{{{NODE}}}", above(0)),
    (
        "rocketmq_storage_size{storage_type='local',storage_medium='disk',"
        "node_type='broker',cluster='$cluster'}",
        above(0),
    ),
    ("rocketmq_storage_flush_behind_bytes{cluster=~'$cluster'}", above(-1)),
    ("rocketmq_storage_dispatch_behind_bytes{cluster=~'$cluster'}", exactly(0)),
    ("sum(rocketmq_broker_permission{node_type='broker'}) by (cluster, node_id)", exactly(6)),
    ("sum(rocketmq_topic_number) by (cluster, node_id)", above(1)),
    ("sum(rocketmq_consumer_group_number) by (cluster, node_id)", exactly(1)),
    ("sum(rocketmq_half_messages) by (node_id, topic)", exactly(0)),
    ("sum(rocketmq_timing_messages) by (node_id, topic)", above(-1)),
)

VARIABLES: Final = (
    "label_values(rocketmq_messages_in_total, cluster)",
    "label_values(rocketmq_messages_in_total, node_type)",
    "label_values(rocketmq_messages_in_total, node_id)",
    "label_values(rocketmq_messages_in_total, topic)",
    "label_values(rocketmq_messages_out_total, consumer_group)",
    "label_values(rocketmq_consumer_lag_messages, consumer_group)",
    "label_values(rocketmq_rpc_latency_bucket, request_code)",
)

NOT_HERE: Final = (
    *("rocketmq_processor_watermark", "rocketmq_proxy_up", "rocketmq_storage_message_reserve_time"),
    *("rocketmq_commit_messages_total", "rocketmq_rollback_messages_total"),
    *("rocketmq_finish_message_latency", "rocketmq_topic_create_execution_time"),
    *("rocketmq_consumer_group_create_execution_time", "rocketmq_delay_message_latency"),
    *("rocketmq_timer_enqueue_total", "rocketmq_timer_dequeue_total", "rocketmq_timer_enqueue_lag"),
    *("rocketmq_timer_dequeue_lag", "rocketmq_timer_message_snapshot", "rocketmq_pop_revive_lag"),
    *("rocketmq_send_cost_time", "rocketmq_process_time", "rocketmq_await_time"),
    *("rocketmq_consumer_cached_messages", "rocketmq_consumer_cached_bytes"),
    *("rocketmq_tiered_store_messages_out_total", "rocketmq_rocksdb_bytes_read"),
)
"""Of RocketMQ 5's names, those of what a node has not: the docs say why."""

_SELECTOR: Final = re.compile(r"(rocketmq_[a-z_]+)(\{[^}]*\})?")
_MATCHER: Final = re.compile(r"""([a-z_]+)(=~|=)["']([^"']*)["']""")
_BY: Final = re.compile(r"by\s*\(([^)]*)\)")
_SAMPLE: Final = re.compile(r"([a-z_]+)\{([^}]*)\} (\S+)")


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class EmptyPanel(AssertionError):
    """What a dashboard would show nothing for."""


def samples_of(text: str) -> list[Sample]:
    found = [_SAMPLE.fullmatch(line) for line in text.splitlines()]
    return [
        Sample(each[1], dict(re.findall(r'([a-z_]+)="([^"]*)"', each[2])), float(each[3]))
        for each in found
        if each
    ]


def evaluated(expression: str, samples: list[Sample], variables: dict[str, str]) -> float:
    """The sum of what the last selector of an expression chooses; all of them choose something.

    Counters began at zero with the node, so that a sum stands for a rate or an increase.
    """
    by = {label.strip() for group in _BY.findall(expression) for label in group.split(",")}
    total = 0.0
    for name, braces in _SELECTOR.findall(expression):
        chosen = [each for each in samples if each.name == name]
        for label, operator, wanted in _MATCHER.findall(braces):
            value = variables.get(wanted.removeprefix("$"), wanted)
            pattern = re.compile(value if operator == "=~" else re.escape(value))
            chosen = [s for s in chosen if pattern.fullmatch(s.labels.get(label, ""))]
        if not chosen:
            raise EmptyPanel(f"{expression}: {name}{braces} selects nothing")
        for sample in chosen:
            if missing := by - sample.labels.keys():
                raise EmptyPanel(f"{expression}: {name} has no label {sorted(missing)}")
        total = sum(sample.value for sample in chosen)
    return total


def traffic(http: httpx.Client) -> None:
    """Five messages; of three that are received one is acked, one dead and one held."""
    one = {"mq-sharding-key": "a"}
    http.post("/v1/topics/steps/messages", content=b"12345", headers=one).raise_for_status()
    for _ in range(4):
        http.post("/v1/topics/orders/messages", content=b"12345").raise_for_status()
    base = "/v1/topics/orders/groups/billing"
    got = http.post(f"{base}/messages:receive?max_messages=3").json()["messages"]
    acked, dead, _held = [each["receipt_handle"] for each in got]
    settles = {"acks": [acked], "dead_letters": [{"receipt_handle": dead}]}
    http.post(f"{base}/messages:settle", json=settles).raise_for_status()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`/metrics` of a node through which five messages went."""
    directory = tmp_path_factory.mktemp("dashboard")
    with run_node(directory) as node, httpx.Client(base_url=node.url, timeout=60) as http:
        http.put("/v1/topics/steps", json={"type": "fifo"}).raise_for_status()
        traffic(http)

        def queued() -> bool:
            found = samples_of(http.get("/metrics").text)
            name = "rocketmq_consumer_queueing_latency"
            return max(each.value for each in found if each.name == name) > 0

        wait_until(queued)
        yield http.get("/metrics").text


@pytest.fixture(scope="module")
def variables(text: str) -> dict[str, str]:
    """What an operator would have chosen above the panels."""
    labels = next(s.labels for s in samples_of(text) if s.name == "rocketmq_topic_number")
    return labels | {"topic": "orders", "consumer_group": "billing"}


@pytest.mark.parametrize(("expression", "is_right"), PANELS)
def test_a_panel_shows_our_figures(
    expression: str, is_right: Callable[[float], bool], text: str, variables: dict[str, str]
) -> None:
    value = evaluated(expression, samples_of(text), variables)
    assert is_right(value), f"{expression} is {value}"


@pytest.mark.parametrize("expression", VARIABLES)
def test_a_variable_has_values(expression: str, text: str) -> None:
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", expression)
    assert found
    values = {s.labels.get(found[2]) for s in samples_of(text) if s.name == found[1]}
    assert values - {None, "", "_other"}


def test_an_expression_with_an_unknown_name_or_label_is_noticed(
    text: str, variables: dict[str, str]
) -> None:
    for wrong in (
        "sum(rocketmq_messages_in)",
        "sum(rate(rocketmq_messages_in_total[1m])) by (broker)",
        "rocketmq_storage_size{cluster='other'}",
    ):
        with pytest.raises(EmptyPanel):
            evaluated(wrong, samples_of(text), variables)


@pytest.mark.parametrize("name", NOT_HERE)
def test_what_a_node_has_not_is_listed(name: str, text: str) -> None:
    assert f"\n{name}" not in text
    page = Path(ROOT / "docs/running/statistics.md").read_text()
    families = re.findall(r"`(rocketmq_[a-z_]+\*?)`", page)
    assert any(re.fullmatch(each.replace("*", ".*"), name) for each in families), name

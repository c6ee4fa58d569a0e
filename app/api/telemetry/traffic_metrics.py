"""Metrics by topic and by group, with RocketMQ 5's names, labels and units.

Named are the topics, and the groups in their topics, with the most messages; all others are one
sample, so that the answer is bounded whatever clients make. A dashboard that sums over a label gets
everything. Pure but for reading its sources.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import accumulate
from typing import Final, TypeVar

from app.api.telemetry.metric_family import Family
from app.broker import Broker
from app.broker.figures.clients import ClientTable, Kind
from app.broker.figures.counters import (
    LATENCY_BOUNDS_MS,
    SIZE_BOUNDS_BYTES,
    Figures,
    GroupFigures,
    TopicFigures,
)
from app.broker.figures.traffic_statistics import OTHER
from app.broker.insight.lag import PairLag
from app.broker.ports import Metadata
from app.domain.limits import LANGUAGES_SHOWN_MAX, METRIC_LABELS_MAX

_OUR_CLIENT: Final = re.compile(r"curlew-client-([a-z]{1,16})/([0-9A-Za-z.+-]{1,32})")
_OTHER_LANGUAGE: Final = ("other", "")
_BY_HTTP: Final = 'protocol_type="http"'
_MODES: Final[Mapping[Kind, str]] = {
    "receive": "pop",
    "stream": "push",
    "heartbeat": "pull",
    "poll": "pull",
}
"""How consumers get messages, in RocketMQ's words: by leases, as they come, or by offsets."""

Lags = tuple[Sequence[PairLag], PairLag]

_Key = TypeVar("_Key")
_Figures = TypeVar("_Figures", bound=Figures)


def node_labels(broker: Broker) -> str:
    """By which RocketMQ's dashboards choose cluster and node."""
    return f'cluster="curlew",node_type="broker",node_id="{broker.store.store_id.hex()}"'


def traffic_families(broker: Broker, metadata: Metadata, lags: Lags) -> Iterator[Family]:
    """All of them."""
    node = node_labels(broker)
    statistics = broker.statistics
    statistics.count_puts()

    def of_topic(name: str) -> str:
        view = metadata.snapshot.topics.get(name)
        kind = "normal" if view is None else view.type.value
        return f'{node},topic="{name}",message_type="{kind}",is_system="false"'

    def of_pair(group: str, topic: str) -> str:
        end = 'is_system="false",is_retry="false"'
        return f'{node},topic="{topic}",consumer_group="{group}",{end}'

    named = _loudest(statistics.topics, statistics.other_topic, OTHER, _in_and_out)
    topics = [(of_topic(name), name, figures) for name, figures in named]
    pairs = _loudest(statistics.groups, statistics.other_group, (OTHER, OTHER), _handed_out)
    groups = [(of_pair(*key), figures) for key, figures in pairs]
    yield from _sent(topics)
    plain = [(of_pair("", name), figures) for _, name, figures in topics]
    yield from _handed(plain, groups)
    yield from _puts(topics)
    yield from _connections(broker, node)
    yield _half_messages(broker, node)
    yield from _lag(lags, of_pair, broker.store_now_ms())


def _in_and_out(figures: TopicFigures) -> int:
    return figures.in_count + figures.out_count


def _handed_out(figures: GroupFigures) -> int:
    return figures.out_count + figures.acks_ok


def _loudest(
    rows: Mapping[_Key, _Figures],
    other: _Figures,
    other_key: _Key,
    weight: Callable[[_Figures], int],
) -> list[tuple[_Key, _Figures]]:
    """Those that are named, and one for all others."""
    found = nlargest(METRIC_LABELS_MAX, rows.items(), key=lambda row: weight(row[1]))
    if len(rows) <= METRIC_LABELS_MAX:
        return [*found, (other_key, other)]
    shown = {key for key, _ in found}
    rest = type(other)(other.since_ms)
    for figures in (other, *(each for key, each in rows.items() if key not in shown)):
        _add(rest, figures)
    return [*found, (other_key, rest)]


def _add(rest: Figures, figures: Figures) -> None:
    for name in figures.sums()._fields:
        setattr(rest, name, getattr(rest, name) + getattr(figures, name))
    if isinstance(rest, TopicFigures) and isinstance(figures, TopicFigures):
        rest.latency = [a + b for a, b in zip(rest.latency, figures.latency, strict=True)]
        rest.sizes = [a + b for a, b in zip(rest.sizes, figures.sizes, strict=True)]
        rest.latency_ms += figures.latency_ms
        for code, count in figures.failures.items():
            rest.failures[code] = rest.failures.get(code, 0) + count


_Topics = Sequence[tuple[str, str, TopicFigures]]
"""Labels, name, figures."""


def _sent(topics: _Topics) -> Iterator[Family]:
    yield Family(
        "rocketmq_messages_in_total",
        "counter",
        "Messages stored.",
        [(f"{{{labels}}}", figures.in_count) for labels, _, figures in topics],
    )
    yield Family(
        "rocketmq_throughput_in_total",
        "counter",
        "Bytes of bodies stored.",
        [(f"{{{labels}}}", figures.in_bytes) for labels, _, figures in topics],
    )
    yield Family(
        "curlew_send_failures_total",
        "counter",
        "Sends that were refused or failed, by code.",
        [
            (f'{{{labels},code="{code}"}}', count)
            for labels, _, figures in topics
            for code, count in sorted(figures.failures.items())
        ],
    )


def _handed(
    plain: Sequence[tuple[str, TopicFigures]], groups: Sequence[tuple[str, GroupFigures]]
) -> Iterator[Family]:
    """`plain` was pulled without a group, whose label is empty then."""
    rows: list[tuple[str, Figures]] = [*plain, *groups]
    yield Family(
        "rocketmq_messages_out_total",
        "counter",
        "Messages handed out; consumer_group is empty for plain pulls and streams.",
        [(f"{{{labels}}}", figures.out_count) for labels, figures in rows],
    )
    yield Family(
        "rocketmq_throughput_out_total",
        "counter",
        "Bytes handed out: bodies, or whole records in frames.",
        [(f"{{{labels}}}", figures.out_bytes) for labels, figures in rows],
    )
    yield Family(
        "rocketmq_send_to_dlq_messages_total",
        "counter",
        "Messages that groups gave up.",
        [(f"{{{labels}}}", figures.dead_letters) for labels, figures in groups],
    )
    yield Family(
        "curlew_acks_total",
        "counter",
        "Receipt handles that acked, and that could not.",
        [
            (f'{{{labels},result="{result}"}}', value)
            for labels, figures in groups
            for result, value in (("ok", figures.acks_ok), ("failed", figures.acks_failed))
        ],
    )
    yield Family(
        "curlew_retries_total",
        "counter",
        "Failed deliveries that come again.",
        [(f"{{{labels}}}", figures.retries) for labels, figures in groups],
    )


def _puts(topics: _Topics) -> Iterator[Family]:
    yield Family(
        "rocketmq_message_size",
        "histogram",
        "Bytes of a message; those of a batch count with their mean.",
        [
            sample
            for labels, _, figures in topics
            for sample in _histogram(labels, SIZE_BOUNDS_BYTES, figures.sizes, figures.in_bytes)
        ],
    )
    counts = [sum(each) for each in zip(*(row[2].latency for row in topics), strict=True)]
    total = sum(figures.latency_ms for _, _, figures in topics)
    yield Family(
        "curlew_put_latency",
        "histogram",
        "Milliseconds that the store took for a send; by topic in its stats.",
        list(_histogram("", LATENCY_BOUNDS_MS, counts, total)),
    )


def _histogram(
    labels: str, bounds: Sequence[int], counts: Sequence[int], total: float
) -> Iterator[tuple[str, float]]:
    sums = list(accumulate(counts))
    before = f"{labels}," if labels else ""
    braced = f"{{{labels}}}" if labels else ""
    for bound, count in zip((*bounds, "+Inf"), sums, strict=True):
        yield f'_bucket{{{before}le="{bound}"}}', count
    yield f"_sum{braced}", total
    yield f"_count{braced}", sums[-1]


def _connections(broker: Broker, node: str) -> Iterator[Family]:
    """Clients, by what our own say of themselves; all others are "other"."""
    yield from _producers(broker.clients.producers, node)
    yield from _consumers(broker.clients.consumers, node)


def _producers(table: ClientTable, node: str) -> Iterator[Family]:
    """Each client once, to however many topics it sends."""
    agents = {key: row.user_agent for rows in table.all().values() for key, row in rows.items()}
    counts = Counter(map(_language_of, agents.values()))
    shown, left = _largest(counts, LANGUAGES_SHOWN_MAX)
    shown[_OTHER_LANGUAGE] = shown.get(_OTHER_LANGUAGE, 0) + left
    samples = [
        (f'{{{node},language="{language}",version="{version}",{_BY_HTTP}}}', count)
        for (language, version), count in sorted(shown.items())
    ]
    yield Family("rocketmq_producer_connections", "gauge", "Producers that are listed.", samples)


def _consumers(table: ClientTable, node: str) -> Iterator[Family]:
    """Each client once in each of its groups and modes."""
    agents = {
        (group, _MODES[row.kind], key[0]): row.user_agent
        for group, rows in table.all().items()
        for key, row in rows.items()
    }
    counts = Counter(
        (group, mode, *_language_of(agent)) for (group, mode, _), agent in agents.items()
    )
    shown, left = _largest(counts, METRIC_LABELS_MAX)
    shown[(OTHER, "", *_OTHER_LANGUAGE)] = left
    samples = [
        (
            f'{{{node},consumer_group="{group}",consume_mode="{mode}",language="{language}",'
            f'version="{version}",{_BY_HTTP},is_system="false"}}',
            count,
        )
        for (group, mode, language, version), count in sorted(shown.items())
    ]
    yield Family("rocketmq_consumer_connections", "gauge", "Consumers that are listed.", samples)


def _largest(counts: Mapping[_Key, int], count: int) -> tuple[dict[_Key, int], int]:
    """So many of the largest, and the sum of the others."""
    shown = dict(nlargest(count, counts.items(), key=lambda row: row[1]))
    return shown, sum(counts.values()) - sum(shown.values())


def _half_messages(broker: Broker, node: str) -> Family:
    shown, left = _largest(broker.transactions.pending_by_topic(), METRIC_LABELS_MAX)
    shown[OTHER] = shown.get(OTHER, 0) + left
    return Family(
        "rocketmq_half_messages",
        "gauge",
        "Transactions that are not decided yet.",
        [(f'{{{node},topic="{topic}"}}', count) for topic, count in sorted(shown.items())],
    )


def _language_of(user_agent: str) -> tuple[str, str]:
    found = _OUR_CLIENT.match(user_agent)
    return (found[1], found[2]) if found else _OTHER_LANGUAGE


def _lag(lags: Lags, of_pair: Callable[[str, str], str], now_ms: int) -> Iterator[Family]:
    """Gauges of the groups that are furthest behind; times in milliseconds."""
    named, rest = lags
    rows = [(f"{{{of_pair(each.group, each.topic)}}}", each) for each in named]
    all_rows = [*rows, (f"{{{of_pair(OTHER, OTHER)}}}", rest)]
    yield Family(
        "rocketmq_consumer_lag_messages",
        "gauge",
        "Messages that are not done: ready and in flight.",
        [(labels, each.lag) for labels, each in all_rows],
    )
    yield Family(
        "rocketmq_consumer_ready_messages",
        "gauge",
        "Messages that a receive would get.",
        [(labels, each.ready) for labels, each in all_rows],
    )
    yield Family(
        "rocketmq_consumer_inflight_messages",
        "gauge",
        "Messages that are leased.",
        [(labels, each.in_flight) for labels, each in all_rows],
    )
    yield Family(
        "rocketmq_consumer_lag_latency",
        "gauge",
        "Milliseconds since the oldest message that is not done was stored; 0: none.",
        [(labels, _age_ms(now_ms, each.oldest_ms)) for labels, each in rows],
    )
    yield Family(
        "rocketmq_consumer_queueing_latency",
        "gauge",
        "Milliseconds since the oldest message that nobody holds was stored; 0: none.",
        [(labels, _age_ms(now_ms, each.oldest_ready_ms)) for labels, each in rows],
    )


def _age_ms(now_ms: int, stored_ms: int | None) -> int:
    return 0 if stored_ms is None else max(now_ms - stored_ms, 0)

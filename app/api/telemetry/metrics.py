"""`GET /metrics`: the Prometheus text format, version 0.0.4. Pure but for reading its sources.

Names are RocketMQ 5's where it has one, `curlew_` otherwise. What is told by topic and group is in
`traffic_metrics` and bounded; all else are sums, so that the size of the answer does not depend on
what clients make.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

from app.api.http.memory_budget import MemoryBudget
from app.api.ports import Replicas
from app.api.telemetry.metric_family import Family, one
from app.api.telemetry.replica_metrics import replica_families
from app.api.telemetry.request_metrics import LATENCY_BUCKETS_S, RequestMetrics
from app.api.telemetry.store_metrics import figures_of, log_families
from app.api.telemetry.traffic_metrics import node_labels, traffic_families
from app.broker import Broker
from app.broker.health import TROUBLES, Condition
from app.broker.insight.lag import PairLag
from app.broker.ports import Metadata
from app.broker.streams.stream import StreamEnd
from app.cluster import ShardView
from app.domain.shards.takes import Takes
from app.runtime.loop_lag import LAG_BUCKETS_S, LoopLag
from app.store import DamageKind

_PERMISSION_HELP: Final = "6: reads and writes; 4: reads only, the disk is full; 0: neither."

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class ConnectionCounts(Protocol):
    """What the guarded server counts."""

    refused_count: int
    late_count: int
    handshakes_failed_count: int

    @property
    def open_count(self) -> int: ...

    @property
    def pressure(self) -> MemoryBudget: ...


class Conditions(Protocol):
    """What a node says of itself."""

    def obstacles(self) -> Sequence[Condition]: ...

    def troubles(self) -> Sequence[Condition]: ...


class Sources(NamedTuple):
    """Where the figures come from."""

    broker: Broker
    metadata: Metadata
    traffic: RequestMetrics
    connections: ConnectionCounts | None
    dead_letters: int
    """Of all groups."""
    lags: tuple[Sequence[PairLag], PairLag] = ((), PairLag("", "", 0, 0))
    """`LagReader.pair_lags`."""
    denials_unnamed: int = 0
    """`AuditTrail.unnamed_count`."""
    replicas: Replicas | None = None
    """Of a node that has a replica of a shard."""
    shard: ShardView | None = None
    """The one of this node."""


def following_metrics(
    health: Conditions,
    traffic: RequestMetrics,
    connections: ConnectionCounts | None,
    denials_unnamed: int,
    replicas: Replicas | None,
) -> str:
    """Of a node that leads nothing: what is the process's, and its replica's."""
    families = [*_traffic(traffic), *_readiness(health), *_denials(traffic, denials_unnamed)]
    families += replica_families(replicas)
    families += log_families(None if replicas is None else replicas.log_figures())
    if connections is not None:
        families += _connections(connections)
    return "".join(map(_text, families))


def metric_parts(sources: Sources) -> Iterator[str]:
    """The exposition, a metric at a time."""
    yield from map(_text, _families(sources))
    node = node_labels(sources.broker)
    for more in (_latency(sources.traffic, node), _loop_lag(sources.broker.loop_lag)):
        yield "\n".join(more) + "\n"


def _text(family: Family) -> str:
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
    lines += [f"{family.name}{labels} {value:.15g}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _families(sources: Sources) -> Iterator[Family]:
    yield from _traffic(sources.traffic)
    yield from traffic_families(sources.broker, sources.metadata, sources.lags)
    yield from _state(sources)
    yield from _denials(sources.traffic, sources.denials_unnamed)
    yield from replica_families(sources.replicas)
    shard = sources.shard
    if shard is not None:
        yield Family(
            "curlew_shard_drains",
            "gauge",
            "1: the shard that this node leads drains: what is new goes to other shards.",
            [(f'{{shard="{shard.name}"}}', shard.takes is not Takes.ALL)],
        )
    if sources.connections is not None:
        yield from _connections(sources.connections)


def _traffic(traffic: RequestMetrics) -> Iterator[Family]:
    yield one("curlew_http_messages_in_total", "counter", "Messages stored.", traffic.messages_in)
    yield one("curlew_http_bytes_in_total", "counter", "Bytes of bodies stored.", traffic.bytes_in)
    yield one(
        "curlew_http_messages_out_total",
        "counter",
        "Messages handed out, browsing and replies included.",
        traffic.messages_out,
    )
    yield one(
        "curlew_http_bytes_out_total",
        "counter",
        "Bytes handed out: bodies, or whole records in frames.",
        traffic.bytes_out,
    )
    yield Family(
        "curlew_http_answers_total",
        "counter",
        "Answers by operation and status; 499 is a client that left.",
        [
            (f'{{operation="{name}",status="{status}"}}', count)
            for name, answers in sorted(traffic.operations.items())
            for status, count in sorted(answers.statuses.items())
        ],
    )


def _denials(traffic: RequestMetrics, unnamed: int) -> Iterator[Family]:
    yield Family(
        "curlew_denials_total",
        "counter",
        "Requests that were refused, by code: without a key that counts, or without the right.",
        [(f'{{code="{code}"}}', count) for code, count in sorted(traffic.denials.items())],
    )
    yield one(
        "curlew_denials_unnamed_total",
        "counter",
        "Of those, how many the audit only counts: there were too many to say whose they were.",
        unnamed,
    )
    yield Family(
        "curlew_quota_refusals_total",
        "counter",
        "Requests that a quota of a principal or a topic refused with 429, by quota.",
        [(f'{{quota="{name}"}}', count) for name, count in sorted(traffic.quota_refusals.items())],
    )
    yield one(
        "curlew_parked_polls",
        "gauge",
        "Requests of principals that asked here to wait, where `quota_parked_polls` bounds them.",
        traffic.parked_polls,
    )


def _readiness(health: Conditions) -> Iterator[Family]:
    yield one("curlew_ready", "gauge", "1: takes requests.", not health.obstacles())
    troubles = {trouble.code for trouble in health.troubles()}
    yield Family(
        "curlew_degraded",
        "gauge",
        "1: this is the matter, although requests are served.",
        [(f'{{code="{code.value}"}}', code in troubles) for code in TROUBLES],
    )


def _state(sources: Sources) -> Iterator[Family]:
    broker = sources.broker
    store = broker.store.status()
    yield from _readiness(broker.health)
    if broker.health.node.policy_age is not None:
        yield one(
            "curlew_policy_age_seconds",
            "gauge",
            "How long ago the database told of keys and policies.",
            round(broker.health.node.policy_age.seconds, 3),
        )
    yield one(
        "curlew_event_loop_lag_max_seconds",
        "gauge",
        "The longest that what was due had to wait for the event loop since the last scrape.",
        broker.loop_lag.take_longest(),
    )
    yield one(
        "curlew_waiting_requests", "gauge", "Long polls and requests waiting.", broker.waiting_count
    )
    streams = broker.streams
    yield one("curlew_streams", "gauge", "Open streams.", streams.open_count)
    yield one(
        "curlew_streams_unsettled",
        "gauge",
        "Messages that streams have been sent and that are not settled.",
        streams.credits.held_count,
    )
    yield Family(
        "curlew_stream_ends_total",
        "counter",
        "Ended streams by reason.",
        [(f'{{reason="{reason.value}"}}', streams.ends[reason]) for reason in StreamEnd],
    )
    yield one(
        "curlew_trace_dropped_total",
        "counter",
        "Notes of traces that were not written: they came too fast, or the disk was full.",
        broker.message_trace.dropped,
    )
    yield from _remembered(sources)
    yield from _hooks(broker)
    yield from _waiting(sources.dead_letters)
    yield from _as_rocketmq(sources)
    yield from _failed_after_their_answer(broker)
    yield Family(
        "curlew_store_damage_total",
        "counter",
        "Damage found in the store since the start, by kind.",
        [(f'{{kind="{kind.value}"}}', store.damages.get(kind.value, 0)) for kind in DamageKind],
    )
    yield one(
        "curlew_storage_pending_bytes", "gauge", "Bytes not yet written.", store.pending_bytes
    )
    yield from log_families(figures_of(broker.store))


def _failed_after_their_answer(broker: Broker) -> Iterator[Family]:
    """Of sends that were answered before it was known."""
    yield Family(
        "curlew_one_way_dropped_total",
        "counter",
        "Messages of one-way sends that failed after their answer, by the code of the error.",
        [(f'{{reason="{code}"}}', count) for code, count in broker.sender.one_way.dropped.items()],
    )
    yield one(
        "curlew_early_answers_lost_total",
        "counter",
        "Messages answered before they were confirmed, then given up; a failover may lose them.",
        broker.lost.messages,
    )


def _hooks(broker: Broker) -> Iterator[Family]:
    """Of those that are on."""
    calls = broker.hooks.calls
    yield Family(
        "curlew_hook_calls_total",
        "counter",
        "Calls of hooks by point and result: ok, refused, raised, late, busy.",
        [
            (f'{{hook="{each.name}",point="{point}",result="{result}"}}', count)
            for each in calls
            for (point, result), count in sorted(each.counts.items())
        ],
    )
    yield Family(
        "curlew_hook_events_dropped_total",
        "counter",
        "Sends and settles that a hook was not told of, because it was too slow.",
        [(f'{{hook="{each.name}"}}', each.dropped) for each in calls],
    )


def _as_rocketmq(sources: Sources) -> Iterator[Family]:
    """Gauges of the node, with the labels by which RocketMQ's dashboards choose."""
    broker, snapshot = sources.broker, sources.metadata.snapshot
    store = broker.store.status()
    node = node_labels(broker)
    disk = f'{node},storage_type="local",storage_medium="disk"'
    rows = (
        ("rocketmq_topic_number", node, "Topics.", len(snapshot.topics)),
        ("rocketmq_consumer_group_number", node, "Groups.", len(snapshot.groups)),
        ("rocketmq_broker_permission", node, _PERMISSION_HELP, _permission(sources)),
        ("rocketmq_storage_size", disk, "Bytes in the log.", store.written_end - store.start),
        (
            "rocketmq_storage_flush_behind_bytes",
            disk,
            "Bytes written and not yet on the medium.",
            store.written_end - store.flushed_end,
        ),
        (
            "rocketmq_storage_dispatch_behind_bytes",
            disk,
            "Bytes that are in the log and in no queue: 0, as both are one step.",
            0,
        ),
        (
            "rocketmq_timing_messages",
            f'{node},topic=""',
            "Messages that wait for their time: delayed ones, retries and schedules.",
            broker.delayed_messages.waiting_count,
        ),
    )
    for name, labels, text, value in rows:
        yield Family(name, "gauge", text, [(f"{{{labels}}}", value)])


def _permission(sources: Sources) -> int:
    """RocketMQ's bits: 4 reads, 2 writes."""
    broker = sources.broker
    if broker.health.obstacles():
        return 0
    return 4 if broker.store.status().refusal is not None else 6


def _remembered(sources: Sources) -> Iterator[Family]:
    """What is kept for repeated sends, and how much of it may be."""
    producers, keys = sources.broker.producers.remembered
    for name, (count, limit), text in (
        ("producers", producers, "Producers that number their messages"),
        ("idempotency_keys", keys, "Idempotency keys"),
    ):
        yield one(f"curlew_{name}", "gauge", f"{text}, as remembered.", count)
        yield one(f"curlew_{name}_max", "gauge", f"{text}: how many may be.", limit)


def _waiting(dead_letters: int) -> Iterator[Family]:
    yield one(
        "curlew_dead_letters",
        "gauge",
        "Dead letters of all groups.",
        dead_letters,
    )


def _connections(connections: ConnectionCounts) -> Iterator[Family]:
    yield one("curlew_http_connections", "gauge", "Open connections.", connections.open_count)
    yield one(
        "curlew_http_refused_total",
        "counter",
        "Connections and requests refused below the application.",
        connections.refused_count,
    )
    yield one(
        "curlew_tls_handshakes_failed_total",
        "counter",
        "TLS handshakes that failed or took too long.",
        connections.handshakes_failed_count,
    )
    pressure = connections.pressure
    yield one(
        "curlew_http_body_bytes",
        "gauge",
        "Bytes of large request bodies in memory.",
        pressure.body_bytes,
    )
    yield one(
        "curlew_http_unread_bytes",
        "gauge",
        "Bytes of answers that their clients have not read.",
        pressure.answer_bytes,
    )
    yield one(
        "curlew_http_busy_total",
        "counter",
        "Requests refused because too many bytes were in flight.",
        pressure.refused_count,
    )
    yield one(
        "curlew_http_late_total",
        "counter",
        "Deadlines missed by clients.",
        connections.late_count,
    )


def _latency(traffic: RequestMetrics, node: str) -> Iterator[str]:
    name = "rocketmq_rpc_latency"
    yield f"# HELP {name} Milliseconds from the request's head to its answer."
    yield f"# TYPE {name} histogram"
    bounds = [f"{each * 1_000:g}" for each in LATENCY_BUCKETS_S]
    for operation, answers in sorted(traffic.operations.items()):
        of_operation = f'operation="{operation}",request_code="{operation}",protocol_type="http"'
        for status, times in sorted(answers.times.items()):
            label = f'{node},{of_operation},response_code="{status}"'
            counts = list(accumulate(times.buckets))
            for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
                yield f'{name}_bucket{{{label},le="{bound}"}} {count}'
            yield f"{name}_sum{{{label}}} {times.seconds * 1_000:.3f}"
            yield f"{name}_count{{{label}}} {counts[-1]}"


def _loop_lag(lag: LoopLag) -> Iterator[str]:
    name = "curlew_event_loop_lag_seconds"
    yield f"# HELP {name} How long what was due had to wait for the event loop."
    yield f"# TYPE {name} histogram"
    counts = list(accumulate(lag.buckets))
    for bound, count in zip((*LAG_BUCKETS_S, "+Inf"), counts, strict=True):
        yield f'{name}_bucket{{le="{bound}"}} {count}'
    yield f"{name}_sum {lag.seconds:.6f}"
    yield f"{name}_count {counts[-1]}"

"""Statistics of a topic and of a group: what mqadmin's statsAll and consumerProgress show."""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

from fastapi import Query

from app.api.aims import merges
from app.api.aims.across import Together
from app.api.control.dependencies import Services, WithAccess, WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.names import TopicName
from app.api.control.schemas.schemas import TopicStats
from app.api.control.schemas.statistics_schemas import (
    CountsDocument,
    GroupStatistics,
    GroupTopicStatistics,
    LatencyDocument,
    NodeStatistics,
    RatesDocument,
    SeriesDocument,
    TopicStatistics,
    total,
    total_series,
    total_windows,
)
from app.api.operations.operation import Action, Json
from app.broker.figures.counters import STEP_S, STEPS, Figures, GroupFigures, TopicFigures
from app.broker.figures.traffic_statistics import WINDOWS
from app.broker.insight.lag import check_known_group
from app.broker.ports import Store
from app.broker.topic_lookup import find_topic
from app.domain.access.actions import Kind
from app.domain.durations import parse_duration_ms
from app.domain.errors import InvalidRequest
from app.store import DiskUsage

_STEP_MS: Final = int(STEP_S * 1_000)
_RANGE_MS_MAX: Final = STEPS * _STEP_MS

router = OperationRouter("statistics")

Range = Annotated[
    str, Query(description="how far back the series goes: at most 15m, whole steps of 5s")
]
Step = Annotated[str, Query(description="length of a row of the series: a multiple of 5s")]


class _Scale(NamedTuple):
    """Of a series, in steps of the statistics."""

    steps: int
    width: int

    @classmethod
    def of(cls, range_text: str, step_text: str) -> "_Scale":
        range_ms, step_ms = _duration_ms("range", range_text), _duration_ms("step", step_text)
        if range_ms % step_ms or range_ms > _RANGE_MS_MAX:
            raise InvalidRequest(
                f"range={range_text} and step={step_text} do not go together: a range has at most"
                " 15m and is a multiple of the step",
                hint="for instance range=15m&step=30s",
                fields={"parameter": "range"},
            )
        return cls(range_ms // _STEP_MS, step_ms // _STEP_MS)


def _duration_ms(name: str, text: str) -> int:
    try:
        found = parse_duration_ms(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{name}: {error}", hint="for instance 5s or 15m", fields={"parameter": name}
        ) from None
    if found <= 0 or found % _STEP_MS:
        raise InvalidRequest(
            f"{name}={text} is no multiple of 5s",
            hint="figures are kept for each 5 seconds",
            fields={"parameter": name},
        )
    return found


@router.serve(
    "GET /v1/topics/{topic}/stats",
    "How much a topic holds, and what goes through it",
    needs={"topic": Action.GET},
    across=Together(merges.topic_statistics),
)
async def get_topic_stats(
    topic: str,
    services: WithServices,
    range: Range = "15m",  # noqa: A002  # the name in the URL
    step: Step = "5s",
) -> TopicStatistics:
    """First and next offset of every queue; counters since the node's start, rates, put latency,
    failures by code, and a series. Counters are of this node and begin at zero with it."""
    scale = _Scale.of(range, step)
    held = TopicStats.of(topic, services.broker.topic_ends.bounds(topic))
    statistics = services.broker.statistics
    view = find_topic(services.metadata, topic)
    found = statistics.topics.get(topic)
    if found is not None and found.generations[0] != view.generation:
        found = None
    figures = found or TopicFigures(statistics.since_ms)
    figures.count_puts()
    parts = [figures, *statistics.of_topic_groups(topic).values()]
    return TopicStatistics(
        **held.model_dump(),
        **_statistics(services, parts, scale),
        since_ms=figures.since_ms if found else None,
        put_latency_ms=LatencyDocument.of(figures),
        failures=dict(sorted(figures.failures.items())),
    )


@router.serve(
    "GET /v1/groups/{group}/stats",
    "What a group is given, and what becomes of it",
    needs={"group": Action.GET},
    across=Together(merges.group_statistics),
)
async def get_group_stats(
    group: str,
    services: WithServices,
    access: WithAccess,
    topic: Annotated[TopicName | None, Query(description="this topic only")] = None,
    range: Range = "15m",  # noqa: A002  # the name in the URL
    step: Step = "5s",
) -> GroupStatistics:
    """Messages handed out, acks, retries and dead letters: counters since the node's start, rates
    and a series, in all topics together and counters and rates for each."""
    scale = _Scale.of(range, step)
    check_known_group(services.metadata, group)
    if topic is not None:
        access.require(Action.GET, Kind.TOPIC, topic)
        find_topic(services.metadata, topic)
    statistics = services.broker.statistics
    found = {
        name: each
        for name, each in statistics.of_group(group, topic).items()
        if access.sees_topic(name)
    }
    parts = list(found.values()) or [GroupFigures(statistics.since_ms)]
    return GroupStatistics(
        group=group,
        since_ms=min([each.since_ms for each in found.values()], default=None),
        **_statistics(services, parts, scale),
        topics=[
            GroupTopicStatistics(
                topic=name,
                since_ms=each.since_ms,
                counters=CountsDocument.of(each.sums()),
                rates=_rates(services, [each]),
            )
            for name, each in found.items()
        ],
    )


@router.serve(
    "GET /v1/stats",
    "What goes through a node",
    needs={"cluster": Action.GET},
)
async def get_stats(
    services: WithServices,
    range: Range = "15m",  # noqa: A002  # the name in the URL
    step: Step = "5s",
) -> NodeStatistics:
    """All topics and groups together: rates and a series as of the last whole 5 seconds, how far
    groups are behind, and how much is stored. Counters begin at zero with the node. Where groups
    read thousands of queues, `lag` is as of some seconds ago."""
    scale = _Scale.of(range, step)
    broker, snapshot = services.broker, services.metadata.snapshot
    statistics = broker.statistics
    lag = await broker.lag.lag_of_all()
    dead_letters = await broker.dead_letters.count_all(list(snapshot.groups))
    store = broker.store.status()
    disk = _disk_of(broker.store)
    whole = statistics.whole
    return NodeStatistics(
        since_ms=statistics.since_ms,
        topics=len(snapshot.topics),
        groups=len(snapshot.groups),
        lag=lag,
        dead_letters=dead_letters,
        stored_bytes=store.written_end - store.start,
        disk_bytes=None if disk is None else disk.total,
        disk_free_bytes=None if disk is None else disk.free,
        counters=CountsDocument.of(whole.sums()),
        rates={
            name: RatesDocument.of(statistics.within(whole, steps))
            for name, steps in WINDOWS.items()
        },
        series=SeriesDocument.of(statistics.series(whole, *scale)),
    )


def _disk_of(store: Store) -> DiskUsage | None:
    try:
        return store.disk_usage()
    except OSError:
        return None


def _rates(services: Services, parts: Sequence[Figures]) -> dict[str, RatesDocument]:
    windows = total_windows([services.broker.statistics.windows(each) for each in parts])
    return {name: RatesDocument.of(window) for name, window in windows.items()}


def _statistics(services: Services, parts: Sequence[Figures], scale: _Scale) -> Json:
    statistics = services.broker.statistics
    windows = total_windows([statistics.windows(each) for each in parts])
    series = total_series([statistics.series(each, *scale) for each in parts])
    return {
        "counters": CountsDocument.of(total(each.sums() for each in parts)),
        "rates": {name: RatesDocument.of(window) for name, window in windows.items()},
        "sums": {name: CountsDocument.of(window.sums) for name, window in windows.items()},
        "series": SeriesDocument.of(series),
    }

"""Statistics of topics and groups as JSON: counters, rates, latency, series."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, Self

from pydantic import Field

from app.api.control.schemas.schemas import AnswerModel, MergedModel, TopicStats
from app.broker.figures.counters import LATENCY_BOUNDS_MS, Sums, TopicFigures
from app.broker.figures.traffic_statistics import Series, Window

_NAMES: Final = ("in", "in_bytes", "out", *Sums._fields[3:])


class CountsDocument(AnswerModel):
    """Messages and bytes."""

    in_: int = Field(alias="in", description="Messages that were sent", examples=[1_200])
    in_bytes: int = Field(description="Bytes of their bodies, or of frames", examples=[614_400])
    out: int = Field(description="Messages that were handed out", examples=[1_180])
    out_bytes: int = Field(description="Bytes of those", examples=[604_160])
    acks_ok: int = Field(description="Receipt handles that acked", examples=[1_175])
    acks_failed: int = Field(
        description="Receipt handles that could not ack, as they had expired", examples=[5]
    )
    retries: int = Field(description="Failed deliveries that come again", examples=[12])
    dead_letters: int = Field(description="Messages that groups gave up", examples=[1])

    @classmethod
    def of(cls, sums: Sums) -> Self:
        return cls(**dict(zip(_NAMES, sums, strict=True)))


class RatesDocument(AnswerModel):
    """The same, a second."""

    in_: float = Field(alias="in", description="Messages sent, a second", examples=[20.0])
    in_bytes: float = Field(description="Bytes of those, a second", examples=[10_240.0])
    out: float = Field(description="Messages handed out, a second", examples=[19.7])
    out_bytes: float = Field(description="Bytes of those, a second", examples=[10_069.3])
    acks_ok: float = Field(description="Acks a second", examples=[19.6])
    acks_failed: float = Field(description="Acks that failed, a second", examples=[0.1])
    retries: float = Field(description="Failed deliveries a second", examples=[0.2])
    dead_letters: float = Field(description="Dead letters a second", examples=[0.0])

    @classmethod
    def of(cls, window: Window) -> Self:
        seconds = max(window.seconds, 1.0)
        rates = [round(each / seconds, 3) for each in window.sums]
        return cls(**dict(zip(_NAMES, rates, strict=True)))


class LatencyDocument(AnswerModel):
    """How long the store took for sends, in milliseconds, since `since_ms`."""

    p50: float | None = Field(description="Half took at most this; null: none", examples=[2.0])
    p99: float | None = Field(description="99 of 100 took at most this", examples=[20.0])
    max: float = Field(description="The longest", examples=[31.2])
    buckets: dict[str, int] = Field(
        description="Upper bound in ms, or `+Inf` → sends that took at most so long",
        examples=[{"1": 700, "2": 1_100, "+Inf": 1_200}],
    )

    @classmethod
    def of(cls, figures: TopicFigures) -> Self:
        names = [*map(str, LATENCY_BOUNDS_MS), "+Inf"]
        return cls(
            p50=figures.latency_at(0.5),
            p99=figures.latency_at(0.99),
            max=round(figures.latency_max_ms, 3),
            buckets=dict(zip(names, accumulate(figures.latency), strict=True)),
        )


class SeriesDocument(AnswerModel):
    """What came in each step, the oldest first; all lists have the same length."""

    start_ms: int = Field(description="Begin of the first step", examples=[1_800_000_000_000])
    step_ms: int = Field(description="Length of a step", examples=[5_000])
    in_: list[int] = Field(alias="in", description="Messages sent", examples=[[3, 0, 7]])
    in_bytes: list[int] = Field(description="Bytes of those", examples=[[30, 0, 70]])
    out: list[int] = Field(description="Messages handed out", examples=[[3, 0, 7]])
    out_bytes: list[int] = Field(description="Bytes of those", examples=[[30, 0, 70]])
    acks_ok: list[int] = Field(description="Acks", examples=[[3, 0, 7]])
    acks_failed: list[int] = Field(description="Acks that failed", examples=[[0, 0, 0]])
    retries: list[int] = Field(description="Failed deliveries that come again", examples=[[0, 0]])
    dead_letters: list[int] = Field(description="Messages given up", examples=[[0, 0]])

    @classmethod
    def of(cls, series: Series) -> Self:
        columns = zip(*series.rows, strict=True)
        lists = {name: list(each) for name, each in zip(_NAMES, columns, strict=True)}
        return cls(start_ms=series.start_ms, step_ms=series.step_ms, **lists)


class _StatisticsDocument(AnswerModel):
    """What both kinds have."""

    since_ms: int | None = Field(
        description="When counting began: the node's start, or the first use since; null: not yet",
        examples=[1_800_000_000_000],
    )
    counters: CountsDocument = Field(description="Since `since_ms`")
    rates: dict[str, RatesDocument] = Field(
        description="By window: 10s, 1m, 10m, 1h, and today (since midnight UTC)",
        examples=[{"10s": {"in": 20.0, "out": 19.7}}],
    )
    sums: dict[str, CountsDocument] = Field(
        description="What came within the same windows",
        examples=[{"today": {"in": 86_400, "out": 86_399}}],
    )
    series: SeriesDocument = Field(description="The last `range`, a row for every `step`")


class TopicStatistics(_StatisticsDocument, TopicStats):
    """How much a topic holds now, and what went through it since the node's start.

    `out`, acks, retries and dead letters are those of all groups, and what was pulled without one.
    """

    put_latency_ms: LatencyDocument = Field(description="How long the store took for sends")
    failures: dict[str, int] = Field(
        description="Error code → sends that were refused or failed", examples=[{"DISK_FULL": 2}]
    )


class GroupTopicStatistics(AnswerModel):
    """A group in one topic."""

    topic: str = Field(description="The topic", examples=["orders"])
    since_ms: int = Field(description="When counting began", examples=[1_800_000_000_000])
    counters: CountsDocument = Field(description="Since `since_ms`")
    rates: dict[str, RatesDocument] = Field(
        description="By window, as those of the group", examples=[{"10s": {"out": 19.7}}]
    )


class GroupStatistics(_StatisticsDocument, MergedModel):
    """What a group was given and what became of it, in all its topics or in one."""

    group: str = Field(description="The group", examples=["billing"])
    topics: list[GroupTopicStatistics] = Field(description="Each topic by itself, by name")


class NodeStatistics(AnswerModel):
    """What goes through a node, in all topics and groups together, and how much it holds."""

    since_ms: int = Field(description="The node's start", examples=[1_800_000_000_000])
    topics: int = Field(description="How many there are", examples=[12])
    groups: int = Field(description="How many there are", examples=[5])
    lag: int = Field(
        description="Messages that are not done for groups in queues that they have begun, retries"
        " included",
        examples=[1_230],
    )
    dead_letters: int = Field(description="Dead letters of all groups", examples=[3])
    stored_bytes: int = Field(description="Bytes of the log", examples=[1_073_741_824])
    disk_bytes: int | None = Field(
        description="Bytes of the file system that the log is on, without what is root's alone;"
        " null: it does not say",
        examples=[107_374_182_400],
    )
    disk_free_bytes: int | None = Field(
        description="Bytes of it that are free", examples=[64_424_509_440]
    )
    counters: CountsDocument = Field(description="Since `since_ms`, as of the last 5 seconds")
    rates: dict[str, RatesDocument] = Field(
        description="By window: 10s, 1m, 10m", examples=[{"10s": {"in": 20.0, "out": 19.7}}]
    )
    series: SeriesDocument = Field(description="The last `range`, a row for every `step`")


def total(parts: Iterable[Sums]) -> Sums:
    """The sum of all."""
    found = Sums()
    for each in parts:
        found = found.plus(each)
    return found


def total_windows(parts: Sequence[Mapping[str, Window]]) -> dict[str, Window]:
    """Window by window; at least one part."""
    return {
        name: Window(first.seconds, total(part[name].sums for part in parts))
        for name, first in parts[0].items()
    }


def total_series(parts: Sequence[Series]) -> Series:
    """Step by step; at least one part."""
    rows = [total(each) for each in zip(*(part.rows for part in parts), strict=True)]
    return parts[0]._replace(rows=rows)

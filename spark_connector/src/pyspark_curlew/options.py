"""The options of the source: parsed and checked once, into frozen values.

No Spark, no I/O. Called by `source` in `schema()`, so that a mistake shows at `.load()`, and again
when a reader is made.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark_curlew.errors import OptionConflict, OptionInvalid, OptionMissing
from pyspark_curlew.http.http_options import HTTP_NAMES, HttpOptions, read_http_options
from pyspark_curlew.option_reader import OptionReader
from pyspark_curlew.reading.offsets import TaskLimits
from pyspark_curlew.reading.positions_wanted import (
    ENDING_NAMES,
    STARTING_NAMES,
    Bound,
    Point,
    check_batch_start,
    read_ending,
    read_starting,
)

_OF_STREAMS: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitOffsets",
    "pollWaitMs",
)
KNOWN: Final = (
    "topic",
    "topics",
    "topicsPattern",
    "path",
    "queues",
    *STARTING_NAMES,
    *ENDING_NAMES,
    *_OF_STREAMS,
    "minPartitions",
    "maxRecordsPerPartition",
    "minRecordsPerPartition",
    "failOnDataLoss",
    "includeProperties",
    "includeHeaders",
    "filterTags",
    "readFrom",
    "consumerGroup",
    *HTTP_NAMES,
)
"""`path` is what `.load("orders")` gives."""
SINK_NAMES: Final = ("sendMaxMessages", "sendMaxBytes", "idempotence", "producerName")
_OF_WRITING: Final = dict.fromkeys(SINK_NAMES, "writing; this reads")

TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9_%-]{1,255}")


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which topics are read: those of `names`, or all that `pattern` matches whole."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    queues: Mapping[str, frozenset[int]] | None = None
    """For the topics in it, only these queues."""


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How large a micro-batch may and should be."""

    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int
    max_delay_ms: int


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read and in which portions. Sizes in bytes or messages as named."""

    http: HttpOptions
    topics: TopicChoice
    starting: Bound
    ending: Bound
    trigger: TriggerLimits
    tasks: TaskLimits
    fail_on_data_loss: bool
    include_properties: bool
    include_headers: bool
    filter_tags: str | None
    """The service's filter expression; None: all messages."""
    consumer_group: str | None
    commit_offsets: bool
    poll_wait_ms: int
    pull_max_messages: int = 16_384
    pull_max_bytes: int = 16 * 1024 * 1024
    """Of one request: not options, for measurements found nothing better."""


def parse_stream_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a streaming read; raise an `Option...` error."""
    reader = OptionReader(given, KNOWN, _OF_WRITING)
    for name in reader.given(*ENDING_NAMES):
        raise OptionConflict(f"option {name!r} is for batch reads; a stream has no end")
    return _parse(reader, "latest")


def parse_batch_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a batch read; raise an `Option...` error."""
    reader = OptionReader(given, KNOWN, _OF_WRITING)
    for name in reader.given(*_OF_STREAMS):
        raise OptionConflict(f"option {name!r} is for streams; a batch read has no triggers")
    options = _parse(reader, "earliest")
    begins_there = options.starting.default == "committed"
    where = "startingOffsets=committed in a batch read"
    reader.check_use("consumerGroup", where, is_there=begins_there)
    check_batch_start(options.starting)
    return options


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options where it is not known yet whether a stream or a batch will be read."""
    return _parse(OptionReader(given, KNOWN, _OF_WRITING), "latest")


def _parse(reader: OptionReader, start: Point) -> SourceOptions:
    group = _group(reader)
    return SourceOptions(
        http=_with_nodes(read_http_options(reader), reader),
        topics=_topics(reader),
        starting=read_starting(reader, start),
        ending=read_ending(reader),
        trigger=_trigger(reader),
        tasks=TaskLimits(
            max_records=reader.whole("maxRecordsPerPartition", 250_000, minimum=0),
            min_records=reader.whole("minRecordsPerPartition", 32, minimum=0),
            min_tasks=reader.whole("minPartitions", 1, minimum=1),
        ),
        fail_on_data_loss=reader.flag("failOnDataLoss", default=True),
        include_properties=reader.flag("includeProperties", default=False),
        include_headers=reader.flag("includeHeaders", default=False),
        filter_tags=_filter(reader),
        consumer_group=group,
        commit_offsets=reader.flag("commitOffsets", default=group is not None),
        poll_wait_ms=reader.whole("pollWaitMs", 1000, minimum=0),
    )


def _with_nodes(http: HttpOptions, reader: OptionReader) -> HttpOptions:
    chosen = reader.choice("readFrom", "leader", "any", "endpoint")
    return replace(http, to_leaders=chosen == "leader", reads_any=chosen == "any")


def _filter(reader: OptionReader) -> str | None:
    """Tags joined by `||`, or `sql:` and a condition; the service says what is wrong with it."""
    value = reader.text_or_none("filterTags")
    if value is None or value == "*":
        return None
    if not value.startswith("sql:") and not all(tag.strip() for tag in value.split("||")):
        raise OptionInvalid(
            f"option 'filterTags' = {value!r} is not tags like 'created || paid', nor 'sql:' and a"
            " condition"
        )
    return value


def _group(reader: OptionReader) -> str | None:
    group = reader.text_or_none("consumerGroup")
    if group is None and reader.flag("commitOffsets", default=False):
        raise OptionMissing("option 'consumerGroup' is required beside commitOffsets=true")
    return None if group is None else _name("consumerGroup", group, group)


def _trigger(reader: OptionReader) -> TriggerLimits:
    most = reader.whole_or_none("maxOffsetsPerTrigger", minimum=1)
    least = reader.whole("minOffsetsPerTrigger", 0, minimum=1)
    if most is not None and least > most:
        raise OptionConflict(
            f"option 'minOffsetsPerTrigger' = {least} is above 'maxOffsetsPerTrigger' = {most}"
        )
    limits = TriggerLimits(
        max_offsets=most,
        max_bytes=reader.whole_or_none("maxBytesPerTrigger", minimum=1),
        min_offsets=least,
        max_delay_ms=reader.duration_ms("maxTriggerDelay", 15 * 60_000),
    )
    reader.check_use("maxTriggerDelay", "'minOffsetsPerTrigger'", is_there=least > 0)
    return limits


def _topics(reader: OptionReader) -> TopicChoice:
    choice = reader.at_most_one("topic", "topics", "topicsPattern", "path")
    if choice is None:
        raise OptionMissing(
            "option 'topic' (or 'topics', or 'topicsPattern', or .load(\"orders\")) is required"
        )
    queues = _queues(reader)
    value = reader.text(choice)
    if choice == "topicsPattern":
        _check_names(queues, _pattern(value).fullmatch)
        return TopicChoice(pattern=value, queues=queues)
    names = [value] if choice in {"topic", "path"} else [name.strip() for name in value.split(",")]
    for name in names:
        _name(choice, name, value)
    _check_names(queues, names.__contains__)
    return TopicChoice(names=tuple(sorted(set(names))), queues=queues)


def _pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise OptionInvalid(
            f"option 'topicsPattern' = {value!r} is not a regular expression: {error}"
        ) from None


def _check_names(queues: Iterable[str] | None, is_read: Callable[[str], object]) -> None:
    """Of what 'queues' names, each topic may be read."""
    for topic in queues or ():
        if not is_read(topic):
            raise OptionInvalid(f"option 'queues' names topic {topic!r}, which is not read")


def _name(option: str, name: str, value: str) -> str:
    if not TOPIC_NAME.fullmatch(name):
        hint = "; several topics are given by 'topics'" if "," in value else ""
        raise OptionInvalid(f"option {option!r} = {value!r} is not a name the service takes{hint}")
    return name


def _queues(reader: OptionReader) -> Mapping[str, frozenset[int]] | None:
    if not reader.given("queues"):
        return None
    like = '{"orders":[0,1]}'
    wrong = OptionInvalid(f"option 'queues' = {reader.text('queues')!r} is not JSON like {like}")
    found: dict[str, frozenset[int]] = {}
    for topic, queues in reader.json_object("queues", like).items():
        if not isinstance(queues, list) or not queues:
            raise wrong
        if any(type(queue) is not int or queue < 0 for queue in queues):
            raise wrong
        found[topic] = frozenset(queues)
    return found

"""The options of the source: parsed and checked once, into frozen values.

No Spark, no I/O. Names are compared without regard to case, as Spark does. A name that is not
listed here is refused with the nearest one that is: a typing mistake must not silently become a
default. Called by `source` in `schema()`, so that a mistake shows at `.load()`, and again when a
reader is made.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

from pyspark_curlew.errors import OptionInvalid, OptionMissing, OptionUnknown

KNOWN: Final = (
    "endpoint",
    "topic",
    "startingOffsets",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeProperties",
    "pullMaxMessages",
    "pullMaxBytes",
    "pollWaitMs",
    "connectTimeoutMs",
    "readTimeoutMs",
    "retries",
    "retryBackoffMs",
    "retryMaxBackoffMs",
)

EARLIEST: Final = -2
"""In a JSON value of `startingOffsets`: the first offset that can be read. Kafka's number."""
LATEST: Final = -1
"""In a JSON value of `startingOffsets`: one past the last offset. Kafka's number."""

_TOPIC: Final = re.compile(r"[A-Za-z0-9_%-]{1,255}")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How to reach the service. Times in milliseconds; `retries` does not count the first try."""

    endpoint: str
    connect_timeout_ms: int
    read_timeout_ms: int
    retries: int
    retry_backoff_ms: int
    retry_max_backoff_ms: int


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Where a new query begins: `default` for all queues but those in `by_queue`."""

    default: Literal["earliest", "latest"]
    by_queue: Mapping[int, int] = field(default_factory=dict)
    """Queue id to offset; `EARLIEST` and `LATEST` stand for the ends."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read and in which portions. Sizes in bytes or messages as named."""

    http: HttpOptions
    topic: str
    starting_offsets: StartingOffsets
    max_offsets_per_trigger: int | None
    max_records_per_partition: int
    """0: a queue's range is never split."""
    fail_on_data_loss: bool
    include_properties: bool
    pull_max_messages: int
    pull_max_bytes: int
    poll_wait_ms: int


def parse_source_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a reader; raise `OptionUnknown`, `OptionMissing` or `OptionInvalid`."""
    reader = _OptionReader(given)
    topic = reader.text("topic")
    if not _TOPIC.fullmatch(topic):
        raise OptionInvalid(f"option 'topic' = {topic!r} is not a topic name")
    return SourceOptions(
        http=_http_options(reader),
        topic=topic,
        starting_offsets=_starting_offsets(reader.text("startingOffsets", "latest"), topic),
        max_offsets_per_trigger=reader.whole_or_none("maxOffsetsPerTrigger", minimum=1),
        max_records_per_partition=reader.whole("maxRecordsPerPartition", 250_000, minimum=0),
        fail_on_data_loss=reader.flag("failOnDataLoss", default=True),
        include_properties=reader.flag("includeProperties", default=False),
        pull_max_messages=reader.whole("pullMaxMessages", 4096, minimum=1),
        pull_max_bytes=reader.whole("pullMaxBytes", 4 * 1024 * 1024, minimum=1024),
        poll_wait_ms=reader.whole("pollWaitMs", 1000, minimum=0),
    )


def _http_options(reader: "_OptionReader") -> HttpOptions:
    endpoint = reader.text("endpoint").rstrip("/")
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise OptionInvalid(
            f"option 'endpoint' = {_without_user(endpoint)!r} is not a base address;"
            " it looks like http://host:8710"
        )
    if parts.username is not None or parts.password is not None:
        raise OptionInvalid("option 'endpoint' has a user or password in it; leave them out")
    return HttpOptions(
        endpoint=endpoint,
        connect_timeout_ms=reader.whole("connectTimeoutMs", 5000, minimum=1),
        read_timeout_ms=reader.whole("readTimeoutMs", 30_000, minimum=1),
        retries=reader.whole("retries", 8, minimum=0),
        retry_backoff_ms=reader.whole("retryBackoffMs", 50, minimum=0),
        retry_max_backoff_ms=reader.whole("retryMaxBackoffMs", 5000, minimum=0),
    )


def _without_user(address: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", address)


def _starting_offsets(text: str, topic: str) -> StartingOffsets:
    if text == "earliest":
        return StartingOffsets("earliest")
    if text == "latest":
        return StartingOffsets("latest")
    return StartingOffsets("earliest", _offsets_of_json(text, topic))


def _offsets_of_json(text: str, topic: str) -> dict[int, int]:
    wanted = (
        f"option 'startingOffsets' = {text!r} is neither 'earliest', nor 'latest', nor JSON like"
        f' {{"{topic}":{{"0":23,"1":-2}}}} (-2 earliest, -1 latest)'
    )
    try:
        document = json.loads(text)
    except ValueError:
        raise OptionInvalid(wanted) from None
    if not isinstance(document, dict) or list(document) != [topic]:
        raise OptionInvalid(wanted)
    queues = document[topic]
    if not isinstance(queues, dict) or not queues:
        raise OptionInvalid(wanted)
    offsets: dict[int, int] = {}
    for queue, offset in queues.items():
        if not queue.isdecimal() or type(offset) is not int or offset < EARLIEST:
            raise OptionInvalid(wanted)
        offsets[int(queue)] = offset
    return offsets


class _OptionReader:
    """Options by name without regard to case, with messages that name the option as documented."""

    def __init__(self, given: Mapping[str, str]) -> None:
        names = {name.lower(): name for name in KNOWN}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            known = names.get(name.lower())
            if known is None:
                raise OptionUnknown(f"option {name!r} is not known{_suggestion(name)}")
            self._values[known] = value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name, default)
        if value is None or not value.strip():
            raise OptionMissing(f"option {name!r} is required")
        return value.strip()

    def whole(self, name: str, default: int, *, minimum: int) -> int:
        given = self.whole_or_none(name, minimum=minimum)
        return default if given is None else given

    def whole_or_none(self, name: str, *, minimum: int) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", value.strip()) or int(value) < minimum:
            raise OptionInvalid(
                f"option {name!r} = {value!r} is not a whole number of at least {minimum}"
            )
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if value.strip().lower() not in {"true", "false"}:
            raise OptionInvalid(f"option {name!r} = {value!r} is neither true nor false")
        return value.strip().lower() == "true"


def _suggestion(name: str) -> str:
    lowered = {known.lower(): known for known in KNOWN}
    nearest = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if nearest:
        return f"; did you mean {lowered[nearest[0]]!r}?"
    return f"; known are {', '.join(KNOWN)}"

"""The options of the sink: parsed and checked once, into frozen values.

No Spark, no I/O. Called by `source` when Spark asks for a writer, which is before any task.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_curlew.errors import OptionConflict, OptionInvalid
from pyspark_curlew.http.http_options import HTTP_NAMES, HttpOptions, read_http_options
from pyspark_curlew.option_reader import OptionReader
from pyspark_curlew.options import KNOWN as READ_NAMES
from pyspark_curlew.options import SINK_NAMES, TOPIC_NAME

KNOWN: Final = ("topic", "path", *SINK_NAMES, *HTTP_NAMES)
_OF_READING: Final = dict.fromkeys(set(READ_NAMES) - set(KNOWN), "reading; this writes")
_PRODUCER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where rows are sent, and in which portions."""

    http: HttpOptions
    topic: str | None
    """For all rows; None: each row names its own."""
    send_max_messages: int
    send_max_bytes: int
    idempotence: bool
    producer_name: str | None
    """For people who look at the service's producers; None: the query's id alone."""


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options of a writer; raise an `Option...` error."""
    reader = OptionReader(given, KNOWN, _OF_READING)
    choice = reader.at_most_one("topic", "path")
    topic = None if choice is None else reader.text(choice)
    if topic is not None and not TOPIC_NAME.fullmatch(topic):
        raise OptionInvalid(f"option {choice!r} = {topic!r} is not a name the service takes")
    return SinkOptions(
        http=read_http_options(reader),
        topic=topic,
        send_max_messages=reader.whole("sendMaxMessages", 5000, minimum=1),
        send_max_bytes=reader.whole("sendMaxBytes", 8 * 1024 * 1024, minimum=1024),
        idempotence=reader.flag("idempotence", default=True),
        producer_name=_producer_name(reader),
    )


def _producer_name(reader: OptionReader) -> str | None:
    name = reader.text_or_none("producerName")
    if name is None:
        return None
    if not reader.flag("idempotence", default=True):
        raise OptionConflict("option 'producerName' has no meaning beside idempotence=false")
    if not _PRODUCER_NAME.fullmatch(name):
        raise OptionInvalid(
            f"option 'producerName' = {name!r} is not 1 to 100 letters, digits, '.', '_' or '-'"
        )
    return name

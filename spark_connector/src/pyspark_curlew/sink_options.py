"""The options of the sink: parsed and checked once, into frozen values.

No Spark, no I/O. Called by `source` when Spark asks for a writer, which is before any task.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_curlew.errors import OptionInvalid, Unsupported
from pyspark_curlew.http_options import HTTP_NAMES, HttpOptions, read_http_options
from pyspark_curlew.option_reader import OptionReader
from pyspark_curlew.options import TOPIC_NAME

KNOWN: Final = ("topic", "sendMaxMessages", "sendMaxBytes", "idempotence", *HTTP_NAMES)
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""What Spark's own writer takes and passes on."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where rows are sent, and in which portions."""

    http: HttpOptions
    topic: str | None
    """For all rows; None: each row names its own."""
    send_max_messages: int
    send_max_bytes: int


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options of a writer; raise an `Option...` error or `Unsupported`."""
    ours = {name: value for name, value in given.items() if name.lower() not in _OF_SPARK}
    reader = OptionReader(ours, KNOWN)
    if reader.flag("idempotence", default=False):
        raise Unsupported(
            "option 'idempotence' = 'true' needs a producer sequence, which the service does not"
            " have yet; leave it out for at-least-once"
        )
    topic = reader.text_or_none("topic")
    if topic is not None and not TOPIC_NAME.fullmatch(topic):
        raise OptionInvalid(f"option 'topic' = {topic!r} is not a name the service takes")
    return SinkOptions(
        http=read_http_options(reader),
        topic=topic,
        send_max_messages=reader.whole("sendMaxMessages", 1000, minimum=1),
        send_max_bytes=reader.whole("sendMaxBytes", 4 * 1024 * 1024, minimum=1024),
    )

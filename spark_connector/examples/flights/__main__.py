"""The demo's stages in order: send, acknowledge a part, stream, compare.

Exit codes: 0 the two tables are equal, 1 they differ, 2 something that is needed is missing, 3 a
stage failed.
"""

import argparse
import secrets
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa

from flights import report
from flights.dataset import Delays, Group, delays_of, envelopes, load_flights
from flights.failures import Missing, StageFailed
from flights.java import require_java
from flights.node import started_node
from flights.progress import Progress
from flights.service import Service, ServiceError

QUEUES: Final = 4
BATCH: Final = 1_000
RECEIVED_AT_ONCE: Final = 256
ACKNOWLEDGED_PART: Final = 20
"""One flight of so many is received and acknowledged by the consumer group."""
GROUP: Final = "departures-board"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        print(require_java())
        return _run(options.endpoint, options.sample)
    except Missing as error:
        print(error, file=sys.stderr)
        return 2
    except StageFailed as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        return 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flights", description="A year of flights through Curlew and Spark."
    )
    parser.add_argument(
        "--endpoint", help="base address of a running node (default: start one of its own)"
    )
    parser.add_argument(
        "--sample", type=_positive, metavar="N", help="only N flights, spread over the year"
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _run(endpoint: str | None, sample: int | None) -> int:
    flights = load_flights(sample)
    print(f"{len(flights):,} flights that left New York City in 2013")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-")))
        if endpoint is None:
            endpoint = stack.enter_context(started_node(folder))
        topic = f"flights-{secrets.token_hex(4)}"
        print(f"node {endpoint}, topic {topic}, {QUEUES} queues")
        service = Service(endpoint)
        service.make_topic(topic, QUEUES)
        _send(service, topic, flights)
        _acknowledge(service, topic, -(-len(flights) // ACKNOWLEDGED_PART))
        streamed = _stream(endpoint, topic, len(flights), folder)
    return _compare(streamed, delays_of(flights))


def _send(service: Service, topic: str, flights: pa.Table) -> None:
    with Progress("send", len(flights), "messages") as progress:
        for batch in _batches(envelopes(flights)):
            service.send(topic, batch)
            progress.advance(len(batch))


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(texts, BATCH)):
        yield batch


def _acknowledge(service: Service, topic: str, wanted: int) -> None:
    with Progress("receive and acknowledge", wanted, "messages") as progress:
        while progress.done < wanted:
            most = min(RECEIVED_AT_ONCE, wanted - progress.done)
            deliveries = service.receive(topic, GROUP, most)
            if not deliveries:
                raise ServiceError(f"group {GROUP} got {progress.done} messages and then no more")
            service.acknowledge(topic, GROUP, deliveries)
            progress.advance(len(deliveries))


def _stream(endpoint: str, topic: str, messages: int, folder: Path) -> dict[Group, Delays]:
    # Without pandas, which nothing here uses, there would be no such warning from Spark.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from flights.streaming import spark_session, streamed_delays  # loads Spark: not needed before

    print("starting Spark", file=sys.stderr)
    with spark_session(folder) as session, Progress("stream", messages, "rows") as progress:
        return streamed_delays(
            session, endpoint, topic, messages, folder / "checkpoint", progress.advance
        )


def _compare(streamed: dict[Group, Delays], direct: dict[Group, Delays]) -> int:
    print()
    for line in report.lines(streamed, direct):
        print(line)
    differing = report.differences(streamed, direct)
    total = sum(delays.flights for delays in streamed.values())
    print()
    if differing:
        print(f"{differing} of {len(direct)} lines differ.")
        return 1
    print(f"All {len(direct)} lines are equal: {total:,} flights in counts, minutes and means.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

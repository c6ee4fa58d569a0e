"""The demo's stages in order: send, acknowledge a part, stream, windows, join, compare each.

The join runs in a driver of its own, which is killed in the middle, and so is the node if the demo
has started it.

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

from flights.dataset import delays_of, envelopes, load_flights
from flights.failures import Missing, StageFailed
from flights.java import require_java
from flights.nodes.killing import join_through_kills
from flights.nodes.node import OwnNode, started_node
from flights.nodes.service import Service, ServiceError
from flights.page.findings import Findings, write_page
from flights.progress import Progress

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
        return _run(options.endpoint, options.sample, options.page)
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
    parser.add_argument(
        "--page", type=Path, metavar="FILE.md", help="write what was found as a page with a chart"
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _run(endpoint: str | None, sample: int | None, page: Path | None) -> int:
    flights = load_flights(sample)
    print(f"{len(flights):,} flights that left New York City in 2013")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-")))
        node = stack.enter_context(started_node(folder)) if endpoint is None else None
        endpoint = node.endpoint if node is not None else str(endpoint)
        topic = f"flights-{secrets.token_hex(4)}"
        print(f"node {endpoint}, topic {topic}, {QUEUES} queues")
        service = Service(endpoint)
        for name in (topic, f"{topic}-joined"):
            service.make_topic(name, QUEUES)
        _send(service, topic, flights)
        _acknowledge(service, topic, -(-len(flights) // ACKNOWLEDGED_PART))
        told = _join(service, topic, len(flights), folder, node)
        findings = _stream(endpoint, topic, flights, folder)
    findings.kills = told
    if page is not None:
        write_page(page, findings, len(flights))
    return findings.tell()


def _join(
    service: Service, topic: str, messages: int, folder: Path, node: OwnNode | None
) -> list[str]:
    target = f"{topic}-joined"
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        print(text, file=sys.stderr)

    with Progress("join with the airports", messages, "rows") as progress:
        join_through_kills(
            service,
            [service.endpoint, topic, target, str(folder), str(messages)],
            target,
            messages,
            folder,
            None if node is None else node.kill_and_start,
            tell,
        )
        progress.advance(messages)
    return told


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


def _stream(endpoint: str, topic: str, flights: pa.Table, folder: Path) -> Findings:
    # Without pandas, which nothing here uses, there would be no such warning from Spark.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    # These load Spark, which is not needed before.
    from flights.streams.joining import differing_rows, joined_directly, read_again
    from flights.streams.streaming import spark_session, streamed_delays
    from flights.streams.weeks import streamed_weeks, weeks_of

    messages = len(flights)
    print("starting Spark", file=sys.stderr)
    with spark_session(folder) as session:
        where = session, endpoint, topic, messages
        with Progress("stream", messages, "rows") as progress:
            delays = streamed_delays(*where, folder / "checkpoint", progress.advance)
        with Progress("windows", messages, "rows") as progress:
            weeks = streamed_weeks(*where, folder / "checkpoint-of-weeks", progress.advance)
        with Progress("read the join again", messages, "rows") as progress:
            joined = read_again(session, endpoint, f"{topic}-joined")
            progress.advance(len(joined))
    return Findings(
        streamed=delays,
        direct=delays_of(flights),
        weeks=weeks,
        weeks_directly=weeks_of(flights),
        joined=len(joined),
        differing_rows=differing_rows(joined, joined_directly(flights)),
    )


if __name__ == "__main__":
    sys.exit(main())

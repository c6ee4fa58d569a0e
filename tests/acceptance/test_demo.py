"""`make demo` on a sample: flights go through a real node and a real Spark and come out equal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nodes.node import run_node

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
CONNECTOR = ROOT / "spark_connector"
SAMPLE = 1_200
DEADLINE_S = 900


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(CONNECTOR / "examples"), str(CONNECTOR / "src"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "flights", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_a_sample_of_flights_comes_out_equal(tmp_path: Path) -> None:
    """The demo kills the node only when it is its own; the driver is killed here, too."""
    with run_node(tmp_path / "data") as node:
        finished = run_demo("--sample", str(SAMPLE), "--endpoint", node.url)
    assert finished.returncode == 0, finished.stderr + finished.stdout
    assert "lines are equal: 1,200 flights in counts, minutes and means." in finished.stdout
    assert "differs" not in finished.stdout
    assert "windows of a week are equal; no row came too late." in finished.stdout
    assert "All 1,200 joined rows are there once, each as computed directly." in finished.stdout
    assert "kill -9 to the driver at" in finished.stderr
    for stage in (
        "send: 1,200 messages in",
        "acknowledge: 60 messages in",
        "stream: 1,200 rows in",
    ):
        assert stage in finished.stderr


def test_nobody_at_the_endpoint_is_said_in_one_sentence() -> None:
    finished = run_demo("--sample", "10", "--endpoint", "http://127.0.0.1:9")
    assert finished.returncode == 3
    assert finished.stderr.startswith("The demo failed: PUT http://127.0.0.1:9/v1/topics/flights-")
    assert "Traceback" not in finished.stderr

"""A new virtual environment with `pip install` of the wheel and PySpark: a topic can be read.

Finds what the test environment hides: a dependency that is not declared, a module that is not in
the wheel, a format that is not found by its name. Takes a minute, and pip's index or cache.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_connector.tests.support.real_node import run_real_node

pytestmark = [pytest.mark.spark, pytest.mark.fresh]

PROJECT = Path(__file__).resolve().parents[1]
READ = Path(__file__).parent / "support" / "fresh_read.py"
DEADLINE_S = 900


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command,
        env={**kept, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_the_wheel_and_pyspark_are_enough(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    built = run(*pip, "--wheel-dir", str(tmp_path), str(PROJECT))
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("pyspark_curlew-*.whl")
    assert run(sys.executable, "-m", "venv", str(tmp_path / "venv")).returncode == 0
    python = str(tmp_path / "venv" / "bin" / "python")
    installed = run(python, "-m", "pip", "install", "--quiet", f"{wheel}[spark]")
    wanted = "this test needs an index of Python packages that has PySpark, as `make test` does"
    assert installed.returncode == 0, f"{wanted}\n{installed.stderr}"
    with run_real_node(tmp_path / "node") as node:
        node.add_topic("orders", 2)
        node.send("orders", 0, b"a", b"b")
        node.send("orders", 1, b"c")
        given = {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        finished = run(python, str(READ), node.base_url, "orders", **given)
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert "read a b c" in finished.stdout

"""Makes the connector and the example importable from their folders, installed or not.

For child processes too: Spark's Python workers, and the commands that tests run.
"""

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from spark_connector.tests.support.fake_node import FakeNode, run_fake_node
from spark_connector.tests.support.real_node import RealNode, run_real_node
from tests.support.metadata.databases import postgres_databases
from tests.support.metadata.postgres import postgres_server
from tests.support.nodes.java import start_java_quickly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["postgres_databases", "postgres_server"]

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")  # no test may depend on how fast the machine is

start_java_quickly()

_NUMBERS = itertools.count(1)
PROJECT = Path(__file__).resolve().parents[1]
FOLDERS = [str(PROJECT / "src"), str(PROJECT / "examples")]

sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]
os.environ["PYTHONPATH"] = os.pathsep.join(
    [*FOLDERS, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """One session, two threads on this machine, for all tests that need Spark."""
    from spark_connector.tests.support.session import local_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        warehouse = tmp_path_factory.mktemp("warehouse")
        session = local_session("local[2]", spark_sql_warehouse_dir=str(warehouse))
        yield session
        session.stop()


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """A real node, the same one for all tests; each has topics of its own."""
    with run_real_node(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def topic() -> str:
    """A name that no other test has, for topics of `real` and for producers."""
    return f"topic-{next(_NUMBERS)}"


@pytest.fixture
def fake() -> Iterator[FakeNode]:
    """A node in this process, without topics, that fails on demand."""
    with run_fake_node() as node:
        yield node

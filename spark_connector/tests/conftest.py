"""Makes the connector and the example importable from their folders, installed or not.

For child processes too: Spark's Python workers, and the commands that tests run.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.nodes.java import start_java_quickly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")  # no test may depend on how fast the machine is

start_java_quickly()

PROJECT = Path(__file__).resolve().parents[1]
FOLDERS = [str(PROJECT / "src"), str(PROJECT / "examples")]

sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]
os.environ["PYTHONPATH"] = os.pathsep.join(
    [*FOLDERS, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """One session, two threads on this machine, for all tests that need Spark."""
    from pyspark.sql import SparkSession
    from pyspark_curlew import register

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("curlew tests")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .config("spark.python.unix.domain.socket.enabled", "true")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        register(session)
        yield session
        session.stop()

"""A plugin of pytest-xdist: what the two processes of `make test` run, and in which order.

Half of the suite's time is waiting: for Spark, for killed nodes, for file systems. The other half
is computing. So the tests stand in one row, what takes longest first, and one process begins at
each end: what waits overlaps with what computes, few Java machines run at the same time, and where
the two meet no test is long, so that they end at almost the same moment.

What is handed out is a file, whole, because fixtures may live as long as their module. There are
two exceptions: what uses the one Spark session goes to one process, and tests of `APART`, each long
and with nothing in common, are handed out one by one.

A test that fails is named at once, with its cause: a run that is ended early, or dies, has then
said what failed.

Without `-n` the order changes nothing.
"""

import os
from typing import Final

import pytest
from typing_extensions import override
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support.time_by_part import TimeByPart

SPARK: Final = "spark_connector/tests"

OF_THE_SPARK_SESSION: Final = (
    f"{SPARK}/test_closed_node.py",
    f"{SPARK}/test_commit.py",
    f"{SPARK}/test_replicas.py",
    f"{SPARK}/test_row_advice.py",
    f"{SPARK}/test_shards.py",
    f"{SPARK}/test_spark.py",
)
"""Who uses the fixture `spark`: a session costs a process ten seconds."""

APART: Final = (
    "tests/crash/store/test_full_start.py",
    "tests/property/test_failing_calls.py",
    "tests/crash/node/test_once_kills.py",
    "tests/history/test_load.py",
    "tests/property/test_simulated_disk.py",
)
"""Files whose tests are long and share no fixture but those of a session."""

LONGEST_FIRST: Final = (
    f"{SPARK}/test_cluster.py",
    *OF_THE_SPARK_SESSION,
    "tests/acceptance/test_demo.py",
    f"{SPARK}/test_chaos.py",
    "tests/crash/store/test_kills.py",
    f"{SPARK}/test_fresh_environment.py",
    "tests/contract/test_schemathesis.py",
    "tests/contract/test_generated_clients.py",
    "tests/client/celery/test_tasks.py",
    "tests/acceptance/test_replica_faults.py",
    "tests/acceptance/test_replicas.py",
    "tests/integration/cluster/replicas/test_damaged_replicas.py",
    "tests/integration/cluster/replicas/test_nodes_with_replicas.py",
    "tests/integration/test_keys.py",
    "tests/integration/api/service/test_dry_runs.py",
    "tests/crash/node/test_deletion_kills.py",
    "tests/crash/node/test_schedule_kills.py",
    "tests/crash/node/test_transaction_kills.py",
    "tests/crash/node/test_exchange_kills.py",
    "tests/integration/test_descriptors.py",
    "tests/acceptance/test_pages.py",
    "tests/property/replication/test_controls.py",
    "tests/property/replication/test_simulation.py",
    "tests/property/test_membership_model.py",
    "tests/crash/store/test_full_start.py",
    "tests/property/test_failing_calls.py",
    "tests/crash/node/test_once_kills.py",
    "tests/history/test_load.py",
    "tests/property/test_simulated_disk.py",
)
"""The front of the row: files of half a minute and more, and last what is handed out in pieces.
Files that are not named follow in the order of their names."""


WHY_MAX: Final = 200
"""Characters of a cause in the line that names a failure."""


def unit_of(nodeid: str) -> str:
    """What is handed out together with this test."""
    path = nodeid.partition("::")[0]
    if path in OF_THE_SPARK_SESSION:
        return "the Spark session"
    return nodeid if path in APART else path


def place(nodeid: str) -> int:
    """The test's place in the row; those that are not named share the last one."""
    path = nodeid.partition("::")[0]
    return LONGEST_FIRST.index(path) if path in LONGEST_FIRST else len(LONGEST_FIRST)


class FromBothEnds(LoadScopeScheduling):
    """Hands out the row's units: to every other process from its end."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    @override
    def _assign_work_unit(self, node: WorkerController) -> None:
        number = int(node.gateway.id.removeprefix("gw"))
        if number % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FromBothEnds:
    config.option.loadscopereorder = False  # it would put the files of most tests first
    return FromBothEnds(config, log)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(TimeByPart())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{failure_line(report)}", flush=True)


def failure_line(report: pytest.TestReport) -> str:
    """What failed, when, and the first line of why: whoever sees no traceback sees the cause."""
    why = report.longreprtext
    if crash := getattr(report.longrepr, "reprcrash", None):
        why = crash.message
    first = next((line.strip() for line in why.splitlines() if line.strip()), "")
    return f"FAILED at {report.when}: {report.nodeid}: {first[:WHY_MAX]}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))

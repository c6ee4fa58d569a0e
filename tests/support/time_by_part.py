"""What the parts of the service cost `make test`, in minutes of its processes side by side.

A part is a subject that was built as a whole and was given its share of the time. The sum is what
the run takes when the processes end at the same moment. Where a test is says what part it is of;
what no other part has is the house's.
"""

from typing import Final

import pytest

MINUTES: Final = {
    "house": 15,
    "RocketMQ's rest": 2,
    "security": 3,
    "shards": 4,
    "replicas": 6,
    "clients": 3,
    "pages": 3,
}
"""What each part may take on two cores."""

FOLDERS: Final = {
    "RocketMQ's rest": (
        "tests/integration/api/configuration",
        "tests/integration/api/namespaces",
        "tests/integration/api/telemetry",
        "tests/property/test_membership_model.py",
        "tests/unit/broker/figures",
        "tests/unit/broker/hooks",
        "tests/unit/broker/polling",
        "tests/unit/broker/tracing",
    ),
    "security": (
        "tests/integration/secure",
        "tests/property/test_access_model.py",
        "tests/unit/api/access",
        "tests/unit/api/quotas",
        "tests/unit/cluster/metadata/audit",
        "tests/unit/domain/access",
        "tests/unit/domain/quotas",
        "tests/unit/runtime/secure",
    ),
    "shards": (
        "tests/acceptance/test_pages_on_a_cluster.py",
        "tests/integration/cluster",
        "tests/unit/api/aims",
        "tests/unit/api/relay",
        "tests/unit/domain/shards",
    ),
    "replicas": (
        "tests/integration/replica",
        "tests/property/replication",
        "tests/unit/api/replicas",
        "tests/unit/cluster/replication",
        "tests/unit/cluster/wire",
        "tests/unit/replica",
        "tests/unit/store/replica",
    ),
    "clients": ("tests/client", "tests/contract/test_generated_clients.py"),
    "pages": ("tests/ui", "tests/unit/web"),
}
"""Folders and files of each part but the house."""

PART_OF: Final = {folder: part for part, folders in FOLDERS.items() for folder in folders}


def part_of(path: str) -> str:
    """The part that the file belongs to, by the path from the project's folder."""
    while path:
        if path in PART_OF:
            return PART_OF[path]
        path = path.rpartition("/")[0]
    return "house"


class TimeByPart:
    """A plugin of the process that collects the reports."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(MINUTES, 0.0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, test and teardown come one by one."""
        self._seconds[part_of(report.nodeid.partition("::")[0])] += report.duration

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """A line: the minutes of each part, of those that it may take."""
        processes = config.getoption("numprocesses", default=None) or 1
        terminalreporter.section("minutes by part")
        terminalreporter.write_line(
            " · ".join(
                f"{part} {seconds / 60 / processes:.1f} of {MINUTES[part]}"
                for part, seconds in self._seconds.items()
            )
        )

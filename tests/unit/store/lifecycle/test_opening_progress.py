"""Lines about a long opening: when they come, and what they say."""

import logging
from pathlib import Path

import pytest
from typing_extensions import override

from app.domain.limits import MIB
from app.store import MessageStore, OsFiles
from app.store.lifecycle.opening_progress import PROGRESS_SECONDS, OpeningProgress
from tests.support.stores.clock import FakeClock
from tests.support.stores.stores import SMALL, lose_checkpoints, open_store
from tests.support.stores.turns import ManualTurns


def test_a_line_comes_every_few_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    progress = OpeningProgress(clock)
    with caplog.at_level(logging.INFO):
        for second in range(12):
            progress.at("recovering the log", second * MIB, 24 * MIB - 1)
            clock.advance(s=1)
    assert PROGRESS_SECONDS == 5
    assert caplog.messages == [
        "recovering the log: 5 of at most 24 MiB (20 %); the node listens when it is done",
        "recovering the log: 10 of at most 24 MiB (41 %); the node listens when it is done",
    ]


class SlowClock(FakeClock):
    """Time passes while the log is read: as long as it takes for a line."""

    @override
    def monotonic_s(self) -> float:
        self.advance(s=PROGRESS_SECONDS)
        return super().monotonic_s()


@pytest.mark.parametrize(("clock", "lines"), [(FakeClock(), 0), (SlowClock(), 1)])
def test_a_store_says_how_far_its_recovery_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clock: FakeClock, lines: int
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    opened = open_store(OsFiles(root))
    for number in range(60):
        opened.send(b"message %d" % number)
    opened.store.close()
    lose_checkpoints(root)
    with caplog.at_level(logging.INFO):
        MessageStore.open(OsFiles(root), SMALL, clock, ManualTurns()).close()
    said = [each for each in caplog.messages if each.startswith("recovering the log: ")]
    assert bool(said) is bool(lines)
    assert all("MiB (" in each for each in said)

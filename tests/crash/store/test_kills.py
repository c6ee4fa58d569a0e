"""G1: a real process killed at the n-th call and at random times loses nothing acknowledged.

Nor does it leave a part of a step. `make test` does it at 60 points, `make test-long` at 200,
`make test-crash` (tests/crash/sweeps/sweep.py) at 1,000. Positive controls: a process that
acknowledges before the write, and one that sends the messages of a step one by one.
"""

import random

import pytest

from tests.crash.sweeps.kills import Point, choose_points, run_points, strace_version
from tests.support.length import count

POINTS = count(60, 200)
SEED = 3

pytestmark = pytest.mark.crash


def test_kills_lose_nothing() -> None:
    assert strace_version(), "install strace (tests/install_servers.sh does)"
    figures = run_points(choose_points(random.Random(SEED), POINTS))
    print(f"seed {SEED}: {figures.acknowledged} acknowledged at {figures.points} points")
    assert figures.complaints == []
    assert figures.lost == 0
    assert figures.killed > POINTS * 0.8
    assert figures.acknowledged > POINTS * 20


def test_acknowledging_before_the_write_is_found_out() -> None:
    points = [Point("write", nth, "sync", "mixed") for nth in (3, 5, 7)]
    assert run_points(points, "--leave-out", "waiting").lost > 0


def test_a_step_sent_in_parts_is_found_out() -> None:
    points = [Point("write", nth, "sync", "small") for nth in range(3, 13)]
    complaints = run_points(points, "--leave-out", "joining").complaints
    assert any("without its step" in complaint for complaint in complaints)

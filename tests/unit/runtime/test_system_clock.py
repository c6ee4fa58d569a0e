"""The real clock, as far as a test can tell."""

from app.domain.clock import Clock
from app.runtime.system_clock import SystemClock


def test_both_clocks_go_forward() -> None:
    clock: Clock = SystemClock()
    wall, monotonic = clock.now_ms(), clock.monotonic_s()
    assert wall > 1_700_000_000_000
    assert clock.now_ms() >= wall
    assert clock.monotonic_s() >= monotonic

"""Slow puts: logged with their parts, and not more than a log can bear."""

import logging

import pytest

from app.api.telemetry import slow_puts
from app.api.telemetry.slow_puts import SlowPuts
from tests.support.nodes.brokers import World


def test_a_slow_put_is_logged_with_its_parts_once_a_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(slow_puts, "monotonic", lambda: now_s)
    world = World()
    world.store.state.pending_bytes = 40
    puts = SlowPuts()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            puts.note(world.store, "orders", 2, 300, 0.25, 0.75)
        now_s += 1.0
        puts.note(world.store, "orders", 2, 300, 0.25, 0.75)
    first, second = caplog.messages
    assert "2 messages (300 bytes) to topic orders took 750 ms to store and 250 ms" in first
    assert "40 bytes wait to be written" in first
    assert "0 other slow puts" in first
    assert "2 other slow puts" in second
    assert puts.count == 4

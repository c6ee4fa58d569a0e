"""Fails a test when one turn of the event loop took too much of its thread's processor time.

The only timing that a test may assert. It is processor time of one thread, so other processes and
threads do not count; nor does the garbage collector, whose pauses are its own. What is imported or
made for the first time has to be warmed up before. Needs asyncio's own loop: a turn is one
`_run_once`, all that was ready when it began.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

TURN_SECONDS_MAX: Final = 0.05
"""Processor time that one turn may take at the limits that `/v1/limits` serves."""


class TurnWatch:
    """Looks at the turns of the running loop within `with watch.short_turns():`."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        """Of the last block."""
        self.turns = 0
        self._collecting_s = 0.0
        self._collection_began_s = 0.0
        self._thread_id = 0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the turns that begin and end within the block. It must await."""
        loop: Any = asyncio.get_running_loop()
        run_once = loop._run_once
        self.longest_s, self.turns, self._thread_id = 0.0, 0, threading.get_ident()

        def measured_turn() -> None:
            self._collecting_s = 0.0
            began_s = time.thread_time()
            run_once()
            took_s = time.thread_time() - began_s - self._collecting_s
            self.longest_s = max(self.longest_s, took_s)
            self.turns += 1

        gc.callbacks.append(self._on_collection)
        loop._run_once = measured_turn
        try:
            yield
        finally:
            loop._run_once = run_once
            gc.callbacks.remove(self._on_collection)

    @contextmanager
    def short_turns(self) -> Iterator[None]:
        """Fail when a turn within the block takes longer than it may."""
        with self.measured():
            yield
        self.check()

    @property
    def is_short(self) -> bool:
        """Whether no turn of the last block took longer than it may."""
        return self.longest_s <= TURN_SECONDS_MAX

    def check(self) -> None:
        """Fail when a turn of the last block took longer than it may."""
        assert self.turns, "no turn began and ended within the block"
        took = f"a turn of the event loop took {self.longest_s * 1000:.0f} ms of processor time"
        assert self.is_short, took

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread_id:
            return
        if phase == "start":
            self._collection_began_s = time.thread_time()
        else:
            self._collecting_s += time.thread_time() - self._collection_began_s


@pytest.fixture
def turn_watch() -> TurnWatch:
    """For tests of what is heavy."""
    return TurnWatch()

"""Waiting for a condition, never for a time."""

import asyncio
import time
from collections.abc import Callable
from itertools import count


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until `condition` holds; other threads get their time, too."""
    async with asyncio.timeout(60):
        for _ in count():
            if condition():
                return
            await asyncio.sleep(0)


def wait_until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    """The same for a test that talks to another process; looks every ten milliseconds."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "the condition does not come true"
        time.sleep(0.01)

"""Waiting for a condition, never for a time."""

import asyncio
from collections.abc import Callable
from itertools import count


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until `condition` holds; other threads get their time, too."""
    async with asyncio.timeout(10):
        for _ in count():
            if condition():
                return
            await asyncio.sleep(0)

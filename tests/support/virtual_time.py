"""An event loop whose time goes on only when nothing is left to do: to the next timer, at once.

For what waits for seconds, which costs a test none, and comes at exactly its time. There is no
other end to wait for: no sockets, no threads.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from typing_extensions import override

T = TypeVar("T")
Ready = list[tuple[selectors.SelectorKey, int]]


class _Selector(selectors.SelectSelector):
    """Waits for nothing."""

    now_s = 0.0

    @override
    def select(self, timeout: float | None = None) -> Ready:
        found = super().select(0)
        if not found:
            assert timeout is not None, "everything waits, and no timer is set"
            self.now_s += timeout
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Begins at 0 s."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    @override
    def time(self) -> float:
        return self._virtual.now_s


def in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Its result."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)

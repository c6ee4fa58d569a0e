"""Notices that the client of a waiting request has disconnected, and ends its wait.

The wait itself is in `app.broker.read.long_polls`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Self, TypeVar

from app.api.http.request_context import ClientGone, Receive

_T = TypeVar("_T")


class ClientWatch:
    """Watches the client of a request while the request waits; at its end raises `ClientGone` when
    the client has left. A request that does not wait costs no task. Event loop only."""

    __slots__ = ("_end_wait", "_is_gone", "_receive", "_watcher")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._end_wait: Callable[[], object] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_gone = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        if self._is_gone and failure is None:
            raise ClientGone

    def gone(self) -> bool:
        """Whether the client was seen to have left."""
        return self._is_gone

    def watch(self, end_wait: Callable[[], object]) -> None:
        """Call `end_wait`, and no earlier one any more, as soon as the client has left."""
        self._end_wait = end_wait
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._wait_for_disconnect())
        elif self._is_gone:
            end_wait()

    async def _wait_for_disconnect(self) -> None:
        # The body has been read, so the next event can only be the disconnect.
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._end_wait is not None:
            self._end_wait()


async def unless_gone(
    receive: Receive,
    start: Callable[[Callable[[], bool]], Coroutine[object, object, _T]],
    discard: Callable[[_T], None],
) -> _T:
    """The result of `start(gone)`, which is cancelled when the client disconnects: `ClientGone`.

    `gone` says whether it has, so that nothing is leased to a client that left. A result that came
    too late goes to `discard`. Costs two tasks: use it only to wait.
    """
    with ClientWatch(receive) as client:
        work = asyncio.get_running_loop().create_task(start(client.gone))
        client.watch(work.cancel)
        try:
            await asyncio.wait((work,))
        finally:
            work.cancel()
        if not client.gone():
            return work.result()
        if not work.cancelled():
            discard(work.result())
    raise ClientGone

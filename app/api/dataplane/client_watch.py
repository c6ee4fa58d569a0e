"""Notices that the client of a waiting request has disconnected, or may not have it any more, and
ends its wait.

The wait itself is in `app.broker.read.long_polls`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Self, TypeVar

from app.api.access.access_watch import AccessWatch
from app.api.http.request_context import ClientGone, Receive
from app.domain.access.standing import Standing
from app.domain.errors import CurlewError

_T = TypeVar("_T")


class ClientWatch:
    """Watches the client of a request while the request waits; at its end raises `ClientGone` when
    the client has left, or what refuses it by now. A request that does not wait costs no task.
    Event loop only."""

    __slots__ = (
        "_access",
        "_end_wait",
        "_is_gone",
        "_receive",
        "_refusal",
        "_standing",
        "_watcher",
    )

    def __init__(self, receive: Receive, standing: Standing) -> None:
        self._receive = receive
        self._standing = standing
        self._access: AccessWatch | None = None
        """Of a request that waits."""
        self._refusal: CurlewError | None = None
        self._end_wait: Callable[[], object] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_gone = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if self._access is not None:
            self._access.stop()
        if self._watcher is not None:
            self._watcher.cancel()
        if failure is None:
            if self._is_gone:
                raise ClientGone
            refusal = self._look()
            if refusal is not None:
                raise refusal

    def gone(self) -> bool:
        """Whether the client was seen to have left, or may not have an answer any more. Asked
        before each hand-out."""
        return self._is_gone or self._look() is not None

    @property
    def refusal(self) -> CurlewError | None:
        """Why the client may not have an answer any more."""
        return self._look()

    def begin(self, end_wait: Callable[[], object]) -> None:
        """As `watch`, unless it watches already."""
        if self._watcher is None:
            self.watch(end_wait)

    def watch(self, end_wait: Callable[[], object]) -> None:
        """Call `end_wait`, and no earlier one any more, as soon as the client has left."""
        self._end_wait = end_wait
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._wait_for_disconnect())
            self._access = AccessWatch(self._standing, self._end).begin()
        if self.gone():
            end_wait()

    def _look(self) -> CurlewError | None:
        """What refuses the request; what did so once does so for good."""
        if self._refusal is None:
            access = self._access
            self._refusal = self._standing.refusal() if access is None else access.look()
        return self._refusal

    def _end(self, _reason: object) -> None:
        if self._end_wait is not None:
            self._end_wait()

    async def _wait_for_disconnect(self) -> None:
        # The body has been read, so the next event can only be the disconnect.
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._end_wait is not None:
            self._end_wait()


async def unless_gone(
    receive: Receive,
    standing: Standing,
    start: Callable[[Callable[[], bool]], Coroutine[object, object, _T]],
    discard: Callable[[_T], None],
) -> _T:
    """The result of `start(gone)`, which is cancelled when the client disconnects: `ClientGone`;
    or when it may not go on: what refuses it then.

    `gone` says whether it has, so that nothing is leased to a client that left. A result that came
    too late goes to `discard`. Costs two tasks: use it only to wait.
    """
    with ClientWatch(receive, standing) as client:
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

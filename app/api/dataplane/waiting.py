"""Long polls: wait for the broker, and for the client going away, whichever comes first."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

from app.api.http.request_context import ClientGone, Receive

_T = TypeVar("_T")


async def unless_gone(
    receive: Receive,
    start: Callable[[Callable[[], bool]], Coroutine[object, object, _T]],
    discard: Callable[[_T], None],
) -> _T:
    """The result of `start(gone)`; `ClientGone` when the client disconnects first.

    `start` gets a function that says whether the client has gone, so that nothing is leased to
    nobody. A result that came too late goes to `discard`. Costs two tasks: use it only to wait.
    """
    left = False

    async def watch() -> None:
        nonlocal left
        # The body has been read, so the next event can only be the disconnect.
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        work.cancel()

    try:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(start(lambda: left))
            watcher = group.create_task(watch())
            work.add_done_callback(lambda _: watcher.cancel())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    if not left:
        return work.result()
    if not work.cancelled():
        discard(work.result())
    raise ClientGone

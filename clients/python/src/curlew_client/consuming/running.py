"""One consumer of a worker at work, on an event loop: fetch, hand to handlers, settle."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from curlew_client.consuming.calls import LOG, WAIT_S, LeasedGroup, is_passing
from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.flow import Flow
from curlew_client.consuming.working import Handler, Handlers, Settler, Work
from curlew_client.errors import CurlewError

FAILURE_PAUSE_S: Final = 1.0


class RunningConsumer:
    """Start it, `drain` it, once each."""

    def __init__(self, group: LeasedGroup, handler: Handler) -> None:
        self._group = group
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._flow = Flow(
            handlers=handler.concurrency * (handler.batch or 1),
            messages_max=handler.messages_max,
            bytes_max=handler.bytes_max,
            span_max=handler.span_max,
        )
        self._settler = Settler(group, self._give, handler.concurrency)
        name = f"curlew-{group.calls.options.group}"
        self._handlers = Handlers(handler, name, self._settler.ack, self._decided)
        self._has_room = asyncio.Event()
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._fetcher: asyncio.Task[None] | None = None
        self.failure: asyncio.Future[None] = self._loop.create_future()
        """Done with an error that ends the worker, such as a wrong key."""

    def start(self) -> None:
        """Begin to fetch and to handle."""
        self._group.start()
        self._handlers.start()
        self._settler.start()
        self._fetcher = self._loop.create_task(self._fetch_on())
        self._fetcher.add_done_callback(self._fetching_ended)

    def pause(self) -> None:
        """Fetch nothing more until `resume`; what is held is handled."""
        self._goes_on.clear()

    def resume(self) -> None:
        """Fetch again."""
        self._goes_on.set()

    def _fetching_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.failure.done():
            return
        error = task.exception()
        if error is not None:
            self.failure.set_exception(error)

    # --- fetching

    async def _fetch_on(self) -> None:
        while True:
            await self._goes_on.wait()
            count, size = self._flow.room()
            if count == 0:
                self._has_room.clear()
                if self._flow.room()[0] == 0:
                    await self._has_room.wait()
                continue
            try:
                messages = await self._group.receive(count, WAIT_S, self._by_hand, size)
            except CurlewError as error:
                if not is_passing(error):
                    raise
                LOG.warning("nothing can be received now: %s", error)
                await asyncio.sleep(FAILURE_PAUSE_S)
                continue
            if self._handlers.is_idle and len(messages) >= count:
                self._flow.starved()
            self._hand_out(messages)

    def _hand_out(self, messages: Work) -> None:
        self._flow.take(messages)
        self._handlers.put(messages)

    def _decided(self, _work: Work, decisions: list[Decision]) -> None:
        if decisions:
            self._settler.add(decisions)

    def _by_hand(self, decision: Decision) -> Any:
        """A handler settles a message itself: in its thread, or awaited."""
        settled = self._settler.now(decision)
        if self._handler.is_async:
            return settled
        return asyncio.run_coroutine_threadsafe(settled, self._loop).result()

    def _give(self, decisions: Sequence[Decision]) -> None:
        self._flow.give(decision.message for decision in decisions)
        self._has_room.set()

    # --- ending

    async def drain(self, within_s: float) -> None:
        """Fetch nothing more, release what has not begun, wait for handlers, settle all."""
        if self._fetcher is not None:
            self._fetcher.cancel()
            await asyncio.gather(self._fetcher, return_exceptions=True)
        unbegun = await self._group.recovered(self._by_hand)
        self._flow.take(unbegun)
        for work in self._handlers.end():
            unbegun += work
        for message in unbegun:
            message.is_settled = True
        # Others get what is released while handlers still work.
        self._settler.add([Decision("release", message) for message in unbegun])
        await self._handlers.ended(within_s)
        await self._settler.stop()
        await self._group.stop()

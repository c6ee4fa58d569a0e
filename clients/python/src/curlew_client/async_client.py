"""The client for asyncio."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

from curlew_client.aio.admin.admin import AsyncAdmin
from curlew_client.aio.requesting import answer, ask
from curlew_client.aio.transactions import AsyncTransaction
from curlew_client.assigned.options import Start
from curlew_client.assigned.pull_consumer import AsyncPullConsumer
from curlew_client.consuming.calls import ReceiveOptions
from curlew_client.consuming.loops import AsyncMessageLoop, batch_asked
from curlew_client.consuming.messages import Received
from curlew_client.engine import AsyncEngine
from curlew_client.errors import CurlewError
from curlew_client.face import (
    ConsumerFace,
    OtherFace,
    ProducerFace,
    QueueSelector,
    called_back,
    select_queue,
)
from curlew_client.hooks import Prepared, Reported, Sending
from curlew_client.producing.batches import SendFuture
from curlew_client.producing.messages import Message, SendRequest, Waiting, as_message, send_request
from curlew_client.results import Reply, SendResult, result_of, results_of

Callback = Callable[[SendResult | None, CurlewError | None], object]


class AsyncClient(
    ProducerFace[
        Coroutine[Any, Any, SendResult],
        Coroutine[Any, Any, list[SendResult]],
        Coroutine[Any, Any, SendFuture],
        Coroutine[Any, Any, None],
    ],
    ConsumerFace[AsyncMessageLoop, Coroutine[Any, Any, list[Received[Coroutine[Any, Any, None]]]]],
    OtherFace[AsyncTransaction, AsyncAdmin, Coroutine[Any, Any, Reply], Coroutine[Any, Any, None]],
):
    """A client for asyncio: the calls of `Client`, with `await`. Belongs to one event loop."""

    _engine: AsyncEngine | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _admin: AsyncAdmin | None = None

    async def __aenter__(self) -> Self:
        self._running()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _running(self) -> AsyncEngine:
        self._session.check_usable()
        loop = asyncio.get_running_loop()
        if self._engine is None:
            self._engine, self._loop = AsyncEngine(self._session), loop
        elif self._loop is not loop:
            raise RuntimeError(
                "this AsyncClient belongs to another event loop; make one for each loop"
            )
        return self._engine

    async def close(self) -> None:
        """Send what is left, and close. May be called again."""
        session = self._session
        if session.state in {"closing", "closed"}:
            return
        session.state = "closing" if session.is_of_this_process else "closed"
        try:
            if self._admin is not None and session.is_of_this_process:
                await self._admin.close()
            if self._engine is not None and session.is_of_this_process:
                await self._engine.close()
        finally:
            session.closed()

    async def _send(self, request: SendRequest, timeout_s: float) -> SendResult:
        session = self._session
        with Reported(session.hooks, request.sending) as reported:
            sender = self._running().sender
            reply = await sender.send(request, timeout_s, session.options.retries)
            result = sent_once(request, reply)
            reported.gave([result])
        return result

    async def _send_selected(
        self,
        topic: str,
        message: Message,
        selector: QueueSelector,
        sending: Sending | None,
        timeout_s: float,
    ) -> SendResult:
        session = self._session
        with Reported(session.hooks, sending) as reported:
            select_queue(selector, await self._queues_of(topic), message)
            request = send_request(topic, message, session.options.compress_from)
            reply = await self._running().sender.send(request, timeout_s, session.options.retries)
            result = sent_once(request, reply)
            reported.gave([result])
        return result

    async def _queues_of(self, topic: str) -> Sequence[int]:
        """The queues that take messages, as they were within the last 30 s."""
        known = self._session.known_queues(topic)
        if known is None:
            shown = await self.admin.get_topic(topic)
            count = shown["write_queues"]
            known = range(shown["queues"] if count is None else count)
            self._session.keep_queues(topic, known)
        return known

    async def _send_batch(self, request: SendRequest, timeout_s: float) -> list[SendResult]:
        session = self._session
        with Reported(session.hooks, request.sending) as reported:
            sender = self._running().sender
            reply = await sender.send(request, timeout_s, session.options.retries)
            results = batch_results(request, reply)
            reported.gave(results)
        return results

    async def _send_later(
        self,
        topic: str,
        message: Waiting,
        callback: Callback | None,
        selector: QueueSelector | None,
        sending: Sending | None,
    ) -> SendFuture:
        with Prepared(self._session.hooks, sending):
            if selector is not None:
                message = as_message(message)
                select_queue(selector, await self._queues_of(topic), message)
            future = await self._running().batcher.put(topic, message)
        return called_back(future, callback)

    async def _send_oneway(self, topic: str, message: Message, sending: Sending | None) -> None:
        with Reported(self._session.hooks, sending):
            _ = await self._running().batcher.put(topic, message, is_one_way=True)

    # --- receiving

    def _receive(
        self, options: ReceiveOptions, limit: int | None, idle_s: float | None
    ) -> AsyncMessageLoop:
        return AsyncMessageLoop(self._running, options, limit, idle_s)

    async def _receive_batch(
        self, options: ReceiveOptions, max_messages: int, wait_s: float
    ) -> list[Received[Coroutine[Any, Any, None]]]:
        asked = batch_asked(self._running(), options, max_messages, wait_s)
        return await asked.receive(asked.settle)

    def pull_consumer(
        self,
        *,
        group: str,
        auto_commit: bool = True,
        start: Start | None = None,
        offset_reset: str = "nearest",
        strategy: str | None = None,
    ) -> AsyncPullConsumer:
        """Lite pull: a block in which the program asks for messages itself, by `poll`.

        `subscribe` shares queues with the group's other members, `assign` reads chosen ones. See
        `AsyncPullConsumer`; the options are those of `Worker.assigned_consumer`.
        """
        options = {"start": start, "offset_reset": offset_reset, "strategy": strategy}
        return AsyncPullConsumer(self._running, group, auto_commit, options)

    # --- the rest

    @property
    def admin(self) -> AsyncAdmin:
        """The control plane: topics, groups, offsets, dead letters."""
        if self._admin is None:
            self._admin = AsyncAdmin(self._session)
        return self._admin

    def _transaction(self, topic: str, group: str, check_after_ms: int | None) -> AsyncTransaction:
        sender = self._running().sender
        return AsyncTransaction(self._session, sender, topic, group, check_after_ms)

    async def _request(self, topic: str, message: Message, wait_ms: int) -> Reply:
        return await ask(self._session, self._running().sender, topic, message, wait_ms)

    async def _reply(self, correlation_id: str, message: Message) -> None:
        await answer(self._session, self._running().sender, correlation_id, message)


def sent_once(request: SendRequest, reply: Any) -> SendResult:
    """The result of a single send; `reply` is None when it was stored before."""
    if reply is None:
        return SendResult(request.topic, is_duplicate=True)
    return result_of(reply[0], request.topic, reply[1])


def batch_results(request: SendRequest, reply: Any) -> list[SendResult]:
    """A result for each message; the error of the first that has one is raised."""
    if reply is None:
        return [SendResult(request.topic, is_duplicate=True)] * request.count
    found = []
    for each in results_of(reply[0], request.topic, request.count, reply[1]):
        if isinstance(each, CurlewError):
            raise each
        found.append(each)
    return found

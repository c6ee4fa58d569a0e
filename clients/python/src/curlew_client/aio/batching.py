"""Sends the batches of `send_async` from an event loop, and tells their futures."""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from time import monotonic
from typing import Any, Final

from curlew_client.aio.sending import AsyncSender
from curlew_client.errors import CurlewError
from curlew_client.producing.batches import Batch, Batches, SendFuture
from curlew_client.producing.messages import (
    Message,
    SendRequest,
    Waiting,
    as_message,
    batch_request,
    send_request,
)
from curlew_client.producing.routes import is_not_leader
from curlew_client.results import SendResult, result_of, results_of
from curlew_client.session import Session

Outcomes = Sequence[SendResult | CurlewError] | CurlewError
"""One for each message, or an error of all."""

ONE_WAY: Final = "mq-one-way: true\r\n"


class AsyncBatcher:
    """Of one client. Runs on the event loop; `batches.add` anywhere."""

    def __init__(self, session: Session, sender: AsyncSender) -> None:
        options = session.options
        self._session = session
        self._sender = sender
        self._loop = asyncio.get_running_loop()
        self.batches = Batches(
            lambda: self._loop.call_soon_threadsafe(self.wake),
            messages_max=options.batch_messages,
            bytes_max=options.batch_bytes,
            under_way_messages=options.under_way_messages,
            under_way_bytes=options.under_way_bytes,
            linger_s=session.linger_s,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        """Coroutines that wait for room."""

    async def put(self, topic: str, message: Waiting, *, is_one_way: bool = False) -> SendFuture:
        """On the event loop: add a message, after waiting for room."""
        while True:
            future = self.batches.add(topic, message, is_one_way)
            if future is not None:
                return future
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def wake(self) -> None:
        """Send what is ready, and look again when the next linger is over."""
        for batch in self.batches.ready():
            self._start(self._send(batch))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_s = self.batches.next_due_s()
        if due_s is not None:
            self._timer = self._loop.call_later(max(due_s - monotonic(), 0), self.wake)

    async def drain(self) -> None:
        """Take no more, send everything, and wait until all of it has its results."""
        self.batches.close()
        self._let_waiters_look()
        for batch in self.batches.ready(all_of_them=True):
            self._start(self._send(batch))
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, batch: Batch) -> None:
        following: Batch | None = batch
        while following is not None:
            outcome = await self._results_of(following)
            sent, following = following, self.batches.over(following)
            sent.resolve(outcome)
            self._let_waiters_look()

    def _let_waiters_look(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _results_of(self, batch: Batch) -> Outcomes:
        """Whatever ends the batch is its outcome: its futures and its room hang on that."""
        return await _outcome_of(self._routed_results_of(batch))

    async def _routed_results_of(self, batch: Batch) -> Outcomes:
        topic, routes = batch.key.topic, self._session.routes
        if batch.key.is_framed or batch.key.queue_id is not None:
            return await self._part(batch, batch.messages)
        deadline_s = monotonic() + self._session.timeout_s
        if routes.is_on:
            await self._sender.learn_route(topic, deadline_s)
        messages = [as_message(each) for each in batch.messages]
        parts = routes.parts(topic, messages)
        if len(parts) == 1:
            results = await self._part(batch, messages)
            if not (isinstance(results, CurlewError) and is_not_leader(results)):
                return results
            if routes.is_on:  # which it is from the refusal on, unless the user turned it off
                await self._sender.learn_route(topic, deadline_s)
            parts = routes.parts(topic, messages)
        return await self._by_parts(batch, messages, parts)

    async def _by_parts(
        self, batch: Batch, messages: Sequence[Message], parts: Sequence[Sequence[int]]
    ) -> Outcomes:
        """Each shard stores its messages at once or not at all, whatever others do."""
        chosen = [[messages[index] for index in part] for part in parts]
        found = await asyncio.gather(*(self._of_shard(batch, messages) for messages in chosen))
        results: dict[int, SendResult | CurlewError] = {}
        for part, outcome in zip(parts, found, strict=True):
            for place, index in enumerate(part):
                results[index] = outcome if isinstance(outcome, CurlewError) else outcome[place]
        return [results[index] for index in range(len(messages))]

    async def _of_shard(self, batch: Batch, messages: list[Message]) -> Outcomes:
        """In one request; when a route that is missing or old made it one of several shards, in
        one for each message, in order.

        After an error the later messages of its key are not sent, and no more at all after one
        that may pass: the others would wait for the same.
        """
        outcome = await self._part(batch, messages)
        if not isinstance(outcome, CurlewError) or len(messages) == 1:
            return outcome
        if not is_not_leader(outcome) or outcome.outcome != "not_stored":
            return outcome
        results: list[SendResult | CurlewError] = []
        failed: dict[str, CurlewError] = {}
        passing: CurlewError | None = None
        for message in messages:
            key = message.sharding_key
            before = passing or (failed.get(key) if key is not None else None)
            if before is not None:
                results.append(_not_sent(before))
                continue
            single = await self._part(batch, [message])
            if isinstance(single, CurlewError):
                results.append(single)
                if single.retryable:
                    passing = single
                elif key is not None:
                    failed[key] = single
            else:
                results.append(single[0])
        return results

    async def _part(self, batch: Batch, messages: Sequence[Waiting]) -> Outcomes:
        """Send these messages of the batch in one request."""
        return await _outcome_of(self._sent(batch, messages))

    def _request(self, batch: Batch, messages: Sequence[Waiting]) -> SendRequest:
        """Raises a `CurlewError` where one of the messages cannot be encoded."""
        options, (topic, queue_id, *_) = self._session.options, batch.key
        try:
            if len(messages) == 1 and not batch.key.is_one_way:
                return send_request(topic, as_message(messages[0]), options.compress_from)
            request = batch_request(topic, messages, queue_id, options.namespace)
            return request.also(ONE_WAY) if batch.key.is_one_way else request
        except Exception as error:
            failure = CurlewError(f"the batch cannot be sent: {error}")
            failure.outcome = "not_stored"
            raise failure from error

    async def _sent(self, batch: Batch, messages: Sequence[Waiting]) -> Outcomes:
        session, topic = self._session, batch.key.topic
        request = self._request(batch, messages)
        reply = await self._sender.send(request, session.timeout_s, session.options.async_retries)
        if reply is None:
            return [SendResult(topic, is_duplicate=True)] * len(messages)
        if len(messages) == 1 and not batch.key.is_one_way:
            return [result_of(reply[0], topic, reply[1])]
        return results_of(reply[0], topic, len(messages), reply[1])


async def _outcome_of(work: Awaitable[Outcomes]) -> Outcomes:
    """What becomes of the work, also when it is ended: an error is an outcome."""
    try:
        return await work
    except CurlewError as error:
        return error
    except asyncio.CancelledError:
        failure = CurlewError("the event loop ended while the message was under way")
    except Exception as error:  # noqa: BLE001  # its futures wait for it, whatever it is
        failure = CurlewError(f"the batch cannot be sent: {error}")
        failure.__cause__ = error
    failure.outcome = "unknown"
    return failure


def _not_sent(before: CurlewError) -> CurlewError:
    failure = CurlewError(f"not sent, as a message before it failed: {before}")
    failure.outcome, failure.retryable = "not_stored", before.retryable
    failure.__cause__ = before
    return failure

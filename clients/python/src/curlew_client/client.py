"""The blocking client.

`send` and `send_batch` go over blocking sockets in the caller's thread. Everything else is the
asyncio client's work, on one daemon thread with an event loop.
"""

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self

from curlew_client.assigned.options import Start
from curlew_client.assigned.pull_consumer import PullConsumer
from curlew_client.async_client import batch_results, sent_once
from curlew_client.blocking.admin.admin import Admin
from curlew_client.blocking.pool import BlockingPool
from curlew_client.blocking.requesting import answer, ask
from curlew_client.blocking.sending import BlockingSender
from curlew_client.blocking.transactions import Transaction
from curlew_client.consuming.calls import ReceiveOptions
from curlew_client.consuming.loops import MessageLoop, batch_asked
from curlew_client.consuming.messages import Received
from curlew_client.engine import AsyncEngine
from curlew_client.errors import CurlewError, TooMuchUnderWay
from curlew_client.face import (
    ConsumerFace,
    OtherFace,
    ProducerFace,
    QueueSelector,
    called_back,
    select_queue,
)
from curlew_client.hooks import Prepared, Reported, Sending
from curlew_client.loop_thread import LoopThread
from curlew_client.producing.batches import Batches, SendFuture
from curlew_client.producing.messages import Message, SendRequest, Waiting, as_message, send_request
from curlew_client.results import Reply, SendResult

Callback = Callable[[SendResult | None, CurlewError | None], object]


class Client(
    ProducerFace[SendResult, list[SendResult], SendFuture, None],
    ConsumerFace[MessageLoop, list[Received[None]]],
    OtherFace[Transaction, Admin, Reply, None],
):
    """A client that blocks. Any number of threads may share it.

    `url`: the node, or several of one cluster; without it `CURLEW_URL`, else 127.0.0.1:8710.
    `key`: the API key; without it `CURLEW_KEY`. `client_id`: one that no other client has. The
    other parameters are those of `Options`. Use it in a `with` block, or call `close`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        session = self._session
        self._pool = BlockingPool(session.options.tls, session.connect_timeout_s)
        self._sender = BlockingSender(session, self._pool)
        self._admin = Admin(session)
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._engine: AsyncEngine | None = None

    def __enter__(self) -> Self:
        self._session.check_usable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _running(self) -> AsyncEngine:
        """The asyncio side, which begins with the first call that needs it."""
        self._session.check_usable()
        if self._engine is None:
            with self._lock:
                if self._engine is None:
                    self._session.check_usable()  # nobody has closed it since
                    self._thread = LoopThread(f"curlew-{self.client_id}")
                    self._engine = self._thread.call(lambda: AsyncEngine(self._session))
        return self._engine

    def close(self) -> None:
        """Send what is left, and close. May be called again."""
        session = self._session
        if not session.is_of_this_process:  # nor is there who would give the lock back
            session.state = "closed"
            return
        with self._lock:
            if session.state in {"closing", "closed"}:
                return
            has_run, session.batches = session.state == "running", None
            session.state = "closing"
        try:
            if has_run and (self._engine is not None or session.lanes.made_count):
                thread = self._thread or LoopThread(f"curlew-{self.client_id}")
                try:
                    engine = self._engine or thread.call(lambda: AsyncEngine(session))
                    thread.run(engine.close())
                finally:
                    thread.stop()
            self._pool.close()
            self._admin.close()
        finally:
            session.closed()

    def _send(self, request: SendRequest, timeout_s: float) -> SendResult:
        session = self._session
        with Reported(session.hooks, request.sending) as reported:
            session.check_usable()
            reply = self._sender.send(request, timeout_s, session.options.retries)
            result = sent_once(request, reply)
            reported.gave([result])
        return result

    def _send_selected(
        self,
        topic: str,
        message: Message,
        selector: QueueSelector,
        sending: Sending | None,
        timeout_s: float,
    ) -> SendResult:
        session = self._session
        with Reported(session.hooks, sending) as reported:
            select_queue(selector, self._queues_of(topic), message)
            request = send_request(topic, message, session.options.compress_from)
            reply = self._sender.send(request, timeout_s, session.options.retries)
            result = sent_once(request, reply)
            reported.gave([result])
        return result

    def _queues_of(self, topic: str) -> Sequence[int]:
        """The queues that take messages, as they were within the last 30 s."""
        known = self._session.known_queues(topic)
        if known is None:
            shown = self.admin.get_topic(topic)
            count = shown["write_queues"]
            known = range(shown["queues"] if count is None else count)
            self._session.keep_queues(topic, known)
        return known

    def _send_batch(self, request: SendRequest, timeout_s: float) -> list[SendResult]:
        session = self._session
        with Reported(session.hooks, request.sending) as reported:
            session.check_usable()
            reply = self._sender.send(request, timeout_s, session.options.retries)
            results = batch_results(request, reply)
            reported.gave(results)
        return results

    def _send_later(
        self,
        topic: str,
        message: Waiting,
        callback: Callback | None,
        selector: QueueSelector | None,
        sending: Sending | None,
    ) -> SendFuture:
        if sending is None and selector is None:
            batches = self._session.batches or self._batches()
            future = batches.add(topic, message) or self._added(batches, topic, message)
            return future if callback is None else called_back(future, callback)
        with Prepared(self._session.hooks, sending):
            if selector is not None:
                message = as_message(message)
                select_queue(selector, self._queues_of(topic), message)
            future = self._added(self._batches(), topic, message)
        return called_back(future, callback)

    def _batches(self) -> Batches:
        """Of the running client, which need not be asked for again."""
        batches, session = self._running().batcher.batches, self._session
        with self._lock:
            if session.state == "running":
                session.batches = batches
        return batches

    def _added(
        self, batches: Batches, topic: str, message: Waiting, *, is_one_way: bool = False
    ) -> SendFuture:
        """Add to a batch, after waiting for room."""
        deadline_s = monotonic() + self._session.timeout_s
        while True:
            future = batches.add(topic, message, is_one_way)
            if future is not None:
                return future
            left_s = deadline_s - monotonic()
            if left_s <= 0:
                break
            batches.wait_for_room(message, left_s)
        raise TooMuchUnderWay(
            "the client holds as many messages as it may, and none of them was answered in time; "
            "raise under_way_messages and under_way_bytes, or send less at once"
        )

    # --- receiving

    def _receive(
        self, options: ReceiveOptions, limit: int | None, idle_s: float | None
    ) -> MessageLoop:
        return MessageLoop(self._with_thread, options, limit, idle_s)

    def _receive_batch(
        self, options: ReceiveOptions, max_messages: int, wait_s: float
    ) -> list[Received[None]]:
        engine, thread = self._with_thread()
        asked = batch_asked(engine, options, max_messages, wait_s)
        return thread.run(asked.receive(lambda decision: thread.run(asked.settle(decision))))

    def pull_consumer(
        self,
        *,
        group: str,
        auto_commit: bool = True,
        start: Start | None = None,
        offset_reset: str = "nearest",
        strategy: str | None = None,
    ) -> PullConsumer:
        """Lite pull: a block in which the program asks for messages itself, by `poll`.

        `subscribe` shares queues with the group's other members, `assign` reads chosen ones. See
        `PullConsumer`; the options are those of `Worker.assigned_consumer`.
        """
        options = {"start": start, "offset_reset": offset_reset, "strategy": strategy}
        return PullConsumer(self._with_thread, group, auto_commit, options)

    @property
    def admin(self) -> Admin:
        """The control plane: topics, groups, offsets, dead letters."""
        return self._admin

    def _transaction(self, topic: str, group: str, check_after_ms: int | None) -> Transaction:
        return Transaction(self._session, self._sender, topic, group, check_after_ms)

    def _request(self, topic: str, message: Message, wait_ms: int) -> Reply:
        return ask(self._session, self._sender, topic, message, wait_ms)

    def _reply(self, correlation_id: str, message: Message) -> None:
        answer(self._session, self._sender, correlation_id, message)

    def _with_thread(self) -> tuple[AsyncEngine, LoopThread]:
        engine = self._running()
        assert self._thread is not None
        return engine, self._thread

    def _send_oneway(self, topic: str, message: Message, sending: Sending | None) -> None:
        with Reported(self._session.hooks, sending):
            _ = self._added(self._batches(), topic, message, is_one_way=True)

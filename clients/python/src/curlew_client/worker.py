"""A worker: handlers for groups, run until SIGTERM, or started and stopped by an application.

worker = Worker("http://127.0.0.1:8710")

@worker.consumer("orders", group="billing", concurrency=8)
def bill(message): ...

worker.run()
"""

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from curlew_client.assigned.options import Listener, MemberOptions, Start, member_options
from curlew_client.assigned.running import RunningMember
from curlew_client.async_client import AsyncClient
from curlew_client.client import Client
from curlew_client.consuming.calls import LOG, GroupCalls, LeasedGroup, ReceiveOptions
from curlew_client.consuming.checks import RunningChecker
from curlew_client.consuming.running import RunningConsumer
from curlew_client.consuming.working import Handler
from curlew_client.engine import AsyncEngine
from curlew_client.face import check_count
from curlew_client.loop_thread import LoopThread
from curlew_client.options import Options
from curlew_client.producing.messages import check_name
from curlew_client.session import Session
from curlew_client.wire.durations import Duration, seconds_of

Function = TypeVar("Function", bound=Callable[..., Any])

MIB = 1024 * 1024


class Worker:
    """Consumers that work until they are stopped.

    Give it a `Client` or `AsyncClient`, whose address and identity it shares, or an address and a
    key; without either `CURLEW_URL` and `CURLEW_KEY` count. `drain`: how long handlers may go on
    after a stop.
    """

    def __init__(
        self,
        client: "Client | AsyncClient | str | Sequence[str] | None" = None,
        *,
        key: str | None = None,
        drain: Duration = 30.0,
        **options: Any,
    ) -> None:
        if isinstance(client, Client | AsyncClient):
            if key is not None or options:
                raise TypeError("the client has its key and options already")
            self._session = client.session
            self._owns_session = False
        else:
            client_id = options.pop("client_id", None)
            self._session = Session(
                client, key=key, client_id=client_id, options=Options.of(options)
            )
            self._owns_session = True
        self._drain_s = seconds_of("drain", drain)
        self._handlers: list[tuple[ReceiveOptions | MemberOptions, Handler]] = []
        self._checkers: dict[str, Callable[..., Any]] = {}
        self._thread: LoopThread | None = None
        self._at_work: _AtWork | None = None

    def __repr__(self) -> str:
        groups = [options.group for options, _ in self._handlers]
        return f"Worker({self._session!r}, groups={groups!r})"

    def consumer(
        self,
        topic: str,
        *,
        group: str,
        filter: str | None = None,
        concurrency: int = 8,
        batch: int | None = None,
        invisible: Duration = 30.0,
        consume_timeout: Duration = 900.0,
        max_messages: int = 1_000,
        max_bytes: int = 100 * MIB,
        max_span: int = 2_000,
    ) -> Callable[[Function], Function]:
        """Register a handler: a function, which runs in a thread, or a coroutine function.

        It takes a `Received`, or with `batch` a list of up to so many. `concurrency` of them run
        at once. Returning acks, an exception hands back; raise or return `Retry` or `DeadLetter`
        to say more. A handler of batches may return the index of the last message that is done,
        or a dict from messages to `Retry` or `DeadLetter`. In a group with `order: fifo` the node
        gives the messages of a key one at a time. `max_messages`, `max_bytes` and `max_span`
        bound what is held.
        """
        options = ReceiveOptions.of(topic, group, filter, invisible, consume_timeout)
        for each, _ in self._handlers:
            if each.group == group and (isinstance(each, MemberOptions) or each.topic == topic):
                raise ValueError(
                    f"this worker has a consumer of group {group!r} in {topic!r} already"
                )
        bounds = max_messages, max_bytes, max_span
        return self._registered(options, concurrency, batch, bounds)

    def assigned_consumer(
        self,
        topic: "str | Sequence[str] | Mapping[str, str | None]",
        *,
        group: str,
        filter: str | None = None,
        concurrency: int = 8,
        batch: int | None = None,
        in_order: bool = False,
        broadcast: bool = False,
        offset_file: "str | Path | None" = None,
        start: Start | None = None,
        offset_reset: str = "nearest",
        strategy: str | None = None,
        on_rebalance: Listener | None = None,
        consume_timeout: Duration = 900.0,
        suspend: Duration = 1.0,
        max_attempts: int | None = None,
        max_messages: int = 1_000,
        max_bytes: int = 100 * MIB,
        max_span: int = 2_000,
    ) -> Callable[[Function], Function]:
        """Register a handler of queues that the group's members share, which are read by offset.

        `topic` may be several, or a dict from topics to filters. Handlers are as of `consumer`.
        What fails is handed back to the group's retries, and the commit passes it. `in_order`:
        each queue one message after the other; what fails is tried again in its place after
        `suspend`, or what `Retry` says, and is a dead letter after `max_attempts`. `broadcast`:
        this consumer has all queues, and keeps its place in `offset_file`; what fails is left out.

        `start`: where a group that is new begins: `first`, `last`, or a time. `offset_reset`: where
        to go on when the place cannot be read any more: `nearest`, `earliest`, `latest`, or `fail`.
        `on_rebalance(rebalance)` is told when the queues are others. `strategy`: how the group
        shares them.
        """
        options = member_options(
            group,
            topic,
            filter_text=filter,
            in_order=in_order,
            start=start,
            offset_reset=offset_reset,
            strategy=strategy,
            consume_timeout=consume_timeout,
            suspend=suspend,
            max_attempts=max_attempts,
            broadcast=broadcast,
            offset_file=offset_file,
            listener=on_rebalance,
        )
        if any(each.group == group for each, _ in self._handlers):
            raise ValueError(f"this worker has a consumer of group {group!r} already")
        bounds = max_messages, max_bytes, max_span
        return self._registered(options, concurrency, batch, bounds)

    def _registered(
        self,
        options: ReceiveOptions | MemberOptions,
        concurrency: int,
        batch: int | None,
        bounds: tuple[int, int, int],
    ) -> Callable[[Function], Function]:
        names = "max_messages", "max_bytes", "max_span"
        for name, value in {
            "concurrency": concurrency,
            **dict(zip(names, bounds, strict=True)),
        }.items():
            check_count(name, value)
        if batch is not None:
            check_count("batch", batch)

        def register(function: Function) -> Function:
            if not callable(function):
                raise TypeError("a handler is a function of a message")
            is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
                type(function).__call__
            )
            hooked = self._session.hooks.around(function, options.group, is_async=is_async)
            handler = Handler(hooked, is_async, concurrency, batch, *bounds)
            self._handlers.append((options, handler))
            return function

        return register

    def pause(self, group: str) -> None:
        """Let the consumers of a group read nothing more until `resume`; they handle what they
        have. From any thread."""
        self._tell(group, is_paused=True)

    def resume(self, group: str) -> None:
        """Let them read again."""
        self._tell(group, is_paused=False)

    def _tell(self, group: str, *, is_paused: bool) -> None:
        if not any(options.group == group for options, _ in self._handlers):
            raise ValueError(f"this worker has no consumer of group {group!r}")
        at_work = self._at_work
        if at_work is None:
            raise RuntimeError("the worker is not started")
        at_work.loop.call_soon_threadsafe(at_work.tell, group, is_paused)

    def checker(self, group: str) -> Callable[[Function], Function]:
        """Register who decides about transactions of a producer group that no decision came for.

        A function, which runs in a thread, or a coroutine function. It takes a `HalfMessage`, looks
        into the program's own database, and returns True to commit, False to roll back, or None
        when it cannot tell yet, and is asked again.
        """
        check_name("group", group)
        if group in self._checkers:
            raise ValueError(f"this worker has a checker of group {group!r} already")

        def register(function: Function) -> Function:
            if not callable(function):
                raise TypeError("a checker is a function of a half message")
            self._checkers[group] = function
            return function

        return register

    # --- running

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, then drain. Only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "run() takes the signals of the main thread; elsewhere use start() and stop()"
            )
        asyncio.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        async with self:
            assert self._at_work is not None
            waiting = loop.create_task(stopping.wait())
            try:
                ends: list[asyncio.Future[Any]] = [waiting, *self._at_work.failures]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                self._at_work.check()
            finally:
                waiting.cancel()

    def start(self) -> None:
        """Work in the background, on a thread of its own."""
        if self._thread is not None or self._at_work is not None:
            raise RuntimeError("the worker is started already")
        thread = LoopThread(f"curlew-worker-{self._session.client_id}")
        try:
            thread.run(self.__aenter__())
        except BaseException:
            thread.stop()
            raise
        self._thread = thread

    def stop(self) -> None:
        """Drain, and end. Raises what ended a consumer before. May be called again."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        at_work = self._at_work
        try:
            thread.run(self.__aexit__(None, None, None))
        finally:
            thread.stop()
        if at_work is not None:
            at_work.check()

    @property
    def failure(self) -> BaseException | None:
        """What ended a consumer, and `stop` will raise; None while all work. From any thread."""
        at_work = self._at_work
        if at_work is None:
            return None
        ended = (each for each in at_work.failures if each.done() and not each.cancelled())
        return next((error for each in ended if (error := each.exception()) is not None), None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        if self._at_work is not None:
            raise RuntimeError("the worker is started already")
        if not self._handlers and not self._checkers:
            raise ValueError("the worker has no consumer; register one with @worker.consumer(…)")
        self._session.check_usable()
        at_work = _AtWork(self._session)
        at_work.start(self._handlers, self._checkers)
        self._at_work = at_work
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        at_work, self._at_work = self._at_work, None
        if at_work is not None:
            await at_work.stop(self._drain_s)
        if self._owns_session:
            self._session.closed()


def _tell_of_end(group: str, failure: "asyncio.Future[None]") -> None:
    """Who started the worker in the background may look at nothing else before its end."""
    if not failure.cancelled():
        LOG.error("the consumer of group %r has ended: %s", group, failure.exception())


class _AtWork:
    """The consumers while they run, on one event loop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._engine = AsyncEngine(session)
        self.loop = asyncio.get_running_loop()
        self._claimed: list[tuple[str, Sequence[str] | None]] = []
        self._consumers: list[RunningConsumer | RunningMember | RunningChecker] = []
        self._by_group: list[tuple[str, RunningConsumer | RunningMember]] = []

    @property
    def failures(self) -> list[asyncio.Future[None]]:
        """One for each consumer, done when it can go on no longer."""
        return [each.failure for each in self._consumers]

    def start(
        self,
        handlers: Sequence[tuple[ReceiveOptions | MemberOptions, Handler]],
        checkers: Mapping[str, Callable[..., Any]],
    ) -> None:
        """Start all, or none when a group is taken."""
        try:
            for options, handler in handlers:
                topics = [options.topic] if isinstance(options, ReceiveOptions) else None
                self._session.claim(options.group, topics)
                self._claimed.append((options.group, topics))
                self._by_group.append((options.group, self._consumer(options, handler)))
        except BaseException:
            for _, consumer in self._by_group:
                if isinstance(consumer, RunningMember):
                    consumer.abandon()
            self._give_up()
            raise
        for group, consumer in self._by_group:
            consumer.start()
            consumer.failure.add_done_callback(partial(_tell_of_end, group))
            self._consumers.append(consumer)
        for group, function in checkers.items():
            is_async = inspect.iscoroutinefunction(function)
            checker = RunningChecker(self._session, self._engine.sender, group, function, is_async)
            checker.start()
            checker.failure.add_done_callback(partial(_tell_of_end, group))
            self._consumers.append(checker)

    def _consumer(
        self, options: ReceiveOptions | MemberOptions, handler: Handler
    ) -> RunningConsumer | RunningMember:
        sender = self._engine.sender
        if isinstance(options, MemberOptions):
            return RunningMember(self._session, sender, options, handler)
        return RunningConsumer(LeasedGroup(GroupCalls(self._session, sender, options)), handler)

    def tell(self, group: str, is_paused: bool) -> None:
        """Pause or resume the consumers of a group."""
        for name, consumer in self._by_group:
            if name == group:
                (consumer.pause if is_paused else consumer.resume)()

    async def stop(self, within_s: float) -> None:
        """Drain all at once."""
        try:
            await asyncio.gather(*(each.drain(within_s) for each in self._consumers))
        finally:
            self._give_up()
            self._engine.pool.close()

    def _give_up(self) -> None:
        while self._claimed:
            self._session.give_up(*self._claimed.pop())

    def check(self) -> None:
        """Raise what ended a consumer."""
        for failure in self.failures:
            if failure.done() and not failure.cancelled():
                failure.result()

"""What `pull_consumer` gives: lite pull for programs that ask for messages themselves."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

from curlew_client.assigned.options import MemberOptions, member_options, start_of
from curlew_client.assigned.places import Places
from curlew_client.assigned.pulling import ChosenPulls, SharedPulls, given_done
from curlew_client.assigned.records import Polled, QueueName
from curlew_client.assigned.retries import Retries
from curlew_client.consuming.calls import LOG
from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.messages import Received
from curlew_client.consuming.working import Handler
from curlew_client.engine import AsyncEngine
from curlew_client.errors import CurlewError
from curlew_client.loop_thread import LoopThread
from curlew_client.wire.durations import Duration, seconds_of

T = TypeVar("T")
COMMIT_S = 5.0


class AsyncPullConsumer:
    """Reads what it is asked for. One task at a time; use it with `async with`.

    `subscribe` joins the group, which shares its queues out; `assign` reads queues that you name.
    With `auto_commit` a `poll` says that what the polls before gave is done, every 5 s and at the
    end; without, `commit` does. `message.nack()` and `dead_letter()` hand one back instead.
    """

    def __init__(
        self,
        running: Callable[[], AsyncEngine],
        group: str,
        auto_commit: bool,
        options: dict[str, Any],
        *,
        is_async: bool = True,
    ) -> None:
        if not isinstance(auto_commit, bool):
            raise TypeError("auto_commit is True or False")
        member_options(group, "-", **options)
        self._running = running
        self._group = group
        self._auto_commit = auto_commit
        self._given_options = options
        self._is_async = is_async
        self._pulls: SharedPulls | ChosenPulls | None = None
        self._retries: Retries | None = None
        self._engine: AsyncEngine | None = None
        self._given: list[Polled] = []
        self._leased: list[Received[Any]] = []
        self._ready: list[Received[Any]] = []
        """Retries that no poll has given yet."""
        self._paused: set[QueueName] = set()
        self._committed_s = 0.0

    async def __aenter__(self) -> Self:
        self._engine = self._running()
        self._engine.session.claim(self._group, None)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(is_done=error is None)

    # --- what to read

    async def subscribe(self, topic: Any, filter: str | None = None) -> None:
        """Share the queues of a topic, of several, or of a dict from topics to filters."""
        engine = self._entered()
        if self._pulls is not None:
            raise ValueError("what to read is said already; use another consumer")
        options = self._options(topic, filter)
        self._pulls = SharedPulls(engine.session, engine.sender, options, self._settle, self._took)
        handler = Handler(_nothing, self._is_async, 1, None, 1, 1, 1)
        self._retries = Retries(engine.session, engine.sender, options, handler, _nothing)

    async def assign(self, queues: "Iterable[tuple[str, int]]", filter: str | None = None) -> None:
        """Read these queues, pairs of topic and number, whoever else does; may be said anew."""
        engine = self._entered()
        names = [QueueName(topic, queue_id) for topic, queue_id in queues]
        if isinstance(self._pulls, SharedPulls):
            raise ValueError(  # noqa: TRY004
                "the consumer has subscribed; use another one for chosen queues"
            )
        options = self._options([name.topic for name in names], filter)
        if self._pulls is None:
            places = Places(engine.session, engine.sender)
            self._pulls = ChosenPulls(engine.session, engine.sender, options, self._settle, places)
        await self._pulls.choose(names)

    def _options(self, topics: Any, filter_text: str | None) -> MemberOptions:
        return member_options(self._group, topics, filter_text=filter_text, **self._given_options)

    def _entered(self) -> AsyncEngine:
        if self._engine is None:
            raise TypeError("use the consumer in a block: with client.pull_consumer(…) as consumer")
        self._engine.session.check_usable()
        return self._engine

    def _reading(self) -> SharedPulls | ChosenPulls:
        self._entered()
        if self._pulls is None:
            raise ValueError("nothing is to be read: call subscribe or assign first")
        return self._pulls

    @property
    def assignment(self) -> list[QueueName]:
        """The queues that are read now."""
        return sorted(self._pulls.queues) if self._pulls is not None else []

    # --- reading

    async def poll(
        self, timeout: Duration = 5.0, *, max_messages: int = 256
    ) -> list[Received[Any]]:
        """Messages that are there, or the first that come within `timeout`; none: an empty list."""
        if not isinstance(max_messages, int):
            raise TypeError("max_messages is a number of messages")
        if max_messages < 1:
            raise ValueError("max_messages is 1 or more")
        pulls = self._reading()
        if self._auto_commit:
            self._done()
            if monotonic() >= self._committed_s + COMMIT_S:
                await self._say(pulls)
        end_s = monotonic() + seconds_of("timeout", timeout)
        if self._ready:
            return self._give_ready()
        while True:
            wait_s = max(end_s - monotonic(), 0.0)
            found, retries = await pulls.read(max_messages, wait_s, self._paused)
            self._given += found
            leased = [] if self._retries is None else self._retries.take(retries)
            self._leased += leased
            if found or leased or wait_s <= 0:
                return [*found, *leased]
            if not pulls.queues:
                await asyncio.sleep(min(0.05, wait_s))

    def _took(self, retries: list[dict[str, Any]]) -> None:
        """Beside a commit or a sign of life."""
        if self._retries is not None:
            self._ready += self._retries.take(retries)

    def _give_ready(self) -> list[Received[Any]]:
        found, self._ready = self._ready, []
        self._leased += found
        return found

    def _settle(self, decision: Decision) -> Any:
        message = decision.message
        assert isinstance(message, Polled)
        if decision.kind == "ack":
            message.owner.done(message)
        elif decision.kind != "release":
            self._reading().hand_back(decision)
        return _none() if self._is_async else None

    def _done(self) -> None:
        given, self._given = self._given, []
        given_done(given)
        leased, self._leased = self._leased, []
        for message in leased:
            if not message.is_settled and self._retries is not None:
                message.is_settled = True
                self._retries.decided(message.topic, [Decision("ack", message)])

    async def commit(self) -> None:
        """All that polls have given is done, and the node knows it when this returns."""
        pulls = self._reading()
        self._done()
        await self._say(pulls)

    async def _say(self, pulls: SharedPulls | ChosenPulls) -> None:
        await pulls.say()
        self._committed_s = monotonic()

    async def committed(self, topic: str, queue_id: int) -> int | None:
        """What the group has committed in a queue; None: nothing."""
        engine = self._entered()
        places = Places(engine.session, engine.sender)
        return (await places.committed(self._group, topic)).get(queue_id)

    # --- where

    async def seek(self, topic: str, queue_id: int, offset: int) -> None:
        """Read on from an offset; what was read of the queue and not committed counts no more."""
        queue = QueueName(topic, queue_id)
        await self._reading().seek(queue, offset)
        self._given = [message for message in self._given if message.queue != queue]

    async def seek_to_time(self, topic: str, queue_id: int, when: "datetime | int") -> None:
        """Read on from the first message that was stored then or later."""
        at = start_of(when)
        await self.seek(topic, queue_id, await self._at(topic, queue_id, at))

    async def seek_to_begin(self, topic: str, queue_id: int) -> None:
        """Read on from the first message that is there."""
        await self.seek(topic, queue_id, await self._at(topic, queue_id, "earliest"))

    async def seek_to_end(self, topic: str, queue_id: int) -> None:
        """Read on behind the last message."""
        await self.seek(topic, queue_id, await self._at(topic, queue_id, "latest"))

    async def _at(self, topic: str, queue_id: int, when: Any) -> int:
        engine = self._entered()
        found = await Places(engine.session, engine.sender).at(topic, when)
        if queue_id not in found:
            raise ValueError(f"topic {topic!r} has no queue {queue_id}")
        return found[queue_id]

    def pause(self, queues: "Iterable[tuple[str, int]]") -> None:
        """Read these queues no more until `resume`."""
        self._paused.update(QueueName(*queue) for queue in queues)

    def resume(self, queues: "Iterable[tuple[str, int]]") -> None:
        """Read them again."""
        self._paused.difference_update(QueueName(*queue) for queue in queues)

    # --- ending

    async def close(self, *, is_done: bool = True) -> None:
        """Leave; with `auto_commit` what polls have given is done, unless a block failed."""
        engine, pulls = self._engine, self._pulls
        self._engine = self._pulls = None
        if engine is None:
            return
        try:
            if pulls is not None:
                if self._auto_commit and is_done:
                    self._done()
                await self._end(pulls)
        finally:
            engine.session.give_up(self._group, None)

    async def _end(self, pulls: SharedPulls | ChosenPulls) -> None:
        await pulls.hush()
        try:
            await pulls.say()
        except CurlewError as error:
            LOG.warning("group %s was not told how far all is done: %s", self._group, error)
        if self._retries is not None:
            self._give_ready()
            self._retries.release([each for each in self._leased if not each.is_settled])
            await self._retries.stop()
        try:
            await pulls.close()
        except CurlewError as error:
            LOG.debug("the group was not left: %s", error)


def _nothing(*_arguments: Any) -> None:
    return None


async def _none() -> None:
    return None


class PullConsumer:
    """`AsyncPullConsumer` for threads: the same calls, without `await`. One thread at a time."""

    def __init__(
        self,
        running: Callable[[], tuple[AsyncEngine, LoopThread]],
        group: str,
        auto_commit: bool,
        options: dict[str, Any],
    ) -> None:
        def engine() -> AsyncEngine:
            return running()[0]

        self._core = AsyncPullConsumer(engine, group, auto_commit, options, is_async=False)
        self._with_thread = running

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._with_thread()[1].run(work)

    def __enter__(self) -> Self:
        self._run(self._core.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run(self._core.__aexit__(kind, error, traceback))

    @property
    def assignment(self) -> list[QueueName]:
        return self._core.assignment

    def subscribe(self, topic: Any, filter: str | None = None) -> None:
        self._run(self._core.subscribe(topic, filter))

    def assign(self, queues: "Iterable[tuple[str, int]]", filter: str | None = None) -> None:
        self._run(self._core.assign(queues, filter))

    def poll(self, timeout: Duration = 5.0, *, max_messages: int = 256) -> list[Received[None]]:
        return self._run(self._core.poll(timeout, max_messages=max_messages))

    def commit(self) -> None:
        self._run(self._core.commit())

    def committed(self, topic: str, queue_id: int) -> int | None:
        return self._run(self._core.committed(topic, queue_id))

    def seek(self, topic: str, queue_id: int, offset: int) -> None:
        self._run(self._core.seek(topic, queue_id, offset))

    def seek_to_time(self, topic: str, queue_id: int, when: "datetime | int") -> None:
        self._run(self._core.seek_to_time(topic, queue_id, when))

    def seek_to_begin(self, topic: str, queue_id: int) -> None:
        self._run(self._core.seek_to_begin(topic, queue_id))

    def seek_to_end(self, topic: str, queue_id: int) -> None:
        self._run(self._core.seek_to_end(topic, queue_id))

    def pause(self, queues: "Iterable[tuple[str, int]]") -> None:
        self._core.pause(queues)

    def resume(self, queues: "Iterable[tuple[str, int]]") -> None:
        self._core.resume(queues)

    def close(self) -> None:
        self._run(self._core.close())

"""Waiting for a group's messages at several shards, without being leased any: one notification per
group, topic and shard, whoever and however many wait at this node.

Who waits has looked at each shard and got too little, and knows the state that the shard was in. A
line has those who wait for one shard. Whose state is not the shard's has a turn, one at a time, in
the order in which they came: it looks, and tells what it saw. When little is left, those who would
see the same need not look. When nobody has anything to look at, the line asks the shard's node for
news, once for all. A shard that cannot be asked is asked again after a moment. Event loop only.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import Final

from app.api.dataplane.receive_parts import Seen, news_asked, seen_in
from app.api.http.request_context import RequestContext
from app.api.relay.calls import CallRequest
from app.api.relay.fan_out import PART_SECONDS, Calls, ask
from app.broker.consume.news import CLOSED, ENDED
from app.domain.errors import CurlewError, TooManyRequests
from app.domain.quotas.quota import Quota

NEWS_SECONDS: Final = 20.0
"""How long a node is asked to wait for news at a time."""
AGAIN_SECONDS: Final = 1.0
"""A shard that could not be asked is not asked again earlier."""
_AWAY: Final = ""
"""The state of a shard that cannot be asked."""

Key = tuple[str, ...]
"""A group and a topic, as they are stored."""


class Turn:
    """Somebody's turn to look at a shard. To be ended, whatever the look has seen."""

    def __init__(self, shard: str, loop: asyncio.AbstractEventLoop) -> None:
        self.shard = shard
        self.ended: asyncio.Future[tuple[bool, Seen | None]] = loop.create_future()

    def end(self, seen: Seen | None) -> None:
        """It has looked; None: the shard cannot be asked."""
        if not self.ended.done():
            self.ended.set_result((True, seen))

    def pass_on(self) -> None:
        """It has not looked after all."""
        if not self.ended.done():
            self.ended.set_result((False, None))


class Waiter:
    """One request that waits."""

    def __init__(
        self, exchange: RequestContext, request: CallRequest, kind: Hashable, states: dict[str, str]
    ) -> None:
        self.exchange = exchange
        self.request = request
        """Any for the group and topic."""
        self.kind = kind
        """Those of one kind see the same."""
        self.states = states
        """By shards, as it saw them."""
        self.is_over = False
        """Nothing will come: the topic is gone, or the node stops."""
        self._idle: asyncio.Future[Turn | None] | None = None
        self._turn: Turn | None = None

    def request_to(self, shard: str) -> CallRequest:
        """What a shard is asked for news with."""
        del shard  # the same for all
        return self.request

    @property
    def is_idle(self) -> bool:
        """Whether it can be given a turn."""
        return self._idle is not None and not self._idle.done()

    def give(self, turn: Turn) -> None:
        """To one that is idle."""
        assert self._idle is not None
        self._turn = turn
        self._idle.set_result(turn)

    def end(self) -> None:
        """Wait no longer."""
        self.is_over = True
        self.stop()

    def stop(self) -> None:
        """End the wait that is under way."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def wait(self, deadline_s: float) -> Turn | None:
        """Its next turn; None when time is up, the client has left, or it is over."""
        loop = asyncio.get_running_loop()
        if self.is_over or loop.time() >= deadline_s:
            return None
        self._idle = loop.create_future()
        timer = loop.call_at(deadline_s, self.stop)
        try:
            return await self._idle
        finally:
            timer.cancel()

    def leave(self) -> None:
        """Let others have the turn that it did not take."""
        self.stop()
        if self._turn is not None:
            self._turn.pass_on()


class SharedWaits:
    """All that wait at this node."""

    def __init__(self, calls: Calls, own_shard: Callable[[], str], waiters_max: int) -> None:
        self._calls = calls
        self._own_shard = own_shard
        self._waiters_max = waiters_max
        self._lines: dict[tuple[Key, str], _Line] = {}
        self.count = 0
        """Requests that wait."""

    def join(self, key: Key, waiter: Waiter) -> None:
        """Wait for all shards of `waiter.states`. Raises `TooManyRequests`. Followed by `leave`."""
        if self.count >= self._waiters_max:
            raise TooManyRequests(
                f"{self.count} requests are waiting for messages already",
                hint="ask again without waiting, or wait on another node",
                fields={"limit": self._waiters_max},
                quota=Quota("shard-waits", self._waiters_max, "concurrent-requests", 0),
                retry_after_s=1,
            )
        self.count += 1
        for shard, state in waiter.states.items():
            line = self._lines.get((key, shard))
            if line is None:
                is_own = shard == self._own_shard()
                line = _Line(self._calls, shard, state, is_own=is_own)
                self._lines[key, shard] = line
            line.add(waiter)

    def leave(self, key: Key, waiter: Waiter) -> None:
        """The request waits no more."""
        self.count -= 1
        waiter.leave()
        for shard in waiter.states:
            if self._lines[key, shard].remove(waiter):
                del self._lines[key, shard]

    def look_on(self, key: Key, shards: Iterable[str]) -> None:
        """Somebody's turn has ended: other lines may have one for it."""
        for shard in shards:
            self._lines[key, shard].poke()


class _Line:
    """Those who wait for one shard."""

    def __init__(self, calls: Calls, shard: str, state: str, *, is_own: bool) -> None:
        self._calls = calls
        self._shard = shard
        self._state = state
        self._is_own = is_own
        self._waiters: dict[Waiter, None] = {}
        self._changed: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        self.poke()

    def remove(self, waiter: Waiter) -> bool:
        """Whether nobody is left, and the line has ended."""
        del self._waiters[waiter]
        if self._waiters:
            self.poke()
            return False
        if self._task is not None:
            self._task.cancel()
        return True

    def poke(self) -> None:
        """Look again who may have a turn."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _run(self) -> None:
        news: asyncio.Task[str] | None = None
        try:
            while True:
                waiter = self._next()
                if waiter is not None:
                    await self._give_turn(waiter)
                    continue
                if news is None:
                    first = next(iter(self._waiters))
                    news = asyncio.ensure_future(self._news(first, self._state))
                self._changed = asyncio.get_running_loop().create_future()
                await asyncio.wait((news, self._changed), return_when=asyncio.FIRST_COMPLETED)
                if news.done():
                    found, news = news.result(), None
                    if found == ENDED or (found == CLOSED and self._is_own):
                        self._end()
                        return
                    self._state = found
        finally:
            if news is not None:
                news.cancel()

    def _next(self) -> Waiter | None:
        for waiter in self._waiters:
            if waiter.is_idle and waiter.states[self._shard] != self._state:
                return waiter
        return None

    async def _give_turn(self, waiter: Waiter) -> None:
        turn = Turn(self._shard, asyncio.get_running_loop())
        waiter.give(turn)
        has_looked, seen = await turn.ended
        if not has_looked:
            return
        self._state = _AWAY if seen is None else seen.state
        for each in self._waiters:
            if each is waiter or _sees_the_same(each, waiter, seen):
                each.states[self._shard] = self._state

    def _end(self) -> None:
        self._task = None
        for waiter in self._waiters:
            waiter.end()

    async def _news(self, waiter: Waiter, known: str) -> str:
        """The state of the shard, another one than is known, or why nothing will come."""
        is_again = known == _AWAY
        while True:
            if is_again:
                await asyncio.sleep(AGAIN_SECONDS)
            request = waiter.request_to(self._shard)._replace(asks=news_asked(known, NEWS_SECONDS))
            seconds = NEWS_SECONDS + PART_SECONDS
            answer = await ask(self._calls, waiter.exchange, self._shard, request, seconds=seconds)
            if waiter not in self._waiters:
                waiter.exchange.let_go()
            seen = None if isinstance(answer, CurlewError) else seen_in(answer.headers)
            is_again = seen is None or (seen.state == CLOSED and not self._is_own)
            if seen is not None and not is_again and seen.state != known:
                return seen.state
            with suppress(StopIteration):  # the one that asked may have left
                waiter = next(iter(self._waiters))


def _sees_the_same(waiter: Waiter, other: Waiter, seen: Seen | None) -> bool:
    """Whether one would see what another has seen."""
    if seen is None or not seen.backlog:
        return True
    return not seen.given and waiter.kind == other.kind

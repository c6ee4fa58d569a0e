"""What shards have left for groups, as they have last said it to this node.

An answer with messages tells how many are left in all shards. What a shard has said counts for a
second, and is asked anew behind an answer when it is half as old. Where a shard has said nothing in
that second the answer waits for it, for a moment. One that is silent for longer is passed by
(`HeldUp`) until it has answered: it is asked behind the answers of others, so that no client waits
to find out that it is silent still. Event loop only.
"""

import asyncio
from typing import Final, NamedTuple

from app.api.dataplane.receive_parts import seen_in
from app.api.http.request_context import RequestContext
from app.api.relay.calls import CallAnswer, CallRequest
from app.api.relay.consuming.shared_waits import Key
from app.api.relay.fan_out import Calls, Outcome, apart, ask
from app.broker.results import Takes
from app.domain.errors import CurlewError

KEPT_SECONDS: Final = 1.0
"""For how long it counts what a shard has said."""
ASKED_AGAIN_SECONDS: Final = 0.5
"""What a shard has said is asked anew when it is so old, and somebody is told of it."""
WAIT_SECONDS: Final = 0.1
"""Messages wait so long at most for shards that have said nothing in the time that counts."""
SLOW_SECONDS: Final = 1.0
"""A shard that needs longer to tell nothing holds up the others."""
PASSED_BY_SECONDS: Final = 5.0
"""For how long a shard that held up others is not asked at all. Then it is asked by the way, and
passed by until it has answered."""
SAID_MAX: Final = 65_536
"""Pairs of a group's topic and a shard of which at most is kept what was said: what counts still.
When more is said in `KEPT_SECONDS`, the oldest counts no longer."""


class Told(NamedTuple):
    """What a shard has said that counts still."""

    backlog: int
    is_to_be_asked: bool
    """It is old enough to be asked anew."""


class HeldUp:
    """Shards that held up others. One per node."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, str]] = {}

    def note(self, shard: str, why: str) -> None:
        """It does so now."""
        self._until[shard] = asyncio.get_running_loop().time() + PASSED_BY_SECONDS, why

    def note_answer(self, shard: str) -> None:
        """It does so no more."""
        self._until.pop(shard, None)

    def why(self, shard: str) -> str | None:
        """Why it is passed by; None: it is not."""
        found = self._until.get(shard)
        return None if found is None else found[1]

    def take_probe(self, shard: str) -> bool:
        """Whether one that is passed by has been left alone for long enough. Who hears so asks it;
        nobody else does for as long again."""
        until_s, why = self._until[shard]
        is_due = until_s <= asyncio.get_running_loop().time()
        if is_due:
            self.note(shard, why)
        return is_due


class Backlogs:
    """One per node."""

    def __init__(self, calls: Calls, held_up: HeldUp) -> None:
        self._calls = calls
        self._held_up = held_up
        self._said: dict[tuple[Key, str], tuple[float, int]] = {}
        """The oldest first."""
        self._asking: dict[tuple[Key, str], asyncio.Task[Outcome]] = {}

    @property
    def count(self) -> int:
        """How much of what shards have said is kept."""
        return len(self._said)

    def note(self, key: Key, shard: str, backlog: int) -> None:
        """A shard says it."""
        now_s = asyncio.get_running_loop().time()
        self._said.pop((key, shard), None)
        self._said[key, shard] = now_s, backlog
        while self._said:
            oldest, (at_s, _) = next(iter(self._said.items()))
            if now_s - at_s <= KEPT_SECONDS and len(self._said) <= SAID_MAX:
                return
            del self._said[oldest]

    def told(self, key: Key, shard: str) -> Told | None:
        """What a shard has said; None: nothing that counts."""
        said = self._said.get((key, shard))
        if said is None:
            return None
        at_s, backlog = said
        age_s = asyncio.get_running_loop().time() - at_s
        return None if age_s > KEPT_SECONDS else Told(backlog, age_s > ASKED_AGAIN_SECONDS)

    def ask(
        self, exchange: RequestContext, key: Key, shard: str, request: CallRequest
    ) -> "asyncio.Task[Outcome]":
        """Ask a shard, once for all who want to know it at the moment. It goes on when `exchange`
        is over, of which `request` is a part; whoever waits for it leaves it to go on. So it begins
        no group: the client may have left, or have deleted it."""
        task = self._asking.get((key, shard))
        if task is None:
            counts = request._replace(asks=Takes.COUNT.value)
            task = asyncio.ensure_future(self._ask(apart(exchange), key, shard, counts))
            self._asking[key, shard] = task
            task.add_done_callback(lambda _: self._asking.pop((key, shard), None))
        return task

    def ask_beside(
        self, exchange: RequestContext, key: Key, shard: str, request: CallRequest
    ) -> None:
        """Ask a shard as `ask` does, without waiting for it."""
        _ = self.ask(exchange, key, shard, request)

    async def _ask(
        self, exchange: RequestContext, key: Key, shard: str, request: CallRequest
    ) -> Outcome:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            outcome = await ask(self._calls, exchange, shard, request)
        finally:
            exchange.let_go()
        if isinstance(outcome, CurlewError) and loop.time() - began_s > SLOW_SECONDS:
            self._held_up.note(shard, outcome.detail)
            return outcome
        self._held_up.note_answer(shard)
        seen = seen_in(outcome.headers) if isinstance(outcome, CallAnswer) else None
        if seen is not None:
            self.note(key, shard, seen.backlog)
        return outcome

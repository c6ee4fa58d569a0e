"""Asking several shards at once: bounded in time, and in how many are asked at a time.

Whoever does not answer is an error in its place, never a failure of the whole. Event loop only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from app.api.aims.across import Document
from app.api.http.errors import entry_problem
from app.api.http.request_context import RequestContext
from app.api.relay.calls import CallAnswer, CallRequest, pass_on
from app.api.relay.unanswered import LeaderMoved
from app.domain.errors import CurlewError, ShardUnavailable

PART_SECONDS: Final = 5.0
"""How long a shard may take for its part once it has been told of it, beyond what the client wants
to wait. A connection to it is made before."""
NEWS_SECONDS: Final = 1.0
"""How long others are waited for that are told of a change; by then they hear by themselves."""
SILENT_SECONDS: Final = 0.05
"""The same of one that did not answer the last time."""
AT_ONCE: Final = 16
"""Shards that one request asks at a time."""

_NOWHERE: Final = frozenset({"CONSUMER_GROUP_NOT_FOUND", "TOPIC_NOT_FOUND"})
"""What no shard has when one does not."""

Outcome = CallAnswer | CurlewError
"""What became of one part; an error when there is no answer."""


class Calls(Protocol):
    """What one shard can be asked with: `Relay`."""

    async def call(
        self,
        exchange: RequestContext,
        shard: str,
        request: CallRequest,
        *,
        seconds: float,
        sends: bool = False,
    ) -> CallAnswer: ...

    async def refresh(self) -> None:
        """Look what other nodes have changed."""
        ...

    def is_up(self, shard: str) -> bool:
        """Whether the node that leads a shard answers, as far as is known."""
        ...


async def ask(
    calls: Calls,
    exchange: RequestContext,
    shard: str,
    request: CallRequest,
    *,
    sends: bool = False,
    seconds: float = PART_SECONDS,
) -> Outcome:
    """One part. With `sends` an error says in `outcome` whether it may be stored. Where the node
    that is asked leads the shard no more, which did nothing, the one that leads it now is asked."""
    try:
        try:
            return await calls.call(exchange, shard, request, seconds=seconds, sends=sends)
        except LeaderMoved:
            await calls.refresh()
            return await calls.call(exchange, shard, request, seconds=seconds, sends=sends)
    except CurlewError as error:
        return error


async def ask_each(
    calls: Calls,
    exchange: RequestContext,
    requests: Mapping[str, CallRequest],
    *,
    sends: bool = False,
    seconds: float = PART_SECONDS,
) -> dict[str, Outcome]:
    """All parts, by their shards in the order of `requests`."""

    async def one(shard: str, request: CallRequest) -> Outcome:
        return await ask(calls, exchange, shard, request, sends=sends, seconds=seconds)

    return await all_parts(requests, one)


async def all_parts(
    requests: Mapping[str, CallRequest], ask_one: Callable[[str, CallRequest], Awaitable[Outcome]]
) -> dict[str, Outcome]:
    """As `ask_each`, of what `ask_one` gives for each: `AT_ONCE` at a time."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(shard: str, request: CallRequest) -> Outcome:
        async with places:
            return await ask_one(shard, request)

    async with asyncio.TaskGroup() as group:
        parts = {
            shard: group.create_task(one(shard, request)) for shard, request in requests.items()
        }
    return {shard: part.result() for shard, part in parts.items()}


async def ask_with_news(
    calls: Calls,
    exchange: RequestContext,
    requests: Mapping[str, CallRequest],
    *,
    seconds: float = PART_SECONDS,
) -> dict[str, Outcome]:
    """As `ask_each`. Where only some know the group or topic, which another node may have made a
    moment ago, this node looks, and those that know it not are asked again: they look then too."""
    found = await ask_each(calls, exchange, requests, seconds=seconds)
    behind = {shard: requests[shard] for shard, each in found.items() if knows_not(each)}
    if behind and any(_is_well(each) for each in found.values()):
        await calls.refresh()
        found |= await ask_each(calls, exchange, behind, seconds=seconds)
    return found


def apart(exchange: RequestContext) -> RequestContext:
    """The same request with a memory of its own, which may outlive it."""
    found = RequestContext(
        exchange.scope, exchange.receive, exchange.send, exchange.request_id, exchange.pressure
    )
    found.caller, found.namespace = exchange.caller, exchange.namespace
    return found


class News:
    """Tells of what this node has changed, before its client hears and asks another one.

    Whoever is asked anything looks first, where what it knows is older. Each looks once a second in
    any case, so nobody has to be told, and none is waited for that has said nothing lately."""

    def __init__(self) -> None:
        self._silent: set[str] = set()
        """Shards whose leaders did not answer in time when they were told last."""
        self._late: dict[str, asyncio.Task[Outcome]] = {}
        """What they may answer still, of which nobody waits: one for each."""

    async def tell(self, calls: Calls, exchange: RequestContext, others: Sequence[str]) -> None:
        """Have those that lead other shards know, side by side. With more than `AT_ONCE` nobody is
        told, nor are those of which it is known that they do not answer. One that takes a
        connection and says nothing holds up the client for `NEWS_SECONDS` once, and for
        `SILENT_SECONDS` from then on, until it answers in `NEWS_SECONDS`."""
        self._silent.intersection_update(others)
        if len(others) > AT_ONCE:
            return
        async with asyncio.TaskGroup() as group:
            for shard in others:
                if calls.is_up(shard):
                    group.create_task(self._tell(calls, exchange, shard))

    async def _tell(self, calls: Calls, exchange: RequestContext, shard: str) -> None:
        seconds = SILENT_SECONDS if shard in self._silent else NEWS_SECONDS
        request, own = CallRequest("GET", b"/livez", [], is_of_node=True), apart(exchange)
        told = asyncio.ensure_future(ask(calls, own, shard, request, seconds=NEWS_SECONDS))
        told.add_done_callback(lambda _: own.let_go())
        try:
            await asyncio.wait((told,), timeout=seconds)
            if told.done():
                self._note(shard, told)
                return
            self._silent.add(shard)
            if seconds < NEWS_SECONDS and shard not in self._late:
                self._late[shard] = told
                told.add_done_callback(lambda _: self._note(shard, self._late.pop(shard)))
        finally:
            if self._late.get(shard) is not told:
                told.cancel()

    def _note(self, shard: str, told: "asyncio.Task[Outcome]") -> None:
        if not told.cancelled() and isinstance(told.result(), CallAnswer):
            self._silent.discard(shard)
        else:
            self._silent.add(shard)


def _is_well(outcome: Outcome) -> bool:
    return isinstance(outcome, CallAnswer) and outcome.status < HTTPStatus.MULTIPLE_CHOICES


def knows_not(outcome: Outcome) -> bool:
    """Whether an answer is that there is no such group or topic."""
    return isinstance(outcome, CallAnswer) and is_nowhere(outcome)


def is_nowhere(problem: CallAnswer) -> bool:
    """Whether a group or topic is not known: there is none anywhere, or it was made just now."""
    if problem.status != HTTPStatus.NOT_FOUND or not problem.body:
        return False
    return msgspec.json.decode(problem.body, type=dict[str, object]).get("code") in _NOWHERE


async def wait_for_any(
    calls: Calls,
    exchange: RequestContext,
    requests: Mapping[str, CallRequest],
    *,
    seconds: float,
) -> None:
    """Ask all until one has answered; the others are told to wait no longer. Shards that fail do
    not end it."""
    parts = {
        asyncio.ensure_future(ask(calls, exchange, shard, request, seconds=seconds))
        for shard, request in requests.items()
    }
    waiting = set(parts)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(part.result(), CallAnswer) for part in done):
                return
    finally:
        for part in parts:
            part.cancel()
        for part in parts:
            with suppress(asyncio.CancelledError):
                await part


async def refuse(
    exchange: RequestContext, problem: CallAnswer | None, missing: Mapping[str, str]
) -> None:
    """No shard has anything to tell: answer with a problem that one of them has, or raise
    `ShardUnavailable` with why each is missing."""
    if problem is None:
        raise ShardUnavailable(
            f"no shard answers: {'; '.join(missing.values())}",
            hint="ask again in a moment",
            fields={"shard": ",".join(missing)},
        )
    await pass_on(exchange, problem)


def reason_of(outcome: Outcome) -> Document:
    """Why a part was not done: code and detail of an outcome that is no success."""
    if isinstance(outcome, CurlewError):
        problem = entry_problem(outcome)
        return {"code": problem.code, "detail": problem.detail}
    document = msgspec.json.decode(outcome.body, type=dict[str, object])
    return {"code": document["code"], "detail": document["detail"]}


def sorted_out(
    found: Mapping[str, Outcome],
) -> tuple[dict[str, Document], dict[str, str], CallAnswer | None]:
    """Documents by shards, empty where the answer has none; shards without an answer, and why; the
    first problem that is an answer: what was asked is not well, or, where that is all that the
    shards say, is not there."""
    documents: dict[str, Document] = {}
    missing: dict[str, str] = {}
    problem: CallAnswer | None = None
    for shard, outcome in found.items():
        if isinstance(outcome, CurlewError):
            missing[shard] = outcome.detail
        elif outcome.status < HTTPStatus.MULTIPLE_CHOICES:
            body = outcome.body or b"{}"
            documents[shard] = msgspec.json.decode(body, type=dict[str, object])
        elif outcome.status != HTTPStatus.NOT_FOUND:
            missing[shard] = f"it answers {outcome.status}"
            if problem is None or problem.status == HTTPStatus.NOT_FOUND:
                problem = outcome
        else:
            problem = problem or outcome
    return documents, missing, problem

"""Asking several shards at once: bounded in time, and in how many are asked at a time.

Whoever does not answer is an error in its place, never a failure of the whole. Event loop only.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from app.api.aims.across import Document
from app.api.http.request_context import RequestContext
from app.api.relay.calls import CallAnswer, CallRequest, pass_on
from app.domain.errors import CurlewError, ShardUnavailable

PART_SECONDS: Final = 5.0
"""How long a shard may take for its part once it has been told of it, beyond what the client wants
to wait. A connection to it is made before."""
AT_ONCE: Final = 16
"""Shards that one request asks at a time."""

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


async def ask(
    calls: Calls,
    exchange: RequestContext,
    shard: str,
    request: CallRequest,
    *,
    sends: bool = False,
    seconds: float = PART_SECONDS,
) -> Outcome:
    """One part. With `sends` an error says in `outcome` whether it may be stored."""
    try:
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
    places = asyncio.Semaphore(AT_ONCE)

    async def one(shard: str, request: CallRequest) -> Outcome:
        async with places:
            return await ask(calls, exchange, shard, request, sends=sends, seconds=seconds)

    async with asyncio.TaskGroup() as group:
        parts = {
            shard: group.create_task(one(shard, request)) for shard, request in requests.items()
        }
    return {shard: part.result() for shard, part in parts.items()}


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

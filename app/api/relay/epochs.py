"""Epochs of producers (`api.aims.across.Closed`, `Ended`), closed in all shards, or the request is
asked again: nobody is told that an epoch is closed which one shard still takes. Event loop only.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Final

import msgspec

from app.api.formats import media
from app.api.formats.decoding import DECODE_FAULTS
from app.api.http.request_context import NOT_KEPT, RequestContext
from app.api.relay.calls import (
    CallAnswer,
    Query,
    parsed_query,
    part_of,
    pass_on,
    query_bytes,
)
from app.api.relay.changes import CHANGE_SECONDS, DRY_RUN, differ, is_trial
from app.api.relay.fan_out import Outcome, ask_each
from app.api.relay.relay import Relay
from app.domain.errors import CurlewError, SequenceOutOfOrder, ShardUnavailable

_MESSAGES_MAX: Final = 2**63 - 1
"""Of an epoch: more than there can be."""

_encode: Final = msgspec.json.encode

_Count = Annotated[int, msgspec.Meta(ge=0, le=_MESSAGES_MAX)]


class _Seal(msgspec.Struct, forbid_unknown_fields=True):
    producer: str
    epoch: _Count
    messages: _Count = 0
    dry_run: bool | None = None


class _Closed(msgspec.Struct):
    sealed_epoch: int


class _Refused(msgspec.Struct):
    stored: int | None = None


_decode_seal: Final = msgspec.json.Decoder(_Seal).decode
_decode_closed: Final = msgspec.json.Decoder(_Closed).decode
_decode_refused: Final = msgspec.json.Decoder(_Refused).decode


async def close_epoch(relay: Relay, exchange: RequestContext) -> bool:
    """Answer a seal; False: something of it is not understood, which its handler says.

    All shards are first tried with more messages than there can be: each brings what it has to the
    disk and says how many those are. When they are enough, each closes the epoch for as many as it
    said, so that a shard which has lost some since refuses. One that had closed it before did so
    behind such a count of all. It is not told to be closed unless all have closed it.
    """
    query = parsed_query(exchange)
    try:
        wanted = _decode_seal(await relay.body_of(exchange))
    except DECODE_FAULTS:
        return False
    tries = is_trial(query)
    if tries is None or differ(query, wanted.dry_run):
        return False
    tries = tries or wanted.dry_run is True
    shards = relay.shards_from_here()
    counts = dict.fromkeys(shards, 0)
    if wanted.messages or tries:
        trial = dict.fromkeys(shards, _MESSAGES_MAX)
        found = await _asked(relay, exchange, query, wanted, trial, "true")
        known = {shard: _count(outcome) for shard, outcome in found.items()}
        problem = next((found[shard] for shard, count in known.items() if count is None), None)
        if problem is not None:
            await _tell(exchange, problem)
            return True
        counts = {shard: count or 0 for shard, count in known.items()}
        is_begun = any(_is_done(outcome) for outcome in found.values())
        if sum(counts.values()) < wanted.messages and not is_begun:
            raise _too_few(wanted, sum(counts.values()))
    closed = wanted.epoch
    if not tries:
        found = await _asked(relay, exchange, query, wanted, counts, "false")
        problem = next((each for each in found.values() if not _is_done(each)), None)
        if problem is not None:
            await _tell(exchange, problem)
            return True
        answers = [each for each in found.values() if isinstance(each, CallAnswer)]
        closed = min(_decode_closed(each.body).sealed_epoch for each in answers)
    exchange.is_decided = True  # where the parts were asked, by the same policies
    answer = {"dry_run": tries, "producer": wanted.producer, "sealed_epoch": closed}
    await exchange.answer(HTTPStatus.OK, [media.JSON_HEADER, NOT_KEPT], _encode(answer) + b"\n")
    return True


async def end_producer(relay: Relay, exchange: RequestContext) -> bool:
    """Answer a deletion; False: something of it is not understood, which its handler says.

    All shards are first asked which epoch they would close. Then each closes the highest of these,
    also one that knows nothing of the producer. An epoch that begins meanwhile is a new beginning,
    and stays open.
    """
    query = parsed_query(exchange)
    tries = is_trial(query)
    if tries is None:
        return False
    trial = part_of(exchange, query_bytes({**query, DRY_RUN: "true"}))
    shards = relay.shards_from_here()
    found = await ask_each(relay, exchange, dict.fromkeys(shards, trial), seconds=CHANGE_SECONDS)
    known = {shard: outcome for shard, outcome in found.items() if not _is_unknown(outcome)}
    problem = next((each for each in known.values() if not _is_done(each)), None)
    if problem is not None or not known:
        await _tell(exchange, problem or found[shards[0]])
        return True
    answers = [each for each in known.values() if isinstance(each, CallAnswer)]
    highest = max(answers, key=lambda each: _decode_closed(each.body).sealed_epoch)
    if tries:
        exchange.is_decided = True  # where the parts were asked, by the same policies
        await pass_on(exchange, highest)
        return True
    end = part_of(exchange, query_bytes(query))
    end = end._replace(asks=str(_decode_closed(highest.body).sealed_epoch))
    found = await ask_each(relay, exchange, dict.fromkeys(shards, end), seconds=CHANGE_SECONDS)
    left = (each for each in found.values() if not _is_done(each, HTTPStatus.NO_CONTENT))
    await _tell(exchange, next(left, found[shards[0]]))
    return True


async def _asked(
    relay: Relay,
    exchange: RequestContext,
    query: Query,
    wanted: _Seal,
    counts: Mapping[str, int],
    tries: str,
) -> dict[str, Outcome]:
    target = query_bytes({**query, DRY_RUN: tries})
    requests = {}
    for shard, count in counts.items():
        body = {"producer": wanted.producer, "epoch": wanted.epoch, "messages": count}
        requests[shard] = part_of(exchange, target, _encode(body))
    return await ask_each(relay, exchange, requests, seconds=CHANGE_SECONDS)


def _is_done(outcome: Outcome, status: int = HTTPStatus.OK) -> bool:
    return isinstance(outcome, CallAnswer) and outcome.status == status


def _is_unknown(outcome: Outcome) -> bool:
    """Whether a shard knows nothing of a producer."""
    return isinstance(outcome, CallAnswer) and outcome.status == HTTPStatus.NOT_FOUND


def _count(outcome: Outcome) -> int | None:
    """How many messages a shard has of the epoch that is tried; None: it has not said so."""
    if _is_done(outcome):
        return 0  # it is closed there
    if isinstance(outcome, CallAnswer) and outcome.status == HTTPStatus.CONFLICT:
        return _decode_refused(outcome.body).stored
    return None


async def _tell(exchange: RequestContext, problem: Outcome) -> None:
    """Pass on what a shard says; raise `ShardUnavailable` where it says nothing."""
    if isinstance(problem, CurlewError):
        raise ShardUnavailable(
            f"the epoch is not closed in all shards: {problem.detail}", hint="ask again in a moment"
        )
    exchange.is_decided = True  # where the part was, by the same policies
    await pass_on(exchange, problem)


def _too_few(wanted: _Seal, stored: int) -> SequenceOutOfOrder:
    return SequenceOutOfOrder(
        f"of {wanted.messages} messages of epoch {wanted.epoch} of producer {wanted.producer!r}"
        f" {stored} are stored; a crash may have taken the others before they were synced",
        hint="send the epoch again from its beginning; what is stored is passed over",
        fields={"stored": stored},
    )

"""A change that each shard makes of what it has (`api.aims.across.InEach`), as one answer.

Where that is said all shards are asked first what the change would be, so that one which refuses it
keeps all as they are. A shard that does not answer stops nothing: it is named in `partial`, and the
status is 207. An epoch of a producer (`Closed`) is closed in all shards, or the request fails and
is asked again. Event loop only.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Annotated, Final, cast

import msgspec

from app.api.aims.across import PARTIAL, Document, Documents, InEach
from app.api.formats import media
from app.api.formats.decoding import DECODE_FAULTS
from app.api.http.request_context import NOT_KEPT, Headers, RequestContext
from app.api.operations.asked_work import work_asked
from app.api.relay.calls import (
    CallAnswer,
    CallRequest,
    Query,
    parsed_query,
    part_of,
    pass_on,
    query_bytes,
)
from app.api.relay.fan_out import Outcome, ask_each, refuse, sorted_out
from app.api.relay.relay import Relay
from app.domain.errors import CurlewError, SequenceOutOfOrder, ShardUnavailable

CHANGE_SECONDS: Final = 30.0
"""How long a shard may take for its part."""
_DRY_RUN: Final = "dry_run"
_MESSAGES_MAX: Final = 2**63 - 1
"""Of an epoch: more than there can be."""
_FLAGS: Final = {
    **dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True),
    **dict.fromkeys(("0", "off", "f", "false", "n", "no"), False),
}
"""What handlers take a flag in a query for, in small letters."""
_NOWHERE: Final = frozenset({"CONSUMER_GROUP_NOT_FOUND", "TOPIC_NOT_FOUND"})
"""What no shard has when one does not."""

_encode: Final = msgspec.json.encode
_decode: Final = msgspec.json.Decoder(dict[str, object]).decode


async def change(relay: Relay, exchange: RequestContext, across: InEach) -> bool:
    """Answer a change; False: its body is not understood, which its handler says."""
    body = await relay.body_of(exchange)
    try:
        members = _decode(body) if body else {}
    except DECODE_FAULTS:
        return False
    query = parsed_query(exchange)
    if _differ(query, members.get(_DRY_RUN)):
        return False
    request = part_of(exchange, query_bytes(query), body)
    shards = relay.shards_from_here()
    if across.begins_work:
        request = request._replace(asks=work_asked(len(shards)))
    lost: dict[str, str] = {}
    if across.tries_first:
        trial = _trial(exchange, query, members)
        trials = dict.fromkeys(shards, trial)
        found = await ask_each(relay, exchange, trials, seconds=CHANGE_SECONDS)
        problem = _refusal(found.values())
        if problem is not None:
            exchange.is_decided = True
            await pass_on(exchange, problem)
            return True
        would, lost, _ = sorted_out(found)
        is_of_all = across.topics and members.get(across.topics) is None
        if is_of_all and (topics := _topics(would)):
            request = request._replace(body=_encode({**members, across.topics: topics}))
            shards = [shard for shard in shards if shard not in lost]
        else:
            shards = list(would)
        if not shards:
            await refuse(exchange, sorted_out(found)[2], lost)
            return True
    found = await ask_each(relay, exchange, dict.fromkeys(shards, request), seconds=CHANGE_SECONDS)
    await _answer(exchange, across, found, lost)
    return True


def _differ(query: Query, member: object) -> bool:
    """Whether query and body say it, and not the same."""
    said = query.get(_DRY_RUN)
    if said is None or member is None:
        return False
    return _FLAGS.get(said.lower()) is not member


def _trial(exchange: RequestContext, query: Query, members: Document) -> CallRequest:
    """What the change would be."""
    rest = {name: value for name, value in members.items() if name != _DRY_RUN}
    trial = query_bytes({**query, _DRY_RUN: "true"})
    return part_of(exchange, trial, _encode(rest) if members else b"")


def _refusal(outcomes: Iterable[Outcome]) -> CallAnswer | None:
    """What is not well is so for all; what is not there may be elsewhere."""
    for outcome in outcomes:
        if isinstance(outcome, CallAnswer) and (
            HTTPStatus.BAD_REQUEST <= outcome.status < HTTPStatus.INTERNAL_SERVER_ERROR
            and outcome.status != HTTPStatus.NOT_FOUND
        ):
            return outcome
    return None


def _topics(documents: Documents) -> list[str]:
    rows = [row for each in documents.values() for row in cast("list[Document]", each["offsets"])]
    return sorted({cast("str", row["topic"]) for row in rows})


async def _answer(
    exchange: RequestContext, across: InEach, found: Mapping[str, Outcome], lost: Mapping[str, str]
) -> None:
    documents, missing, problem = sorted_out(found)
    missing = {**lost, **missing}
    if not documents:
        is_known = problem is not None and not (missing and _may_be_elsewhere(problem))
        await refuse(exchange, problem if is_known else None, missing)
        return
    exchange.is_decided = True  # where the parts were, by the same policies
    merged = across.merge(documents)
    status = _statuses(found)[0]
    if missing:
        merged = {**merged, PARTIAL: list(missing)}
    elif not merged:
        await exchange.answer(status, [NOT_KEPT], b"")
        return
    status = HTTPStatus.MULTI_STATUS if missing else status
    headers = [media.JSON_HEADER, NOT_KEPT, *_locations(found)[:1]]
    await exchange.answer(status, headers, _encode(merged) + b"\n")


def _statuses(found: Mapping[str, Outcome]) -> list[int]:
    """Of those that did it."""
    answers = [each for each in found.values() if isinstance(each, CallAnswer)]
    return [each.status for each in answers if each.status < HTTPStatus.MULTIPLE_CHOICES]


def _locations(found: Mapping[str, Outcome]) -> Headers:
    """Where to look what becomes of it: the same of all."""
    answers = [each for each in found.values() if isinstance(each, CallAnswer)]
    places = [each.header(b"location") for each in answers]
    return [(b"location", each) for each in places if each is not None]


def _may_be_elsewhere(problem: CallAnswer) -> bool:
    if problem.status != HTTPStatus.NOT_FOUND:
        return False
    return _decode(problem.body).get("code") not in _NOWHERE


# --- the epoch of a producer


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
    tries = _FLAGS.get(query.get(_DRY_RUN, "false").lower())
    if tries is None or _differ(query, wanted.dry_run):
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


async def _asked(
    relay: Relay,
    exchange: RequestContext,
    query: Query,
    wanted: _Seal,
    counts: Mapping[str, int],
    tries: str,
) -> dict[str, Outcome]:
    target = query_bytes({**query, _DRY_RUN: tries})
    requests = {}
    for shard, count in counts.items():
        body = {"producer": wanted.producer, "epoch": wanted.epoch, "messages": count}
        requests[shard] = part_of(exchange, target, _encode(body))
    return await ask_each(relay, exchange, requests, seconds=CHANGE_SECONDS)


def _is_done(outcome: Outcome) -> bool:
    return isinstance(outcome, CallAnswer) and outcome.status == HTTPStatus.OK


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

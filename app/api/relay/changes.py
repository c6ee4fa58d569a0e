"""A change that each shard makes of what it has (`api.aims.across.InEach`), as one answer.

Where that is said all shards are asked first what the change would be, so that one which refuses it
keeps all as they are. A shard that does not answer stops nothing: it is named in `partial`, and the
status is 207. Event loop only.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final, cast

import msgspec

from app.api.aims.across import PARTIAL, Document, Documents, InEach
from app.api.formats import media
from app.api.formats.decoding import DECODE_FAULTS
from app.api.http.request_context import NOT_KEPT, Headers, RequestContext
from app.api.operations.asked_work import COPY, first_use_asked, work_asked
from app.api.relay.calls import (
    CallAnswer,
    CallRequest,
    Query,
    parsed_query,
    part_of,
    pass_on,
    query_bytes,
    query_of,
)
from app.api.relay.fan_out import Outcome, ask_each, ask_with_news, is_nowhere, refuse, sorted_out
from app.api.relay.relay import Relay
from app.broker.read.start_offsets import first_use_ms

CHANGE_SECONDS: Final = 30.0
"""How long a shard may take for its part."""
DRY_RUN: Final = "dry_run"
_FLAGS: Final = {
    **dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True),
    **dict.fromkeys(("0", "off", "f", "false", "n", "no"), False),
}
"""What handlers take a flag in a query for, in small letters."""

_encode: Final = msgspec.json.encode
_decode: Final = msgspec.json.Decoder(dict[str, object]).decode


async def change(
    relay: Relay, exchange: RequestContext, across: InEach, names: tuple[str, ...]
) -> bool:
    """Answer a change; False: its body is not understood, which its handler says. `names` are those
    of the path, as they are stored."""
    body = await relay.body_of(exchange)
    try:
        members = _decode(body) if body else {}
    except DECODE_FAULTS:
        return False
    query = parsed_query(exchange)
    if differ(query, members.get(DRY_RUN)):
        return False
    request = part_of(exchange, query_bytes(query), body)
    shards = relay.shards_from_here()
    request = request._replace(asks=await _asks(relay, across, names, len(shards)))
    lost: dict[str, str] = {}
    if across.tries_first:
        trial = _trial(exchange, query, members)
        trials = dict.fromkeys(shards, trial)
        found = await ask_with_news(relay, exchange, trials, seconds=CHANGE_SECONDS)
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
    found = await ask_with_news(
        relay, exchange, dict.fromkeys(shards, request), seconds=CHANGE_SECONDS
    )
    await _answer(exchange, across, found, lost)
    return True


async def bring_copies(relay: Relay, exchange: RequestContext) -> bool:
    """Have the other shards write what SQL is to know of them. False: this node's handler answers,
    whatever became of that."""
    request = part_of(exchange, query_of(exchange))._replace(asks=COPY)
    await ask_each(relay, exchange, dict.fromkeys(relay.shards_from_here()[1:], request))
    return False


async def _asks(relay: Relay, across: InEach, names: tuple[str, ...], shards: int) -> str:
    """What all shards are told alike beyond what the client says."""
    if across.begins_work:
        return work_asked(shards)
    if across.forgets_first_use:
        group, topic = names
        return first_use_asked(await first_use_ms(relay.places.metadata, group, topic))
    return ""


def differ(query: Query, member: object) -> bool:
    """Whether query and body say `dry_run`, and not the same."""
    said = query.get(DRY_RUN)
    if said is None or member is None:
        return False
    return _FLAGS.get(said.lower()) is not member


def is_trial(query: Query) -> bool | None:
    """Whether the query asks for a dry run; None: what it says is neither yes nor no."""
    return is_said(query, DRY_RUN)


def is_said(query: Query, name: str) -> bool | None:
    """What the query says of a flag, no where it says nothing; None: neither yes nor no."""
    return _FLAGS.get(query.get(name, "false").lower())


def _trial(exchange: RequestContext, query: Query, members: Document) -> CallRequest:
    """What the change would be."""
    rest = {name: value for name, value in members.items() if name != DRY_RUN}
    trial = query_bytes({**query, DRY_RUN: "true"})
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
    return problem.status == HTTPStatus.NOT_FOUND and not is_nowhere(problem)

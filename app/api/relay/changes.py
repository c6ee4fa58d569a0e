"""A change that each shard makes of what it has (`api.aims.across.InEach`), as one answer.

Where that is said all shards are asked first what the change would be, so that one which refuses it
keeps all as they are. A shard that does not answer stops nothing: it is named in `partial`, and the
status is 207. Event loop only.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import parse_qsl, urlencode

import msgspec

from app.api.aims.across import PARTIAL, Document, Documents, InEach
from app.api.formats import media
from app.api.formats.decoding import DECODE_FAULTS
from app.api.http.request_context import NOT_KEPT, Headers, RequestContext
from app.api.operations.asked_work import work_asked
from app.api.relay.calls import CallAnswer, CallRequest, part_of, pass_on, query_of
from app.api.relay.fan_out import Outcome, ask_each, refuse, sorted_out
from app.api.relay.relay import Relay

CHANGE_SECONDS: Final = 30.0
"""How long a shard may take for its part."""
_DRY_RUN: Final = "dry_run"
_NOWHERE: Final = frozenset({"CONSUMER_GROUP_NOT_FOUND", "TOPIC_NOT_FOUND"})
"""What no shard has when one does not."""

_encode: Final = msgspec.json.encode
_decode: Final = msgspec.json.Decoder(dict[str, object]).decode

Query = Mapping[str, str]


async def change(relay: Relay, exchange: RequestContext, across: InEach) -> bool:
    """Answer a change; False: its body is not understood, which its handler says."""
    body = await relay.body_of(exchange)
    try:
        members = _decode(body) if body else {}
    except DECODE_FAULTS:
        return False
    query = dict(parse_qsl(query_of(exchange).decode("latin-1"), keep_blank_values=True))
    if _DRY_RUN in query and _DRY_RUN in members:
        return False  # they may differ
    request = part_of(exchange, urlencode(query).encode(), body)
    shards = relay.shards_from_here()
    if across.begins_work:
        request = request._replace(asks=work_asked(len(shards)))
    lost: dict[str, str] = {}
    if across.tries_first:
        trial = _trial(exchange, query, members)
        found = await ask_each(relay, exchange, dict.fromkeys(shards, trial))
        problem = _refusal(found.values())
        if problem is not None:
            exchange.is_decided = True
            await pass_on(exchange, problem)
            return True
        would, lost, _ = sorted_out(found)
        if across.topics and across.topics not in members and would:
            wider = _encode({**members, across.topics: _topics(would)})
            request = request._replace(body=wider)
            shards = [shard for shard in shards if shard not in lost]
        else:
            shards = list(would)
        if not shards:
            await refuse(exchange, sorted_out(found)[2], lost)
            return True
    found = await ask_each(relay, exchange, dict.fromkeys(shards, request), seconds=CHANGE_SECONDS)
    await _answer(exchange, across, found, lost)
    return True


def _trial(exchange: RequestContext, query: Query, members: Document) -> CallRequest:
    """What the change would be."""
    rest = {name: value for name, value in members.items() if name != _DRY_RUN}
    trial = urlencode({**query, _DRY_RUN: "true"}).encode()
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

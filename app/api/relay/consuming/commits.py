"""Commits of a group's offsets in queues of several shards: each shard is told its own rows.

All are asked first what the commit would be, so that what one of them refuses (an offset beyond the
queue's end, a member of an older generation, a topic that the group leases) changes nothing
anywhere, as at a lone node. Of several refusals the one is told that a lone node tells: it looks at
one thing after the other (`_LOOKED_AT`), and for each at the rows as they stand. Then each commits
its rows. A shard that does not answer stops nothing: its rows are in `refused`, it is in `partial`,
and the status is 207. Offsets do not go back, so the same commit can be asked for again. With
`force=true` the topic's shards of which it has no rows are told how the group reads the topic now,
with no row; a node of an older version refuses that, and its shard is in `partial`. Event loop
only.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Annotated, Final

import msgspec

from app.api.aims import merges
from app.api.aims.across import PARTIAL, Document, Documents
from app.api.aims.body_parts import Part, parts_of
from app.api.aims.places import Places
from app.api.formats import media
from app.api.http.request_context import NOT_KEPT, RequestContext
from app.api.operations.asked_work import READ
from app.api.relay.calls import (
    CallAnswer,
    CallRequest,
    Query,
    parsed_query,
    part_of,
    pass_on,
    query_bytes,
)
from app.api.relay.changes import CHANGE_SECONDS, DRY_RUN, is_said, is_trial
from app.api.relay.consuming.poll_entries import refusals_in
from app.api.relay.fan_out import (
    Outcome,
    ask_each,
    ask_with_news,
    reason_of,
    refuse,
    sorted_out,
)
from app.api.relay.relay import Relay
from app.domain.errors import ShardUnavailable

_LISTS: Final = ("offsets",)
_FORCE: Final = "force"
_LOOKED_AT: Final = (
    *("QUEUE_NOT_FOUND", "OFFSET_OUT_OF_RANGE", "CONSUMER_GROUP_NOT_FOUND", "BROADCAST_GROUP"),
    *("CONSUMPTION_CONFLICT", "STALE_GENERATION", "QUEUE_NOT_OWNED"),
)
"""Codes of what a commit can be refused for, in the order of `OffsetCommits.commit`; what is
decided of a request before that is the same in all shards, and comes first."""
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

_NOT_UNDERSTOOD: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
_TOO_OLD: Final = ShardUnavailable("its node is of an older version, and leaves its leases alone")


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """As `CommitEntry`: what is none, its handler refuses, which has the whole body."""

    queue_id: _Count
    offset: _Count


class _Problem(msgspec.Struct):
    """What of a refusal says what it is about."""

    code: str = ""
    queue_id: int | None = None
    offset: int | None = None


_row: Final = msgspec.json.Decoder(_Row).decode
_problem: Final = msgspec.json.Decoder(_Problem).decode
_encode: Final = msgspec.json.encode


async def commit(relay: Relay, exchange: RequestContext, names: tuple[str, ...]) -> bool:
    """Answer a commit of several shards; False: it is for one, or not understood."""
    query = parsed_query(exchange)
    tries = is_trial(query)
    body = await relay.body_of(exchange)
    parts = _parts(relay.places, names[1], body)
    if parts and is_said(query, _FORCE):
        parts = {**_without_rows(relay.places, names[1]), **parts}
    if tries is None or len(parts) < 2:
        return False

    def requests(query: Query, shards: Iterable[str]) -> dict[str, CallRequest]:
        text = query_bytes(query)
        asked = {shard: part_of(exchange, text, parts[shard].body) for shard in shards}
        return {
            shard: each if parts[shard].entries else each._replace(asks=READ)
            for shard, each in asked.items()
        }

    trial = requests({**query, DRY_RUN: "true"}, parts)
    found = await ask_with_news(relay, exchange, trial, seconds=CHANGE_SECONDS)
    found = _told(parts, found)
    exchange.is_decided = True  # where the parts were, by the same policies
    problem = told_first(parts, refusals_in(found))
    if problem is not None:
        await pass_on(exchange, problem)
        return True
    if not tries and _has_rows(parts, would := sorted_out(found)[0]):
        asked = requests(query, would)
        found |= await ask_each(relay, exchange, asked, sends=True, seconds=CHANGE_SECONDS)
    documents, missing, problem = sorted_out(found)
    if not _has_rows(parts, documents):
        await refuse(exchange, problem, missing)
        return True
    whole = merged(parts, documents, found)
    status = HTTPStatus.MULTI_STATUS if PARTIAL in whole else HTTPStatus.OK
    await exchange.answer(status, [media.JSON_HEADER, NOT_KEPT], _encode(whole) + b"\n")
    return True


def _has_rows(parts: Mapping[str, Part], shards: Iterable[str]) -> bool:
    """Whether one of the shards has a row of the body."""
    return any(parts[shard].entries for shard in shards)


def _parts(places: Places, topic: str, body: bytes) -> dict[str, Part]:
    view, own = places.topic(topic), places.metadata.shard
    return parts_of(body, _LISTS, lambda raw: places.of_queue(view, _row(raw).queue_id) or own)


def _without_rows(places: Places, topic: str) -> dict[str, Part]:
    """All shards of the topic, with no row at all: a node of an older version, which knows nothing
    of `READ`, refuses such a body and commits nothing."""
    view, own = places.topic(topic), places.metadata.shard
    queues = range(0 if view is None else view.queues)
    shards = {places.of_queue(view, queue_id) or own for queue_id in queues}
    return {shard: Part(_encode({"offsets": []}), [], []) for shard in sorted(shards)}


def _told(parts: Mapping[str, Part], found: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """A shard whose node does not understand what it is told, has not answered."""
    return {
        shard: _TOO_OLD
        if isinstance(outcome, CallAnswer)
        and outcome.status in _NOT_UNDERSTOOD
        and not parts[shard].entries
        else outcome
        for shard, outcome in found.items()
    }


def told_first(parts: Mapping[str, Part], refusals: Mapping[str, CallAnswer]) -> CallAnswer | None:
    """The one of several refusals that a lone node tells, which has all the rows."""
    return min(
        refusals.values(),
        key=lambda each: _when(_problem(each.body), parts),
        default=None,
    )


def _when(problem: _Problem, parts: Mapping[str, Part]) -> tuple[int, int]:
    """By what is looked at, then by the first row that is meant."""
    code = problem.code
    stage = _LOOKED_AT.index(code) if code in _LOOKED_AT else -1
    rows = [
        place
        for part in parts.values()
        for place, (_, raw) in zip(part.places, part.entries, strict=True)
        if _is_about(problem, _row(raw))
    ]
    return stage, min(rows, default=0)


def _is_about(problem: _Problem, row: _Row) -> bool:
    return row.queue_id == problem.queue_id and problem.offset in (None, row.offset)


def merged(
    parts: Mapping[str, Part], documents: Documents, found: Mapping[str, Outcome]
) -> Document:
    """What is committed in the shards that did it, and the rows of the others with the reason."""
    whole = merges.committed(documents)
    missing = parts.keys() - documents.keys()
    if not missing:
        return whole
    rows: dict[int, Document] = {}
    for shard in missing:
        reason = reason_of(found[shard])
        for place, (_, raw) in zip(parts[shard].places, parts[shard].entries, strict=True):
            rows[place] = {"topic": whole["topic"], **msgspec.structs.asdict(_row(raw)), **reason}
    return {**whole, "refused": [rows[place] for place in sorted(rows)], PARTIAL: sorted(missing)}

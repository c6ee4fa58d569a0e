"""Heartbeats of members over several shards: the node that was asked keeps the membership, each
shard says where its own queues begin.

The heartbeat itself, its wait as well, is done once, by the node that was asked. Then each other
shard with assigned queues is asked for the member's share as it is there, with no wait; to replace
a filter or to end leases, which are of the group, each is that has queues of its topics. Its
offsets are taken for its own queues. The queues of a shard that does not answer are left out of
`assigned`, as in polls, and the shard is named in `partial`: an offset that nobody knows is not
made up. The queues stay the member's, and the next heartbeat has them. Event loop only.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, cast

import msgspec

from app.api.aims.across import PARTIAL, Document
from app.api.aims.places import Places
from app.api.dataplane.client_watch import unless_gone
from app.api.formats import media
from app.api.http.parameters import wait_s_of
from app.api.http.request_context import NOT_KEPT, RequestContext
from app.api.naming.request_namespace import stored
from app.api.operations.asked_work import SHARE
from app.api.relay.calls import (
    CallAnswer,
    parsed_query,
    part_of,
    pass_on,
    query_bytes,
    query_of,
    query_without,
)
from app.api.relay.changes import CHANGE_SECONDS, is_said
from app.api.relay.fan_out import Outcome, ask, ask_each, sorted_out
from app.api.relay.relay import Relay
from app.domain.errors import CurlewError

Rows = list[Document]
"""Assigned queues, as clients get them."""

_OF_THE_GROUP: Final = ("replace_subscription", "force")
"""What changes how others of the group consume, wherever they do."""

_encode: Final = msgspec.json.encode
_decode: Final = msgspec.json.Decoder(dict[str, object]).decode


async def heartbeat(relay: Relay, exchange: RequestContext) -> bool:
    """Answer a heartbeat; False: the handler says what is wrong with its wait."""
    query = parsed_query(exchange)
    try:
        wait_s = wait_s_of(query["wait"], relay.limits.wait_seconds_max) if "wait" in query else 0.0
    except CurlewError:
        return False
    body = await relay.body_of(exchange)
    own = relay.places.metadata.shard
    request = part_of(exchange, query_of(exchange), body)

    async def begin(_: Callable[[], bool]) -> Outcome:
        return await ask(relay, exchange, own, request, seconds=wait_s + CHANGE_SECONDS)

    if wait_s > 0:
        outcome = await unless_gone(exchange.receive, exchange, begin, lambda _: None)
    else:
        outcome = await begin(lambda: False)
    if isinstance(outcome, CurlewError):
        raise outcome
    exchange.is_decided = True  # where the parts were, by the same policies
    if outcome.status != HTTPStatus.OK:
        await pass_on(exchange, outcome)
        return True
    share = _decode(outcome.body)
    places = shards_of(cast("Rows", share["assigned"]), relay.places, own)
    part = part_of(exchange, query_bytes(query_without(query, "wait")), body)
    changes = any(is_said(query, each) for each in _OF_THE_GROUP)
    others = (_shards_of_topics(body, relay.places) if changes else set(places)) - {own}
    asked = dict.fromkeys(sorted(others), part._replace(asks=SHARE))
    found = await ask_each(relay, exchange, asked)
    refusal = _conflict(found)
    if refusal is not None:
        await pass_on(exchange, refusal)
        return True
    documents, missing, _ = sorted_out(found)
    told = merged(share, places, own, documents, {*missing, *(found.keys() - documents.keys())})
    await exchange.answer(HTTPStatus.OK, [media.JSON_HEADER, NOT_KEPT], _encode(told) + b"\n")
    return True


def _shards_of_topics(body: bytes, places: Places) -> set[str]:
    """Those that have queues of what the member reads, assigned or not. The body is well."""
    found: set[str | None] = set()
    for each in cast("Rows", _decode(body).get("subscriptions", [])):
        topic = places.topic(stored("topic", cast("str", each["topic"])))
        if topic is not None:
            found |= {topic.shard_of(queue_id) for queue_id in range(topic.queues)}
    return cast("set[str]", found - {None, ""})


def shards_of(assigned: Rows, places: Places, own: str) -> list[str]:
    """The shard of each assigned queue; `own` for a queue that is in none."""
    found: list[str] = []
    for row in assigned:
        topic = places.topic(stored("topic", cast("str", row["topic"])))
        found.append(places.of_queue(topic, cast("int", row["queue_id"])) or own)
    return found


def merged(
    share: Document,
    places: list[str],
    own: str,
    documents: Mapping[str, Document],
    missing: set[str],
) -> Document:
    """The share with the offsets of the shards that have the queues. `places`: the shard of each
    assigned queue; `documents`: the share as the other shards see it. A queue of which its shard
    says nothing is left out, and the shard is partial."""
    offsets = {
        (shard, row["topic"], row["queue_id"]): row["offset"]
        for shard, document in documents.items()
        for row in cast("Rows", document["assigned"])
    }
    missing = set(missing)
    assigned: Rows = []
    for row, shard in zip(cast("Rows", share["assigned"]), places, strict=True):
        key = shard, row["topic"], row["queue_id"]
        if shard == own:
            assigned.append(row)
        elif key in offsets:
            assigned.append({**row, "offset": offsets[key]})
        else:
            missing.add(shard)
    effects = [each for part in (share, *documents.values()) for each in _effects(part)]
    told: Document = {**share, "assigned": assigned, "effects": effects}
    if missing:
        told[PARTIAL] = sorted(missing)
    return told


def _effects(document: Document) -> list[object]:
    return cast("list[object]", document.get("effects", []))


def _conflict(found: Mapping[str, Outcome]) -> CallAnswer | None:
    """The group leases a topic there: what the member has to be told."""
    answers = [each for each in found.values() if isinstance(each, CallAnswer)]
    return next((each for each in answers if each.status == HTTPStatus.CONFLICT), None)

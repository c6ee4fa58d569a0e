"""Batches and settles of several shards: each shard is given its part at once, and every entry has
a result, whatever became of the other parts. Event loop only.

What has to be done in one piece is not split, and left to the handler: batches that are stored once
(idempotency key, producer), strict ones, those to one queue, frames, lines that are bodies; acks
with sends.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, cast

import msgspec

from app.api.aims.across import Document, Split
from app.api.aims.body_parts import Part, parts_of, parts_of_batch, results_of
from app.api.aims.of_sends import said
from app.api.aims.places import Places
from app.api.bodies.entry_counting import check_settled_count
from app.api.dataplane.entry_results import result_of
from app.api.formats import media
from app.api.formats.cloudevents import text_of
from app.api.formats.decoding import DECODE_FAULTS
from app.api.formats.dedup_headers import IDEMPOTENCY_KEY
from app.api.formats.merging import Entry, is_small, named_twice
from app.api.formats.prefer_header import STRICT, preferences_of
from app.api.http.errors import entry_problem, render_problem, with_outcome_of_send
from app.api.http.request_context import RequestContext
from app.api.operations.operation import Operation
from app.api.relay.calls import CallAnswer, part_of, pass_on, query_of
from app.api.relay.fan_out import Outcome, ask_each
from app.api.relay.relay import Relay
from app.domain.errors import CurlewError
from app.domain.handles.receipt import shard_of_receipt

_BATCH: Final = ("messages",)
_SPLIT: Final = frozenset({"json", "ndjson", "events"})
"""Batches whose entries say where they go."""
_ACTIONS: Final = {
    "acks": "ack",
    "nacks": "nack",
    "extends": "extend",
    "dead_letters": "dead_letter",
    "releases": "release",
}
_WHOLE: Final = (
    (b"mq-queue-id", "queue_id"),
    (b"mq-sharding-key", "sharding_key"),
    (b"mq-producer-id", "producer_id"),
    (b"", "idempotency_key"),
    (b"", "split"),
)
"""What makes a batch one piece, or is refused with one: headers, and the parameters that say the
same."""
_MEMBERS: Final = ("type", "title", "status", "code", "detail", "retryable", "outcome", "hint")
"""Of a problem document, what an entry's has."""
_TWICE: Final = "*"
"""In place of a shard, of messages that are sent nowhere: others before have their unique ids."""


class _Entry(msgspec.Struct):
    """What of a message, or of a CloudEvent, says where it goes, and what it is called."""

    queue_id: int | None = None
    sharding_key: str | None = None
    partitionkey: str | bool | int | None = None
    unique_id: object = None


class _Named(msgspec.Struct):
    id: object = None
    unique_id: object = None


class _Handle(msgspec.Struct):
    receipt_handle: str


class _Settle(msgspec.Struct):
    sends: list[msgspec.Raw] = []


_entry: Final = msgspec.json.Decoder(_Entry).decode
_named: Final = msgspec.json.Decoder(_Named).decode
_handle: Final = msgspec.json.Decoder(str | _Handle).decode
_encode: Final = msgspec.json.encode


async def split(
    relay: Relay, exchange: RequestContext, operation: Operation, names: tuple[str, ...]
) -> bool:
    """Answer what is of several shards; False: it is for one, or not understood."""
    across = operation.across
    assert isinstance(across, Split)
    is_batch = across.lists == _BATCH
    if is_batch and not _may_be_split(exchange):
        return False
    body = await relay.body_of(exchange)
    kind = _kind_of(exchange) if is_batch else None
    find = partial(_parts, relay, across, names, kind, body)
    parts = find() if is_small(body) else await asyncio.to_thread(find)
    whole = dict(parts)
    twice = parts.pop(_TWICE, None)
    if not parts or parts.keys() == {relay.places.metadata.shard}:
        return False
    requests = {
        shard: part_of(exchange, query_of(exchange), part.body) for shard, part in parts.items()
    }
    found = await ask_each(relay, exchange, requests, sends=is_batch)
    if is_batch:
        for outcome in found.values():
            if isinstance(outcome, CurlewError):
                with_outcome_of_send(outcome)
    if (
        twice is None
        and len(found) == 1
        and isinstance(only := next(iter(found.values())), CallAnswer)
    ):
        exchange.is_decided = True
        await pass_on(exchange, only)
        return True
    if is_batch and twice is None and all(map(_is_one_way, found.values())):
        exchange.is_decided = True
        await exchange.answer_empty(HTTPStatus.ACCEPTED, [])
        return True
    results = {shard: results_in(across, parts[shard], outcome) for shard, outcome in found.items()}
    if twice is not None:
        results[_TWICE] = await asyncio.to_thread(_refused_twice, kind, whole)
    await _answer(exchange, results_of(whole, results), list(found.values()))
    return True


def _is_one_way(outcome: Outcome) -> bool:
    """Whether nothing is told of a part that was taken."""
    return isinstance(outcome, CallAnswer) and outcome.status < 300 and not outcome.body


def _may_be_split(exchange: RequestContext) -> bool:
    if IDEMPOTENCY_KEY in exchange.headers or STRICT in preferences_of(exchange):
        return False
    return _kind_of(exchange) in _SPLIT and all(said(exchange, *each) is None for each in _WHOLE)


def _kind_of(exchange: RequestContext) -> media.BatchKind | None:
    """None: it is none that is taken, which its handler says."""
    try:
        return media.batch_content(exchange.headers.get(b"content-type"))
    except CurlewError:
        return None


def _parts(
    relay: Relay, across: Split, names: tuple[str, ...], kind: media.BatchKind | None, body: bytes
) -> dict[str, Part]:
    count_max = relay.limits.batch_messages_max
    places = relay.places
    try:
        if across.lists == _BATCH:
            assert kind is not None
            are_named = kind != "events"
            shard_of = _ShardOfMessage(places, names[0], are_named=are_named)
            return parts_of_batch(kind, body, count_max, shard_of)
        check_settled_count(body, count_max)
        if "acks" in across.lists and msgspec.json.decode(body, type=_Settle).sends:
            return {}
    except (CurlewError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}  # the handler says what is wrong
    return parts_of(body, across.lists, lambda raw: shard_of_handle(places, raw))


class _ShardOfMessage:
    """Where the messages of a batch go, one after the other; those without a key or a queue
    together. With `are_named` their unique ids are looked at."""

    def __init__(self, places: Places, topic: str, *, are_named: bool) -> None:
        self._places = places
        self._topic = places.topic(topic)
        self._any: str | None = None
        self._are_named = are_named
        self._ids: set[str] = set()

    def __call__(self, raw: bytes) -> str:
        places = self._places
        try:
            entry = _entry(raw)
        except DECODE_FAULTS:
            entry = _Entry()  # whoever is given it says what is wrong
        if self._are_named and isinstance(entry.unique_id, str):
            if entry.unique_id in self._ids:
                return _TWICE
            self._ids.add(entry.unique_id)
        key = entry.partitionkey if entry.sharding_key is None else entry.sharding_key
        if entry.queue_id is not None:
            shard = places.of_queue(self._topic, entry.queue_id)
        elif key is not None:
            shard = places.of_key(self._topic, text_of(key))
        else:
            if self._any is None:
                self._any = places.for_any_queue(self._topic) or places.metadata.shard
            shard = self._any
        return places.metadata.shard if shard is None else shard


def shard_of_handle(places: Places, raw: bytes) -> str:
    """The shard of an entry of a settle; this one's, where none of the cluster gave the handle."""
    shard_id = shard_of_receipt(_text_of(raw))
    own = places.metadata.shard
    return own if shard_id is None else places.of_store(shard_id) or own


def _text_of(raw: bytes) -> str:
    found = _handle(raw)
    return found if isinstance(found, str) else found.receipt_handle


# --- results


def results_in(across: Split, part: Part, outcome: Outcome) -> list[Document]:
    """One for each entry of a part, also when the part has none."""
    if _is_one_way(outcome):
        return [{"index": number, "status": 202} for number in range(len(part.entries))]
    if isinstance(outcome, CallAnswer):
        document = msgspec.json.decode(outcome.body, type=dict[str, object])
        if "results" in document:
            return cast("list[Document]", document["results"])
        problem: object = {name: document[name] for name in _MEMBERS if name in document}
        status = outcome.status
    else:
        problem = msgspec.to_builtins(entry_problem(outcome))
        status = cast("int", cast("Document", problem)["status"])
    failed: Document = {"status": status, "error": problem}
    if across.lists == _BATCH:
        return [{"index": number, **failed} for number in range(len(part.entries))]
    return [
        {
            "receipt_handle": _text_of(raw),
            "action": across.action or _ACTIONS[name],
            **failed,
        }
        for name, raw in part.entries
    ]


def _refused_twice(kind: media.BatchKind | None, parts: Mapping[str, Part]) -> list[Document]:
    """As the handler refuses them of a batch that is not split."""
    refused = parts[_TWICE]
    named = [_named(raw) for _, raw in refused.entries]
    ids = {each.unique_id for each in named}
    first: dict[str, int] = {
        unique_id: place
        for shard, part in parts.items()
        if shard != _TWICE
        for place, (_, raw) in zip(part.places, part.entries, strict=True)
        if (unique_id := _unique_id_of(raw)) is not None and unique_id in ids
    }
    pointer = "/messages/{}" if kind == "json" else ""
    found: list[Document] = []
    for place, entry in zip(refused.places, named, strict=True):
        unique_id = cast("str", entry.unique_id)
        error = named_twice(unique_id, place, first[unique_id], pointer)
        name = entry.id if isinstance(entry.id, str) else None
        found.append(msgspec.to_builtins(result_of(place, Entry(name, error), error)))
    return found


def _unique_id_of(raw: bytes) -> str | None:
    try:
        found = _entry(raw).unique_id
    except DECODE_FAULTS:
        return None
    return found if isinstance(found, str) else None


async def _answer(exchange: RequestContext, whole: Document, outcomes: list[Outcome]) -> None:
    exchange.is_decided = True  # where the parts were, by the same policies
    if whole["succeeded"]:
        status = HTTPStatus.MULTI_STATUS if whole["failed"] else HTTPStatus.OK
        await exchange.answer(status, [media.JSON_HEADER], _encode(whole) + b"\n")
        return
    leading = max(outcomes, key=_weight)
    if isinstance(leading, CurlewError):
        status_code, headers, body = render_problem(
            leading, instance=exchange.instance, request_id=exchange.request_id, extra=whole
        )
        await exchange.answer(status_code, headers, body)
        return
    document = msgspec.json.decode(leading.body, type=dict[str, object])
    body = _encode({**document, **whole}) + b"\n"
    await exchange.answer(leading.status, leading.own_headers, body)


def _weight(outcome: Outcome) -> int:
    """A fault of ours names the whole before one of the caller's."""
    is_ours = isinstance(outcome, CurlewError) or outcome.status >= 500
    return int(is_ours)

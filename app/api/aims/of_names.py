"""What other operations are aimed at: a queue of their path, or the shard that gave an id."""

from typing import Final

import msgspec

from app.api.aims.aim import BODY, HERE, NEWS, Aim, Asks, Names, Shard, at_queue
from app.api.aims.of_sends import queue_in, said
from app.api.aims.places import Places
from app.api.formats.decoding import DECODE_FAULTS
from app.api.http.request_context import RequestContext
from app.domain.handles.recall import shard_of_recall
from app.domain.handles.receipt import shard_of_receipt
from app.store.formats.record.message_id import decode_message_id

_NODE_CHARS: Final = 8


def _of_queue(exchange: RequestContext, names: Names, places: Places) -> Shard | Asks:
    del exchange
    queue_id = queue_in(names[1])
    return HERE if queue_id is None else at_queue(places, places.topic(names[0]), queue_id)


def _of_queue_in_query(exchange: RequestContext, names: Names, places: Places) -> Shard | Asks:
    queue_id = queue_in(said(exchange, b"", "queue_id"))
    return HERE if queue_id is None else at_queue(places, places.topic(names[0]), queue_id)


def _of_shard(exchange: RequestContext, names: Names, places: Places) -> Shard:
    del exchange
    known = places.metadata.snapshot.shards
    return names[0] if names[0] in known and names[0] != places.metadata.shard else HERE


def _of_receipt(exchange: RequestContext, names: Names, places: Places) -> Shard:
    del exchange
    return _store(places, shard_of_receipt(names[0]))


def _of_recall(exchange: RequestContext, names: Names, places: Places) -> Shard:
    del exchange
    return _store(places, shard_of_recall(names[1]))


def _of_message(exchange: RequestContext, names: Names, places: Places) -> Shard:
    del exchange
    return _of_message_id(places, names[1])


def _of_transaction(exchange: RequestContext, names: Names, places: Places) -> Shard:
    del exchange
    return _of_message_id(places, names[0])


def _of_correlation(exchange: RequestContext, names: Names, places: Places) -> Shard:
    """The node whose request waits: it has its name in front."""
    del exchange
    node = names[0].partition("-")[0]
    if len(node) != _NODE_CHARS:
        return HERE
    try:
        return places.of_store(bytes.fromhex(node))
    except ValueError:
        return HERE


def _of_message_id(places: Places, text: str) -> Shard:
    place = decode_message_id(text)
    return HERE if place is None else places.of_store(place.store_id)


def _store(places: Places, shard_id: bytes | None) -> Shard:
    return HERE if shard_id is None else places.of_store(shard_id)


def _asks_body(exchange: RequestContext, names: Names, places: Places) -> Asks:
    del exchange, names, places
    return BODY


def _of_handles(exchange: RequestContext, names: Names, places: Places, body: bytes) -> Shard:
    """The shard of all handles in the body, when it is one."""
    del exchange, names
    try:
        texts = _texts_in(msgspec.json.decode(body))
    except DECODE_FAULTS:
        return HERE
    found = {shard_of_receipt(text) for text in texts} - {None}
    shards = {places.of_store(each) for each in found if each is not None}
    return shards.pop() if len(shards) == 1 else HERE


def _texts_in(document: object) -> list[str]:
    """The texts of an object's members, of its lists, and of objects in them."""
    if isinstance(document, str):
        return [document]
    if isinstance(document, dict):
        return [text for each in document.values() for text in _texts_in(each)]
    if isinstance(document, list):
        return [text for each in document for text in _texts_in(each)]
    return []


class _Position(msgspec.Struct):
    queue_id: int


class _Positions(msgspec.Struct):
    offsets: list[_Position]


_positions: Final = msgspec.json.Decoder(_Positions).decode


def _of_positions(
    exchange: RequestContext, names: Names, places: Places, body: bytes
) -> Shard | Asks:
    """The shard of all queues that a commit names, when it is one."""
    del exchange
    try:
        given = _positions(body).offsets
    except DECODE_FAULTS:
        return HERE
    topic = places.topic(names[1])
    shards = {at_queue(places, topic, each.queue_id) for each in given}
    if NEWS in shards:
        return NEWS
    return shards.pop() if len(shards) == 1 else HERE


A_QUEUE: Final = Aim(_of_queue)
"""`/v1/topics/{topic}/queues/{queue}/…`"""
A_QUEUE_IN_QUERY: Final = Aim(_of_queue_in_query)
"""`/v1/topics/{topic}/…?queue_id=`, where it is said"""
A_SHARD: Final = Aim(_of_shard)
"""`/v1/shards/{shard}/…`"""
A_RECEIPT: Final = Aim(_of_receipt)
"""`/v1/receipts/{handle}`"""
RECEIPTS: Final = Aim(_asks_body, _of_handles)
"""Handles in a body, when one shard gave them all."""
A_RECALL_HANDLE: Final = Aim(_of_recall)
"""`/v1/topics/{topic}/scheduled/{recall_handle}…`"""
A_MESSAGE_ID: Final = Aim(_of_message)
"""`/v1/topics/{topic}/messages/{message_id}…`"""
A_TRANSACTION: Final = Aim(_of_transaction)
"""`/v1/transactions/{transaction_id}…`"""
A_REPLY: Final = Aim(_of_correlation)
"""`/v1/replies/{correlation_id}`"""
POSITIONS: Final = Aim(_asks_body, _of_positions)
"""`/v1/groups/{group}/offsets/{topic}`, when one shard has all queues of the body."""

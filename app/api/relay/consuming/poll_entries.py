"""What a member says in a poll of queues and handles of several shards: each shard is given its own
entries, and what became of all of them is in one answer. Pure.

An entry of a shard that does not do it, or does not answer, is refused with why, and its member
keeps the queue until it is done.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, cast

import msgspec

from app.api.aims.across import Document, Split
from app.api.aims.body_parts import Part, parts_of, results_of
from app.api.aims.places import Places
from app.api.naming.request_namespace import stored
from app.api.relay.calls import CallAnswer
from app.api.relay.fan_out import Outcome, reason_of
from app.api.relay.split import results_in, shard_of_handle

Raws = dict[str, msgspec.Raw]

_ENTRIES: Final = ("commits", "hand_backs")
_SETTLES: Final = Split(("acks", "nacks", "extends", "dead_letters", "releases"))
_LATER: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.MISDIRECTED_REQUEST)
"""What a shard refuses now and for itself, as it does with what it cannot do."""


class _Queue(msgspec.Struct):
    topic: str
    queue_id: int


class _Entry(_Queue):
    offset: int = 0
    queue_offset: int | None = None


_encode: Final = msgspec.json.encode
_members: Final = msgspec.json.Decoder(Raws).decode
_queue: Final = msgspec.json.Decoder(_Queue).decode
_entry: Final = msgspec.json.Decoder(_Entry).decode


def body_to_read(body: bytes, *left_out: str) -> bytes:
    """The body of a poll without what was done, and without other members."""
    names = {*_ENTRIES, "settles", *left_out}
    return _encode({name: raw for name, raw in _members(body).items() if name not in names})


def body_to_release(body: bytes, handles: list[str]) -> bytes:
    """The body of a poll that lets others have what nobody gets."""
    names = ("client_id", "subscriptions")
    said = {name: raw for name, raw in _members(body).items() if name in names}
    return _encode({**said, "settles": {"releases": handles}})


class Done(NamedTuple):
    """What became of the entries."""

    committed: list[Document]
    refused: list[Document]
    settled: list[Document]
    undone: list[tuple[str, int]]
    """Queues of which a shard has not done something, or perhaps has not."""


class PollEntries:
    """Those of one poll, by the shards that they are of."""

    def __init__(self, body: bytes, places: Places) -> None:
        self._places = places
        members = _members(body)
        self._settles: dict[str, Part] = {}
        if "settles" in members:
            settles = bytes(members.pop("settles"))
            self._settles = parts_of(
                settles, _SETTLES.lists, lambda raw: shard_of_handle(places, raw)
            )
        whole = _encode({name: members.get(name, msgspec.Raw(b"[]")) for name in _ENTRIES})
        self._entries = parts_of(whole, _ENTRIES, self._shard_of)
        rest = {name: raw for name, raw in members.items() if name not in _ENTRIES}
        self.bodies: dict[str, bytes] = {}
        """What each shard is asked to do; nothing for who has none of it."""
        for shard in {**self._entries, **self._settles}:
            said: dict[str, object] = dict(rest)
            if shard in self._entries:
                said |= _members(self._entries[shard].body)
            if shard in self._settles:
                said["settles"] = msgspec.Raw(self._settles[shard].body)
            self.bodies[shard] = _encode(said)

    def _shard_of(self, raw: bytes) -> str:
        name, places = _queue(raw), self._places
        return (
            places.of_queue(places.topic(stored("topic", name.topic)), name.queue_id)
            or places.metadata.shard
        )

    def done(self, found: Mapping[str, Outcome]) -> Done:
        """What the shards have answered. Of each shard that is in `bodies` there is something."""
        done = Done([], [], [], [])
        results: dict[str, list[Document]] = {}
        for shard, outcome in found.items():
            if isinstance(outcome, CallAnswer) and outcome.status == HTTPStatus.OK:
                document = msgspec.json.decode(outcome.body, type=dict[str, list[Document]])
                done.committed.extend(document["committed"])
                done.refused.extend(document["refused"])
                results[shard] = document["settled"]
                continue
            if shard in self._settles:
                results[shard] = results_in(_SETTLES, self._settles[shard], outcome)
            if shard in self._entries:
                refused = [_refused(raw, outcome) for _, raw in self._entries[shard].entries]
                done.refused.extend(refused)
                done.undone.extend(
                    (cast("str", each["topic"]), cast("int", each["queue_id"])) for each in refused
                )
        if self._settles:
            whole = results_of(self._settles, results)
            done.settled.extend(cast("list[Document]", whole["results"]))
        done.committed.sort(key=lambda each: (each["topic"], each["queue_id"]))
        return done


def refusal_of(found: Mapping[str, Outcome]) -> CallAnswer | None:
    """What is so in all shards: the poll itself is not well, or its caller may not."""
    return next(iter(refusals_in(found).values()), None)


def refusals_in(found: Mapping[str, Outcome]) -> dict[str, CallAnswer]:
    """By shards, what is refused for what the request is, and not for how the shard is."""
    return {
        shard: outcome
        for shard, outcome in found.items()
        if isinstance(outcome, CallAnswer)
        and outcome.status not in _LATER
        and HTTPStatus.BAD_REQUEST <= outcome.status < HTTPStatus.INTERNAL_SERVER_ERROR
    }


def _refused(raw: bytes, outcome: Outcome) -> Document:
    """An entry that was not done, as a poll tells of it."""
    entry = _entry(raw)
    offset = entry.offset if entry.queue_offset is None else entry.queue_offset
    found: Document = {"topic": entry.topic, "queue_id": entry.queue_id, "offset": offset}
    return {**found, **reason_of(outcome)}

"""Bodies that name things of several shards, in parts, and the results of the parts as those of the
whole. Pure: the parts are asked for by `api.relay.split`, and by `api.relay.consuming`.

A part is the same body with what is of one shard. Each entry has one result, in the order of the
request, whatever became of the other parts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from app.api.aims.across import Document
from app.api.bodies.entry_counting import check_batch_count, check_events_count
from app.api.formats.decoding import DECODE_FAULTS, check_count
from app.api.formats.media import BatchKind

Raws = dict[str, msgspec.Raw]
_decode_members: Final = msgspec.json.Decoder(Raws).decode
_decode_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode: Final = msgspec.json.encode


class Part(NamedTuple):
    """What of a body is of one shard."""

    body: bytes
    places: list[int]
    """Of its entries in the whole."""
    entries: list[tuple[str, bytes]]
    """The member of each, and what it says."""


def parts_of(
    body: bytes, lists: Sequence[str], shard_of: Callable[[bytes], str]
) -> dict[str, Part]:
    """By shards; of a body that is not understood, nothing. `lists` are the members that have the
    entries, in the order of their results; `shard_of` is given an entry in JSON."""
    try:
        members = _decode_members(body)
        entries = [
            (name, bytes(raw))
            for name in lists
            if name in members
            for raw in _decode_list(members[name])
        ]
        shards = [shard_of(raw) for _, raw in entries]
    except DECODE_FAULTS:
        return {}
    rest = {name: raw for name, raw in members.items() if name not in lists}
    found: dict[str, list[int]] = {}
    for place, shard in enumerate(shards):
        found.setdefault(shard, []).append(place)
    parts: dict[str, Part] = {}
    for shard, places in found.items():
        chosen: dict[str, list[msgspec.Raw]] = {}
        for name, raw in (entries[place] for place in places):
            chosen.setdefault(name, []).append(msgspec.Raw(raw))
        parts[shard] = Part(
            _encode({**rest, **chosen}), places, [entries[place] for place in places]
        )
    return parts


def entries_in(kind: BatchKind, body: bytes, count_max: int) -> list[bytes]:
    """The messages of a batch, one after the other, as they stand there. Raises `DECODE_FAULTS`, or
    `BatchTooLarge`."""
    if kind == "ndjson":
        if body.count(b"\n") > count_max:
            check_count(sum(1 for line in body.split(b"\n") if line.strip()), count_max)
        return [line for line in body.split(b"\n") if line.strip()]
    if kind == "events":
        check_events_count(body, count_max)
        return [bytes(raw) for raw in _decode_list(body)]
    check_batch_count(body, count_max)
    return [bytes(raw) for raw in _decode_list(_decode_members(body)["messages"])]


def parts_of_batch(
    kind: BatchKind, body: bytes, count_max: int, shard_of: Callable[[bytes], str]
) -> dict[str, Part]:
    """As `parts_of`, of messages. Raises as `entries_in`."""
    if kind == "json":
        check_batch_count(body, count_max)
        return parts_of(body, ("messages",), shard_of)
    entries = entries_in(kind, body, count_max)
    places: dict[str, list[int]] = {}
    for place, raw in enumerate(entries):
        places.setdefault(shard_of(raw), []).append(place)
    parts: dict[str, Part] = {}
    for shard, own in places.items():
        chosen = [entries[place] for place in own]
        whole = b"\n".join(chosen) if kind == "ndjson" else b"[%b]" % b",".join(chosen)
        parts[shard] = Part(whole, own, [("messages", raw) for raw in chosen])
    return parts


def results_of(parts: Mapping[str, Part], results: Mapping[str, Sequence[Document]]) -> Document:
    """The results of all parts in the order of the request, and how many are well."""
    whole: dict[int, Document] = {}
    for shard, part in parts.items():
        for number, (place, result) in enumerate(zip(part.places, results[shard], strict=True)):
            whole[place] = _renumbered(result, number, place)
    found = [whole[place] for place in sorted(whole)]
    succeeded = sum("error" not in result for result in found)
    return {"results": found, "succeeded": succeeded, "failed": len(found) - succeeded}


def _renumbered(result: Document, number: int, place: int) -> Document:
    """With its place in the whole, where it says one."""
    found = dict(result)
    if "index" in found:
        found["index"] = place
    error = found.get("error")
    if isinstance(error, dict):
        errors = cast("list[Document]", error.get("errors") or [])
        if errors:
            moved = [_moved(each, number, place) for each in errors]
            if "detail" in error and error["detail"] == errors[0].get("detail"):
                error = {**error, "detail": moved[0]["detail"]}
            found["error"] = {**error, "errors": moved}
    return found


def _moved(error: Document, number: int, place: int) -> Document:
    """With a pointer into the whole. One to the entry itself says its number in words, too."""
    pointer, start = error.get("pointer"), f"/messages/{number}"
    if not isinstance(pointer, str) or not f"{pointer}/".startswith(start + "/"):
        return error
    found = {**error, "pointer": f"/messages/{place}{pointer.removeprefix(start)}"}
    detail, words = error.get("detail"), f"entry {number} "
    if pointer == start and isinstance(detail, str) and detail.startswith(words):
        found["detail"] = f"entry {place} {detail.removeprefix(words)}"
    return found

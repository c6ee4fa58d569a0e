"""Bodies that name things of several shards, in parts, and the results of the parts as those of the
whole. Pure.

A part is the same body with what is of one shard. Each entry has one result, in the order of the
request, whatever became of the other parts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from app.api.aims.across import Document
from app.api.formats.decoding import DECODE_FAULTS

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
            found["error"] = {**error, "errors": [_moved(each, number, place) for each in errors]}
    return found


def _moved(error: Document, number: int, place: int) -> Document:
    """With a pointer into the whole."""
    pointer, start = error.get("pointer"), f"/messages/{number}"
    if isinstance(pointer, str) and f"{pointer}/".startswith(start + "/"):
        return {**error, "pointer": f"/messages/{place}{pointer.removeprefix(start)}"}
    return error

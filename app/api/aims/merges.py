"""One document of those of several shards. Pure.

What is of a queue is taken from the shard that has it: other nodes know nothing of it. Figures are
added. What one shard does not know is not known of the whole.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec

from app.api.aims.across import Document, Documents, Owner
from app.api.formats.decoding import DECODE_FAULTS

_NameOf = Callable[[Document], str]

_STATES: Final = ("running", "failed", "cancelled", "succeeded")
"""Of an operation: the first that a part has is that of the whole."""
_LEASE: Final = "lease"
_SERIES_TIMES: Final = frozenset({"start_ms", "step_ms"})


def topic_statistics(documents: Documents, owner: Owner) -> Document:
    """Queues by their shards; figures of all."""
    parts = list(documents.values())
    queues = _owned(documents, owner, "queues", lambda part: _text(part, "topic"))
    return {
        **_figures(parts),
        "queues": queues,
        "depth": sum(_numbers(queues, "depth")),
        "put_latency_ms": _latency([_inner(part, "put_latency_ms") for part in parts]),
    }


def group_statistics(documents: Documents, owner: Owner) -> Document:
    """Figures of all, also of each topic."""
    del owner
    parts = list(documents.values())
    topics = [_figures(rows) for _, rows in _by_topic(parts)]
    return {**_figures(parts), "topics": topics}


def lag(documents: Documents, owner: Owner) -> Document:
    """Queues by their shards, and their sums. With a queue of which nothing is told, how many are
    ready is not known."""
    topics: list[Document] = []
    for name, rows in _by_topic(documents.values()):
        held = {
            shard: found
            for shard, document in documents.items()
            for found in rows_of(document, "topics")
            if found["topic"] == name
        }
        queues = _owned(held, owner, "queues", lambda part: _text(part, "topic"))
        asked = {row["queue_id"] for each in rows for row in rows_of(each, "queues")}
        topics.append(
            {
                **_added(rows),
                "queues": queues,
                "ready": _sum_known(queues, "ready") if len(queues) == len(asked) else None,
                "oldest_ms": _least(rows, "oldest_ms"),
            }
        )
    parts = list(documents.values())
    kinds = _kinds(parts)
    return {
        **_added(parts),
        "ready": _sum_known(topics, "ready"),
        "oldest_ms": _least(topics, "oldest_ms"),
        "topics": topics,
        "subscriptions": [kinds[name] for name in sorted(kinds)],
    }


def begun_elsewhere(documents: Documents) -> dict[str, dict[str, bool]]:
    """By shards, topics that the group has not begun there and has in another, and whether it
    leases them. A lone node tells of all queues of a topic: of those that are read by offset, that
    they are not begun."""
    kinds = _kinds(documents.values())
    leased = {
        name: name in kinds and kinds[name]["consumption"] == _LEASE
        for document in documents.values()
        for name in _begun(document)
    }
    found: dict[str, dict[str, bool]] = {}
    for shard, document in documents.items():
        told = {_text(row, "topic") for row in rows_of(document, "topics")}
        lacking = leased.keys() - _begun(document)
        asked = {name: leased[name] for name in sorted(lacking) if leased[name] or name not in told}
        if asked:
            found[shard] = asked
    return found


def _begun(document: Document) -> set[str]:
    return {
        _text(row, "topic")
        for row in rows_of(document, "topics")
        if _numbers(rows_of(row, "queues"), "committed_offset")
    }


def _kinds(parts: Iterable[Document]) -> dict[str, Document]:
    """How the group consumes each topic: as one shard says where others have not been used."""
    found: dict[str, Document] = {}
    for part in parts:
        for row in rows_of(part, "subscriptions"):
            name = _text(row, "topic")
            if name not in found or found[name]["consumption"] is None:
                found[name] = row
    return found


def offsets(documents: Documents, owner: Owner) -> Document:
    """Of one topic, by the shards of its queues."""
    rows = _owned(documents, owner, "offsets", lambda part: _text(part, "topic"))
    return {**_first(documents), "offsets": rows}


def offsets_of_group(documents: Documents, owner: Owner) -> Document:
    """Of all topics, each row with its own."""
    rows = [
        row
        for shard, document in documents.items()
        for row in rows_of(document, "offsets")
        if owner(_text(row, "topic"), cast("int", row["queue_id"])) == shard
    ]
    rows.sort(key=_of_queue)
    return {**_first(documents), "offsets": rows}


def offsets_of_topics(documents: Documents, owner: Owner) -> Document:
    """Of several topics at a point."""
    return {**_first(documents), "topics": _topics(documents, owner, "offsets")}


def positions(documents: Documents, owner: Owner) -> Document:
    """Of several topics, with one state of all shards."""
    states = {shard: _text(document, "state") for shard, document in documents.items()}
    topics = _topics(documents, owner, "queues")
    return {**_first(documents), "topics": topics, "state": written_states(states)}


def resets(documents: Documents) -> Document:
    """Rows of all, in the order of topics and queues; the newest generation of the members."""
    rows = _joined(documents, "offsets")["offsets"]
    missing = {name for each in documents.values() for name in _names(each, "missing_topics")}
    return {
        **_first(documents),
        "generation": max(_numbers(documents.values(), "generation")),
        "offsets": sorted(cast("list[Document]", rows), key=_of_queue),
        "missing_topics": sorted(missing),
    }


def committed(documents: Documents) -> Document:
    """What all shards have committed in a topic, or would forget; nothing when they have forgotten
    it."""
    first = _first(documents)
    if not first:
        return {}
    found = _joined(documents, "offsets", "effects")
    rows = cast("list[Document]", found["offsets"])
    rows.sort(key=lambda row: cast("int", row["queue_id"]))
    return {**first, **found}


def any_of(documents: Documents) -> Document:
    """What one shard says for all: it alone has the thing."""
    return _first(documents)


def figures_of_change(documents: Documents) -> Document:
    """Figures added."""
    return _added(list(documents.values()))


def dead_letters(documents: Documents, owner: Owner) -> Document:
    """How many all shards have."""
    del owner
    parts = list(documents.values())
    return {**_added(parts), "oldest_ms": _least(parts, "oldest_ms")}


def producer(documents: Documents, owner: Owner) -> Document:
    """It goes on in the highest epoch, and above the highest that one has closed. Sequences of an
    older epoch, in a shard where it has sent nothing in the newest, begin anew."""
    del owner
    parts = list(documents.values())
    epoch = max(_numbers(parts, "epoch"), default=None)
    rows = [row for part in parts if part["epoch"] == epoch for row in rows_of(part, "sequences")]
    rows.sort(key=lambda row: (_text(row, "topic"), row["queue_id"] is not None, row["queue_id"]))
    return {
        **_first(documents),
        "epoch": epoch,
        "sealed_epoch": max(_numbers(parts, "sealed_epoch"), default=None),
        "sequences": rows,
    }


def work(documents: Documents) -> Document:
    """One operation, of which each shard does a part."""
    parts = list(documents.values())
    states = [_text(part, "state") for part in parts]
    ends = _numbers(parts, "ended_ms")
    return {
        **_first(documents),
        **{name: sum(_numbers(parts, name)) for name in ("total", "done", "skipped")},
        "state": next(each for each in _STATES if each in states),
        "started_ms": _least(parts, "started_ms"),
        "ended_ms": max(ends) if len(ends) == len(parts) else None,
        "problem": next((part["problem"] for part in parts if part["problem"]), None),
    }


def operation(documents: Documents, owner: Owner) -> Document:
    """As `work`."""
    del owner
    return work(documents)


def operations(documents: Documents, owner: Owner) -> Document:
    """Those of all shards, the newest first."""
    del owner
    parts: dict[str, dict[str, Document]] = {}
    for shard, document in documents.items():
        for row in rows_of(document, "operations"):
            parts.setdefault(_text(row, "operation_id"), {})[shard] = row
    found = [work(each) for each in parts.values()]
    found.sort(key=lambda row: cast("int", row["started_ms"]), reverse=True)
    return {"operations": found}


def client(documents: Documents, owner: Owner) -> Document:
    """What a client does at each node."""
    del owner
    return {**_first(documents), **_joined(documents, "consumes", "produces")}


def parked(documents: Documents, owner: Owner) -> Document:
    """Blocked keys of all shards."""
    del owner
    return {**_first(documents), **_joined(documents, "parked")}


def written_states(states: Mapping[str, str]) -> str:
    """The states of shards as one, which clients give back."""
    return base64.urlsafe_b64encode(msgspec.json.encode(states)).decode("ascii")


def read_states(text: str) -> dict[str, str]:
    """States by shards; of what is none, none."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=dict[str, str])
    except (ValueError, *DECODE_FAULTS):
        return {}


# --- parts of documents


def _first(documents: Documents) -> Document:
    return next(iter(documents.values()))


def rows_of(document: Document, name: str) -> list[Document]:
    """A member that is a list of objects."""
    return cast("list[Document]", document[name])


def _inner(document: Document, name: str) -> Document:
    return cast("Document", document[name])


def _text(document: Document, name: str) -> str:
    return cast("str", document[name])


def _numbers(rows: Iterable[Document], name: str) -> list[int]:
    return [cast("int", row[name]) for row in rows if row[name] is not None]


def _names(document: Document, name: str) -> list[str]:
    return cast("list[str]", document[name])


def _of_queue(row: Document) -> tuple[str, int]:
    return _text(row, "topic"), cast("int", row["queue_id"])


def _least(rows: Iterable[Document], name: str) -> int | None:
    return min(_numbers(rows, name), default=None)


def _sum_known(rows: Sequence[Document], name: str) -> int | None:
    numbers = _numbers(rows, name)
    return sum(numbers) if len(numbers) == len(rows) else None


def _owned(documents: Documents, owner: Owner, name: str, topic_of: _NameOf) -> list[Document]:
    """Rows of queues from the shards that have them, by their numbers."""
    rows = [
        row
        for shard, document in documents.items()
        for row in rows_of(document, name)
        if owner(topic_of(document), cast("int", row["queue_id"])) == shard
    ]
    return sorted(rows, key=lambda row: cast("int", row["queue_id"]))


def _topics(documents: Documents, owner: Owner, name: str) -> list[Document]:
    """The topics of the first document, with the rows of each from the shards that have them."""
    topics: list[Document] = []
    for topic in rows_of(_first(documents), "topics"):
        held = {
            shard: each
            for shard, document in documents.items()
            for each in rows_of(document, "topics")
            if each["topic"] == topic["topic"]
        }
        topics.append({**topic, name: _owned(held, owner, name, lambda part: _text(part, "topic"))})
    return topics


def _by_topic(documents: Iterable[Document]) -> list[tuple[str, list[Document]]]:
    found: dict[str, list[Document]] = {}
    for document in documents:
        for row in rows_of(document, "topics"):
            found.setdefault(_text(row, "topic"), []).append(row)
    return sorted(found.items())


def _joined(documents: Documents, *names: str) -> Document:
    return {
        name: [row for each in documents.values() for row in rows_of(each, name)] for name in names
    }


def _figures(parts: Sequence[Document]) -> Document:
    """Counters, rates and series added; since the first that began to count."""
    found: Document = {**_added(parts), "since_ms": _least(parts, "since_ms")}
    if "series" in parts[0]:
        found["series"] = _series([_inner(part, "series") for part in parts])
    return found


def _added(values: Sequence[Document]) -> Document:
    return cast("Document", _sum(values))


def _sum(values: Sequence[object]) -> object:
    """Numbers added, in objects member by member; of all else the first."""
    first = values[0]
    if isinstance(first, dict):
        parts = cast("Sequence[Document]", values)
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: _sum([part[name] for part in parts if name in part]) for name in names}
    numbers = [each for each in values if isinstance(each, int | float)]
    if numbers and not isinstance(numbers[0], bool):
        total = sum(numbers)
        return round(total, 3) if isinstance(total, float) else total
    return first


def _latency(parts: Sequence[Document]) -> Document:
    """Bounds under which half, and 99 of 100, of all are."""
    buckets = cast("dict[str, int]", _sum([part["buckets"] for part in parts]))
    longest = max(cast("float", part["max"]) for part in parts)
    found: Document = {"max": longest, "buckets": buckets}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        found[name] = _bound(buckets, share, longest)
    return found


def _bound(buckets: Mapping[str, int], share: float, longest: float) -> float | None:
    total = buckets["+Inf"]
    if not total:
        return None
    for text, count in buckets.items():
        if count >= share * total and text != "+Inf":
            return min(float(text), longest)
    return longest


def _series(parts: Sequence[Document]) -> Document:
    """Steps of the same time added, in the steps of the newest."""
    newest = max(parts, key=lambda part: cast("int", part["start_ms"]))
    start_ms, step_ms = (cast("int", newest[name]) for name in ("start_ms", "step_ms"))
    found: Document = dict(newest)
    for name in newest.keys() - _SERIES_TIMES:
        sums = [0] * len(cast("list[int]", newest[name]))
        for part in parts:
            skipped = (start_ms - cast("int", part["start_ms"])) // step_ms
            for step, count in enumerate(cast("list[int]", part[name])[skipped:]):
                sums[step] += count
        found[name] = sums
    return found

"""One request for each value of each place of each operation: in path, query, header and body.

Each has one value that may be wrong in a request that is right else, by the document's own example
of a body, so that the value is looked at and not something before it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from typing_extensions import override

from tests.support.bounds.values import Json, Place, Schemas, Value, values_of

JSON_KINDS: Final = ("application/json", "application/vnd.curlew+json", "application/x-ndjson")
"""Media types of bodies that are walked; merge patches have the same schemas."""

RIGHT: Final = "nothing"
"""What is wrong with the first request of each operation."""
NEVER_TAKEN: Final = frozenset(
    {
        *("elect_replica", "hand_over_shard", "remove_replica", "reset_replica"),
        *("drain_shard", "undo_drain"),
        *("release_parked", "reply_to_request", "request_reply"),
    }
)
"""Where nothing is parked, nobody waits for a reply, or gives one, and no other node is there."""
LIVE: Final = (
    *("handle", "recall_handle", "transaction_id", "message_id", "correlation_id"),
    *("operation_id", "key_id", "generation"),
)
"""Names in paths of things that have to be made before they can be named."""
NAMES: Final[Mapping[str, str]] = {
    "topic": "orders",
    "group": "billing",
    "queue": "0",
    "client_id": "m1",
    "name": "first",
    "namespace": "shop",
    "producer": "loader",
    "producer_group": "payers",
}
_CHANGED: Final = {"topic": "changed", "group": "changed", "name": "changed", "namespace": "gone"}
"""What is named instead where the thing itself is changed or deleted."""
_CHANGES_ALL: Final = ("put_", "patch_", "delete_")
_GROUPS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("put_member", "delete_member", "poll_queues"), "readers"),
    **dict.fromkeys(("lock_queues", "unlock_queues"), "lockers"),
    **dict.fromkeys(
        ("commit_group_offsets", "delete_group_offsets", "reset_group_offsets"), "committers"
    ),
    **dict.fromkeys(("receive_messages", "stream_group"), "free"),
}
"""Groups of operations that go with no other: whose members read queues, or lock them, that are
committed by nobody, and that are read with any filter. Of others the messages are leased."""
_QUERY: Final[Mapping[str, str]] = {
    "stream_topic": "duration=1ms&at=earliest&max_messages=1",
    "stream_group": "duration=1ms",
    "pull_messages": "offset=0&max_messages=1",
    "get_topic_offsets": "at=latest",
    "get_offsets_of_topics": "topics=orders&at=latest",
    "get_positions": "topics=orders",
    "request_reply": "wait=0.01",
    "get_routes": "topics=orders",
    "get_delivery": "group=billing",
    "patch_config": "dry_run=true",
}
_BODIES: Final[Mapping[str, Json]] = {
    "put_schedule": {"cron": "0 3 * * *", "topic": "orders", "message": {"text": "x"}},
    "redrive_dead_letters": {"all": True},
    "seal_producer": {"producer": "loader", "epoch": 1, "messages": 1},
    "reply_to_request": {"text": "x"},
    "lock_queues": {
        "client_id": "m1",
        "generation": "{generation}",
        "queues": [{"topic": "orders", "queue_id": 0}],
    },
}
"""Bodies in the place of examples that are of another moment."""
_WITHOUT: Final = {"wait": 0, "rate_per_s": 1000}
"""Members of examples that would make a request wait."""
_WAITS: Final = frozenset({"wait", "duration", "timeout", "Prefer", "MQ-Timeout", "rate_per_s"})
_OF_ALL: Final = frozenset({"MQ-Namespace", "MQ-Forward"})
"""Headers that the gateway takes out of every request; they are walked with one operation."""
_RIVALS: Final = (
    {"body", "text", "body_base64"},
    {"delay", "delay_ms", "deliver_at_ms"},
    {"all", "offsets", "message_ids", "topic", "reason", "from_ms", "until_ms", "filter"},
    {"nacks", "extends", "dead_letters", "releases", "sends"},
)
"""Of these one is given."""


_FREE: Final = frozenset({"tag", "keys", "sharding_key", "unique_id", "attempt_id"})
"""Texts of which any word is taken that is not too long."""
_WAYS: Final[Mapping[str, Sequence[str]]] = {
    "send_message": ("delay=2h", "transaction=prepare&producer_group=payers", "idempotency_key={n}")
}
"""Other ways to do the same, on which the texts of a body are walked once more."""


class Request(NamedTuple):
    """A request with one value that may be wrong."""

    operation_id: str
    where: str
    method: str
    target: str
    """Path and query; live things stand in it as `{handle}`."""
    headers: Mapping[str, bytes]
    body: bytes | None
    must_be_refused: bool
    """The document says that the value is beyond a bound."""
    must_be_taken: bool
    """Nothing is wrong with it."""

    @override
    def __str__(self) -> str:
        return f"{self.method} {self.target[:150]} ({self.where}) {(self.body or b'')[:150]!r}"


def all_requests(document: Json) -> Iterator[Request]:
    """All requests, operation by operation, each once."""
    schemas = Schemas(document)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            walk = _Walk(schemas, method.upper(), path, operation)
            seen: set[tuple[str, str, bytes | None]] = set()
            for request in walk.requests():
                asked = (request.target, repr(request.headers), request.body)
                if asked not in seen:
                    seen.add(asked)
                    yield request


class _Walk:
    """The requests of one operation."""

    def __init__(self, schemas: Schemas, method: str, path: str, operation: Json) -> None:
        self._schemas = schemas
        self._method = method
        self._path = path
        self._operation = operation
        self._id: str = operation["operationId"]
        self._names = self._base_names()
        content = operation.get("requestBody", {}).get("content", {})
        self._kinds = [kind for kind in JSON_KINDS if kind in content]
        self._content = content

    def requests(self) -> Iterator[Request]:
        """One that is right, and then at every place of it."""
        yield self._request(RIGHT, {}, is_right=self._id not in NEVER_TAKEN)
        for parameter in self._operation["parameters"]:
            if parameter["name"] in _OF_ALL and self._id != "list_topics":
                continue
            for schema in self._schemas.plain(parameter["schema"]):
                for value in values_of(schema):
                    text = _text_of(value.value)
                    if parameter["name"] not in _WAITS or not _would_wait(text):
                        yield from self._with_parameter(parameter, text, value)
        for kind in self._kinds:
            yield from self._with_bodies(kind)

    def _with_parameter(self, parameter: Json, text: str, value: Value) -> Iterator[Request]:
        name, is_beyond = parameter["name"], value.is_beyond and parameter["in"] != "header"
        written = quote(text.encode("utf-8", "surrogatepass"), safe="")
        match parameter["in"]:
            case "path":
                if written not in ("", ".", ".."):
                    yield self._request(f"path {name}", {name: written}, beyond=is_beyond)
            case "query":
                yield self._request(f"query {name}", {}, f"{name}={written}", beyond=is_beyond)
            case "header":
                raw = text.encode("utf-8", "surrogatepass").replace(b"\r", b"").replace(b"\n", b"")
                yield self._request(f"header {name}", {}, "", {name: raw.strip()})

    def _with_bodies(self, kind: str) -> Iterator[Request]:
        schema = self._content[kind]["schema"]
        if kind == "application/x-ndjson":
            schema = {"$ref": "#/components/schemas/BatchEntry"}
        for place in self._schemas.places(schema):
            for number, value in enumerate(values_of(place.schema)):
                if _WAITS.intersection(map(str, place.way)) and _would_wait(_text_of(value.value)):
                    continue
                body = _written(self._placed(self._base(kind), schema, place, value.value))
                is_free = self._is_free(place)
                is_word = isinstance(value.value, str) and value.value.strip("a") == ""
                ways = _WAYS.get(self._id, ()) if place.schema.get("type") == "string" else ()
                for way in ("", *ways):
                    yield self._request(
                        f"body {place}",
                        {},
                        way.replace("{n}", f"{place}-{number}".replace("/", "-")),
                        {"Content-Type": kind.encode()},
                        body,
                        beyond=value.is_beyond,
                        is_right=bool(is_free and is_word and value.value and not value.is_beyond),
                    )

    def _is_free(self, place: Place) -> bool:
        """Whether any word is taken there, up to the bound that the document names."""
        is_text = bool(_FREE.intersection(map(str, place.way))) and "maxLength" in place.schema
        return is_text and self._id not in NEVER_TAKEN and "settles" not in place.way

    def _base(self, kind: str) -> Any:
        """A body that is right: the document's last example, unless it is of another moment."""
        if kind == "application/x-ndjson":
            return {"text": "x"}
        if self._id in _BODIES:
            return _BODIES[self._id]
        examples = [each["value"] for each in self._content[kind].get("examples", {}).values()]
        return _rewritten(examples[-1])

    def _placed(self, base: Any, schema: Json, place: Place, value: Any) -> Any:
        """The base with the value at the place, and what is needed around it."""
        if not place.way:
            return value
        body = here = deepcopy(base)
        for step, following in pairwise(place.way):
            schema = self._inner(schema, step)
            _make_way(here, step)
            kind = list if isinstance(following, int) else dict
            if isinstance(step, int):
                if not here or not isinstance(here[0], kind):
                    here[:] = [self._around(schema, following)]
            elif not isinstance(here.get(step), kind):
                here[step] = self._around(schema, following)
            here = here[step]
        last = place.way[-1]
        _make_way(here, last)
        if isinstance(last, int):
            here[:] = [value, *here[1:]]
        else:
            here[last] = value
        return body

    def _around(self, schema: Json, following: str | int) -> Any:
        if isinstance(following, int):
            return []
        kinds = [each for each in self._schemas.plain(schema) if each.get("type") == "object"]
        right = [each for each in kinds if following in each.get("properties", {})] or kinds
        return _rewritten(self._schemas.least(right[0]))

    def _inner(self, schema: Json, step: str | int) -> Json:
        for each in self._schemas.plain(schema):
            if isinstance(step, int) and isinstance(each.get("items"), dict):
                return dict(each["items"])
            if step in each.get("properties", {}):
                return dict(each["properties"][step])
            if isinstance(each.get("additionalProperties"), dict):
                return dict(each["additionalProperties"])
        raise AssertionError((self._id, step))

    def _request(
        self,
        where: str,
        names: Mapping[str, str],
        query: str = "",
        headers: Mapping[str, bytes] = {},
        body: bytes | None = None,
        *,
        beyond: bool = False,
        is_right: bool = False,
    ) -> Request:
        if body is None and self._kinds:
            headers = {"Content-Type": self._kinds[0].encode(), **headers}
            body = _written(self._base(self._kinds[0]))
        path = self._path
        for name, text in {**self._names, **names}.items():
            path = path.replace("{" + name + "}", text)
        asked = query.partition("=")[0]
        rest = [
            each
            for each in _QUERY.get(self._id, "").split("&")
            if each and each.partition("=")[0] != asked
        ]
        target = "&".join([*rest, *([query] if query else [])])
        return Request(
            self._id,
            where,
            self._method,
            f"{path}?{target}" if target else path,
            headers,
            body,
            must_be_refused=beyond,
            must_be_taken=is_right,
        )

    def _base_names(self) -> dict[str, str]:
        own = self._path.rpartition("{")[2].partition("}")[0]
        names = dict(NAMES)
        if self._path.endswith("}") and self._id.startswith(_CHANGES_ALL) and own in _CHANGED:
            names[own] = _CHANGED[own]
        names["group"] = _GROUPS.get(self._id, names["group"])
        return names


def _make_way(here: Any, step: str | int) -> None:
    """Take out what does not go with a member."""
    if isinstance(step, str):
        for rivals in _RIVALS:
            for rival in rivals - {step} if step in rivals else ():
                here.pop(rival, None)
        here.pop(step.removesuffix("_ms") if step.endswith("_ms") else f"{step}_ms", None)


def _rewritten(value: Any, name: str = "") -> Any:
    """An example with live things in it, and nothing to wait for."""
    if isinstance(value, dict):
        return {key: _rewritten(_WITHOUT.get(key, each), key) for key, each in value.items()}
    if isinstance(value, list):
        return [_rewritten(each, name) for each in value]
    if name in ("acks", "receipt_handles", "receipt_handle", "releases"):
        return "{handle}"
    if name == "topic":
        return "orders"
    return 0 if name in ("offset", "queue_offset", "generation") else value


def _written(body: Any) -> bytes:
    """JSON, with what Python alone takes for it, such as NaN."""
    return json.dumps(body).encode()


def _text_of(value: Any) -> str:
    """As it stands in a parameter."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)


def _would_wait(text: str) -> bool:
    """Whether a server may wait for so long when it takes the text for a time."""
    try:
        return 0.01 < float(text) < 4_000
    except ValueError:
        return False

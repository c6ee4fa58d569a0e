"""Every text that a client may write has a bound in the schema, or says which limit bounds it."""

import re
from typing import Any

import msgspec
import pytest

from app.api.formats import decoding, wire
from app.api.formats.decoding import BodyDecoder
from app.api.http.errors import InvalidBody
from app.domain.limits import ATTEMPT_ID_CHARS_MAX, ENTRY_ID_CHARS_MAX, FIXED_LIMITS, Limits

Json = dict[str, Any]
KNOWN = {*FIXED_LIMITS, *Limits.__dataclass_fields__}
REQUESTS = [
    *(wire.Envelope, wire.BatchEntry, wire.SendEntry, wire.BatchRequest, wire.ReceiveBody),
    *(wire.NackEntry, wire.DeadLetterEntry, wire.ExtendEntry, wire.SettleBody, wire.AckBody),
    *(wire.NackBody, wire.DeadLetterBody, wire.ExtendBody, wire.ReceiptChange),
]


def unbounded(schema: Any, place: str, around: str = "") -> list[str]:
    """Where texts stand in a schema that have neither a bound nor the name of one."""
    if isinstance(schema, list):
        return [fault for each in schema for fault in unbounded(each, place, around)]
    if not isinstance(schema, dict):
        return []
    said = f"{around} {schema.get('description', '')}"
    if schema.get("type") == "string":
        is_named = any(name in KNOWN for name in re.findall(r"`(\w+)`", said))
        is_bounded = "maxLength" in schema or "enum" in schema or "const" in schema
        is_bytes = schema.get("contentEncoding") == "base64"
        return [] if is_bounded or is_named or is_bytes else [place]
    faults: list[str] = []
    for name, each in schema.items():
        inner = said if name in {"anyOf", "items", "additionalProperties"} else ""
        faults += unbounded(each, f"{place}/{name}", inner)
    return faults


def test_every_request_struct_is_looked_at() -> None:
    kinds = {each.kind for each in vars(decoding).values() if isinstance(each, BodyDecoder)}
    assert {kind for kind in kinds if not kind.__name__.startswith("_")} <= set(REQUESTS)


@pytest.mark.parametrize("kind", REQUESTS, ids=[each.__name__ for each in REQUESTS])
def test_every_text_of_a_request_has_a_bound(kind: type) -> None:
    _, schemas = msgspec.json.schema_components([kind])
    assert unbounded(schemas, "") == []


def test_a_text_without_a_bound_is_noticed() -> None:
    class Careless(msgspec.Struct):
        name: str
        names: list[str | None] = []
        texts: dict[str, str] = {}

    _, schemas = msgspec.json.schema_components([Careless])
    assert len(unbounded(schemas, "")) == 3


@pytest.mark.parametrize("over", [-1, 0, 1, 9 * ENTRY_ID_CHARS_MAX])
def test_texts_that_nothing_else_bounds_are_bounded_where_they_are_read(over: int) -> None:
    entry = msgspec.json.encode({"text": "x", "id": "i" * (ENTRY_ID_CHARS_MAX + over)})
    receive = msgspec.json.encode({"attempt_id": "i" * (ATTEMPT_ID_CHARS_MAX + over)})
    for decode, body, name in (
        (decoding.entry_decoder.decode, entry, "id"),
        (decoding.receive_decoder.decode, receive, "attempt_id"),
    ):
        if over <= 0:
            decode(body)
            continue
        with pytest.raises(InvalidBody) as refused:
            decode(body)
        assert refused.value.detail == f"{name} is too long; at most 255 characters are taken"
        assert refused.value.faults[0][0] == f"/{name}"

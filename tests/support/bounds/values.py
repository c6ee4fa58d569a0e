"""Values at, below and beyond what a schema of the OpenAPI document allows. Pure.

A place is walked with all of `values_of` its schema: texts by their lengths and letters, numbers at
their bounds and at those of machine words, arrays and objects empty and beyond their bounds, and
each type in the place of each other.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from typing_extensions import override

from app.domain.limits import FIXED_LIMITS, Limits

Json = dict[str, Any]

LIMITS: Final[Mapping[str, int]] = {
    name: value
    for name, value in {**FIXED_LIMITS, **asdict(Limits())}.items()
    if isinstance(value, int)
}
_UNBOUNDED: Final = 1_000
"""The length that stands for a bound where the document names none: ten times are beyond the
longest request target."""
_BODY_MAX: Final = 1 << 20
"""No text is longer: how large a body may be is another test's (`test_bad_sends`)."""
_TEXTS: Final = (
    *("", "é", "\U0001f600", "\ud800", "\x00", "\x1b[0m\n", "NaN", "-1", "1e999", "../.."),
)
_NUMBERS: Final = (
    *(-(2**63) - 1, -1, 0, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64),
    *(0.5, float("nan")),
)
_OTHERS: Final[tuple[Any, ...]] = (True, None, [], {"a": 1})
_NAMED: Final = re.compile(r"`(\w+)`")


class Place(NamedTuple):
    """Somewhere in a body that has a value: the way to it, and what the document says of it."""

    way: tuple[str | int, ...]
    schema: Json

    @override
    def __str__(self) -> str:
        return "/" + "/".join(map(str, self.way))


class Value(NamedTuple):
    """What is written at a place, and whether the document itself says that it is too much."""

    value: Any
    is_beyond: bool = False


class Schemas:
    """The schemas of a document, references followed."""

    def __init__(self, document: Json) -> None:
        self._named = document["components"]["schemas"]

    def plain(self, schema: Json) -> list[Json]:
        """The alternatives of a schema, none of which is a reference; without null."""
        if "$ref" in schema:
            return self.plain(self._named[schema["$ref"].rpartition("/")[2]])
        if "anyOf" not in schema:
            kinds = schema.get("type")
            of_each = (
                [{**schema, "type": each} for each in kinds] if type(kinds) is list else [schema]
            )
            return [each for each in of_each if each.get("type") != "null"]
        around = {key: schema[key] for key in ("description",) if key in schema}
        return [{**around, **each} for one in schema["anyOf"] for each in self.plain(one)]

    def places(self, schema: Json, way: tuple[str | int, ...] = ()) -> Iterator[Place]:
        """All places in a body of this schema, the body itself included."""
        for each in self.plain(schema):
            yield Place(way, each)
            if len(way) < 8:
                for name, inner in each.get("properties", {}).items():
                    yield from self.places(inner, (*way, name))
                if isinstance(each.get("items"), dict):
                    yield from self.places(each["items"], (*way, 0))
                if isinstance(each.get("additionalProperties"), dict):
                    yield from self.places(each["additionalProperties"], (*way, "n"))

    def least(self, schema: Json) -> Any:
        """The smallest value of a schema: what it requires, and nothing else."""
        first = next(iter(self.plain(schema)), {})
        if "enum" in first:
            return first["enum"][0]
        match first.get("type"):
            case "object":
                names = first.get("required", [])
                return {name: self.least(first["properties"][name]) for name in names}
            case "array":
                return [self.least(first["items"])] if first.get("minItems") else []
            case "integer" | "number":
                return first.get("minimum", 1)
            case "boolean":
                return False
        return "a"


def length_of(schema: Json) -> int | None:
    """How long a text may be, by its schema or by a limit that it names; None: it is not said."""
    if "maxLength" in schema:
        return int(schema["maxLength"])
    named = [
        LIMITS[name] for name in _NAMED.findall(schema.get("description", "")) if name in LIMITS
    ]
    return min(named, default=None)


def values_of(schema: Json) -> Iterator[Value]:
    """With what a place of this schema is walked."""
    kind = schema.get("type")
    yield from map(Value, _OTHERS)
    if kind == "string":
        yield from _texts(schema)
    elif kind in ("integer", "number"):
        yield Value("1")
        yield from _numbers(schema)
    elif kind == "array":
        most = schema.get("maxItems")
        if most is not None and most <= 1_000:
            yield Value(["a"] * (most + 1), is_beyond=True)
    elif kind == "object":
        yield from map(Value, ({"": ""}, {"a" * 70_000: "x"}, {"\x00": "x"}, {"é": "é" * 20_000}))
        yield Value({f"n{number}": "x" for number in range(2_000)})


def _texts(schema: Json) -> Iterator[Value]:
    yield from map(Value, schema.get("enum", ())[-2:])
    yield from map(Value, _TEXTS)
    said = length_of(schema)
    limit = said or _UNBOUNDED
    for length in (limit - 1, limit, limit + 1, 10 * limit):
        if length <= _BODY_MAX:
            is_beyond = "maxLength" in schema and length > limit
            yield Value("a" * length, is_beyond)
            if length in (limit, limit + 1):
                yield Value("漢" * length, is_beyond)


def _numbers(schema: Json) -> Iterator[Value]:
    least, most = schema.get("minimum"), schema.get("maximum")
    numbers = [*_NUMBERS]
    for bound in (least, most):
        if bound is not None:
            numbers += [bound - 1, bound, bound + 1]
    for name in _NAMED.findall(schema.get("description", "")):
        if name in LIMITS:
            numbers += [LIMITS[name] - 1, LIMITS[name], LIMITS[name] + 1]
    for number in dict.fromkeys(numbers):
        is_beyond = (least is not None and number < least) or (most is not None and number > most)
        yield Value(number, is_beyond)

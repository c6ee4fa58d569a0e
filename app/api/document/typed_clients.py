"""What makes the document good for clients that are generated from it. Pure.

It stays true: each change allows what the node does, and says it so that the usual line of code
compiles in languages with types. What comes over the wire is decided elsewhere.
"""

from collections.abc import Iterable
from types import UnionType
from typing import Final, Union, get_args, get_origin

import msgspec
from msgspec import Struct, UnsetType

from app.api.operations.operation import Json

_NULL: Final[Json] = {"type": "null"}

_BESIDE: Final = {
    "PreparedAnswer": "SendAnswer",
    "SendAnswer": "PreparedAnswer",
    "TriedKeyDocument": "IssuedKeyDocument",
    "RedrivePlanDocument": "OperationDocument",
    "CommitAnswer": "CommitPartAnswer",
    "Partly": "CommitAnswer",
}
"""Schemas that answer the same operation as another one: each lists the members of the other as
ones that may be left out, and always are. Without them, code may read only what both have."""


def say_parameters(parameters: Iterable[Json]) -> None:
    """A parameter that may be left out is not null: no URL and no header has a null."""
    for each in parameters:
        schema = each["schema"]
        others = [kind for kind in schema.get("anyOf", ()) if kind != _NULL]
        if len(others) == 1 and len(others) < len(schema["anyOf"]):
            rest = {name: value for name, value in schema.items() if name not in _OF_UNIONS}
            each["schema"] = others[0] | rest
        each["schema"].pop("title", None)


_OF_UNIONS: Final = frozenset({"anyOf", "title"})


def say_what_may_be_missing(structs: Iterable[type[Struct]], schemas: Json) -> None:
    """A member that may be unset is not required; msgspec looks only whether it has a default."""
    for struct in structs:
        unset = {
            field.encode_name
            for field in msgspec.structs.fields(struct)
            if get_origin(field.type) in {Union, UnionType} and UnsetType in get_args(field.type)
        }
        schema = schemas[struct.__name__]
        schema["required"] = [each for each in schema["required"] if each not in unset]


def say_waits(schemas: Json) -> None:
    """A wait is a text wherever it is asked for; a number of seconds is taken as well."""
    for schema in schemas.values():
        wait = schema.get("properties", {}).get("wait")
        if wait is None or "anyOf" not in wait:
            continue
        wait["anyOf"] = [
            {
                "type": "string",
                "maxLength": _longest(wait),
                "examples": ["20s"],
                "description": "a duration, or seconds; a number of seconds is taken as well",
            },
            _NULL,
        ]


def _longest(schema: Json) -> int:
    own = int(schema.get("maxLength", 0))
    return max([own, *(_longest(each) for each in schema.get("anyOf", ()))])


def say_members_of_others(schemas: Json) -> None:
    """Give each schema of `_BESIDE` the members of the other as ones that may be left out."""
    own = {name: dict(schema["properties"]) for name, schema in schemas.items() if name in _NAMED}
    for name, other in _BESIDE.items():
        properties = schemas[name]["properties"]
        for member, described in own[other].items():
            if member not in properties:
                properties[member] = described | {"description": f"Only in a {other}"}


_NAMED: Final = frozenset(_BESIDE) | frozenset(_BESIDE.values())


def say_nulls_as_types(schemas: Json) -> None:
    """A member that may be null has a list of types, and one description. As `anyOf` of the type
    and null, generated Java and Go give all members of one type the description of the first."""
    for schema in schemas.values():
        properties = schema.get("properties", {})
        for name, described in properties.items():
            properties[name] = _with_null_as_type(described)


def _with_null_as_type(schema: Json) -> Json:
    others = [kind for kind in schema.get("anyOf", ()) if kind != _NULL]
    if len(others) != 1 or others[0].keys() & _NOT_FLAT or "type" not in others[0]:
        return schema
    [inner] = others
    said = dict.fromkeys(each.get("description") for each in (schema, inner))
    rest = {name: value for name, value in schema.items() if name not in _OF_UNIONS}
    description = "; ".join(each for each in said if each)
    return {
        **inner,
        **rest,
        "type": [inner["type"], "null"],
        **({"description": description} if description else {}),
    }


_NOT_FLAT: Final = frozenset({"anyOf", "enum", "const", "$ref"})

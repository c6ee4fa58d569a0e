"""What is wrong with a JSON body, said of the body that was sent. Pure.

Two sources: pydantic, which reads it, and the rules of the domain, which know settings and not how
they were written. Pointers of both lead into the body itself (RFC 6901).
"""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Final, get_args

from pydantic import BaseModel, ValidationError

from app.api.http.errors import FieldError, InvalidBody, did_you_mean
from app.domain.durations import format_duration
from app.domain.errors import CurlewError

_NOTHING: Final = object()
_OUR_WORDS: Final = "Value error, "
"""Pydantic puts this before what our own checks say."""


def invalid_body(error: ValidationError, model: type[BaseModel], sent: object) -> InvalidBody:
    """All faults that pydantic found, each with its place in the body.

    Of a field that may be one of several things there is one fault for each; they are one here.
    """
    details: dict[str, list[str]] = {}
    hint = None
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        place = _place(fault["loc"], sent)
        detail = _own_words(fault["msg"])
        if fault["type"] == "extra_forbidden":
            name = str(place[-1])
            detail = f"unknown field {name!r}"
            hint = hint or did_you_mean(name, _fields_at(model, place[:-1]))
        found = details.setdefault(_pointer(place), [])
        if detail not in found:
            found.append(detail)
    faults = [
        FieldError(pointer, _named(pointer, ", or: ".join(found)))
        for pointer, found in details.items()
    ]
    return InvalidBody(faults[0].detail, faults, hint=hint)


def point_into(error: CurlewError, sent: object) -> None:
    """Let the error speak of what was sent: `retention`, where the rule is of `retention_ms`."""
    if error.pointer is None:
        return
    parts = error.pointer.split("/")[1:]
    if _at(sent, parts) is _NOTHING and parts[-1].endswith("_ms"):
        shorter = [*parts[:-1], parts[-1].removesuffix("_ms")]
        if _at(sent, shorter) is not _NOTHING:
            parts = shorter
    error.pointer = _pointer(parts)
    value, low, high = _at(sent, parts), error.fields.get("min"), error.fields.get("max")
    if isinstance(value, str) and isinstance(low, int) and isinstance(high, int):
        error.detail = (
            f"{'.'.join(parts)} is {value}; "
            f"it must be from {format_duration(low)} to {format_duration(high)}"
        )


def shown(value: object) -> str:
    """A value of a body, short enough for an error text."""
    return _short.repr(value)


def _place(location: Sequence[int | str], sent: object) -> list[int | str]:
    """The steps of a location that are in the body; others name kinds of a union. What is missing
    is the last one."""
    place: list[int | str] = []
    at = sent
    for number, part in enumerate(location):
        following = _at(at, [part])
        if following is not _NOTHING:
            place.append(part)
            at = following
        elif number == len(location) - 1 and isinstance(at, Mapping) and _is_name(part):
            place.append(part)
    return place


def _is_name(part: int | str) -> bool:
    """Names of fields are identifiers; names of kinds have brackets or are Python's classes."""
    return isinstance(part, str) and part.isidentifier() and part.islower() and part not in _KINDS


_KINDS: Final = frozenset({"int", "str", "float", "bool", "none", "list", "dict"})


def _at(value: object, parts: Sequence[int | str]) -> object:
    for part in parts:
        if isinstance(value, Mapping):
            value = value.get(part, _NOTHING)
        elif isinstance(value, list) and str(part).isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _NOTHING
    return value


def _fields_at(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Names that are known at a place of the model."""
    for part in place:
        field = model.model_fields.get(str(part))
        inner = None if field is None else _model_in(field.annotation)
        model = inner or model
    return list(model.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model in `Model | None` or `list[Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(each) for each in get_args(annotation))
    return next((each for each in found if each is not None), None)


def _pointer(parts: Sequence[int | str]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _named(pointer: str, detail: str) -> str:
    """The detail with the name of the field, unless it says it."""
    name = pointer.removeprefix("/").replace("/", ".")
    last = name.rpartition(".")[2]
    return detail if not name or last in detail else f"{name}: {detail}"


def _own_words(message: str) -> str:
    if message.startswith(_OUR_WORDS):
        return message.removeprefix(_OUR_WORDS)
    if "recursion limit" in message:
        return "the JSON is nested too deeply"
    return message.replace("Input should be", "it should be").replace(
        "Field required", "it is missing"
    )


_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = 60

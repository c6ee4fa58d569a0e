"""The words that most people write most of the time: a command by its name, values, `--option
value`, `--option=value`, switches. Pure, and quick to import: importing cyclopts takes more than
twice as long as all that a command needs besides.

It never guesses and refuses nothing: for whatever is not plain here, a slip and `--help` included,
`call_of` gives None, and cyclopts decides. So what it does understand it understands as cyclopts
would (`tests/client/command/test_plain_words.py`), and no error is said in two places.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from curlew_client.command.parsing.declared import FLATTENED, App, Parameter, option_name

_INTEGER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_DECIMAL: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")

Convert = Callable[[str], Any]


class _NotPlain(Exception):
    """Cyclopts has to look at it."""


class _Option(NamedTuple):
    path: tuple[str, ...]
    """The parameter, and in a group of options its member."""
    convert: Convert | None
    """None: a switch."""
    is_many: bool


def call_of(app: App, words: Sequence[str]) -> Callable[[], Any] | None:
    """The function of a command with its arguments; None: these words are not plain."""
    rest = list(words)
    while rest and rest[0] in app.commands:
        found = app.commands[rest.pop(0)]
        if not isinstance(found, App):
            return _bound(found, rest)
        app = found
    return None if app.main is None else _bound(app.main, rest)


def _bound(function: Callable[..., Any], words: list[str]) -> Callable[[], Any] | None:
    try:
        return _call(function, words)
    except _NotPlain:
        return None


def _call(function: Any, words: list[str]) -> Callable[[], Any]:
    code = function.__code__
    if code.co_argcount != code.co_posonlyargcount:
        raise _NotPlain
    names = code.co_varnames
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    annotations: Mapping[str, Any] = function.__annotations__
    options: dict[str, _Option] = {}
    for name in names[first:last]:
        options |= _options_of(name, annotations[name])
    given, values = _parted(words, options)
    rest_name = names[last] if code.co_flags & 0x04 else None
    rest = annotations.get(rest_name) if rest_name is not None else None
    arguments = _arguments(values, [annotations[name] for name in names[:first]], rest)
    if len(arguments) < first - len(function.__defaults__ or ()):
        raise _NotPlain
    defaults = function.__kwdefaults__ or {}
    named = dict(_named(given, {name: annotations[name] for name in names[first:last]}))
    if any(name not in named and name not in defaults for name in names[first:last]):
        raise _NotPlain
    return partial(function, *arguments, **named)


def _parted(
    words: list[str], options: Mapping[str, _Option]
) -> tuple[dict[tuple[str, ...], Any], list[str]]:
    """What the options are given, and the values that stand by themselves."""
    given: dict[tuple[str, ...], Any] = {}
    values: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            values.append(word)
            continue
        name, equals, text = word.partition("=")
        option = options.get(name)
        if option is None or (equals and (option.convert is None or not text)):
            raise _NotPlain
        if option.path in given and not option.is_many:
            raise _NotPlain
        if option.convert is None:
            given[option.path] = True
            continue
        value = option.convert(text if equals else _value(rest))
        given[option.path] = (*given.get(option.path, ()), value) if option.is_many else value
    return given, values


def _value(rest: Iterator[str]) -> str:
    text = next(rest, "-")
    if text.startswith("-"):
        raise _NotPlain
    return text


def _arguments(values: list[str], places: list[Any], rest: Any) -> list[Any]:
    if len(values) > len(places) and rest is None:
        raise _NotPlain
    converts = [_convert_of(each) for each in places[: len(values)]]
    if len(values) > len(places):
        converts += [_convert_of(rest)] * (len(values) - len(places))
    return [convert(text) for convert, text in zip(converts, values, strict=True)]


def _named(
    given: Mapping[tuple[str, ...], Any], annotations: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    for name, annotation in annotations.items():
        if (name,) in given:
            yield name, given[name,]
        members = {path[1]: value for path, value in given.items() if path[:-1] == (name,)}
        if members:
            yield name, annotation(**members)


def _options_of(name: str, annotation: Any) -> Iterator[tuple[str, _Option]]:
    """By each of its words."""
    if is_dataclass(annotation) and hasattr(annotation, FLATTENED):
        for field in fields(annotation):
            yield from _option_of((name, field.name), field.type)
    else:
        yield from _option_of((name,), annotation)


def _option_of(path: tuple[str, ...], annotation: Any) -> Iterator[tuple[str, _Option]]:
    kind, parameter = _bare(annotation)
    names: tuple[str, ...] = (f"--{option_name(path[-1])}",)
    if parameter is not None and parameter.name is not None:
        names = (parameter.name,) if isinstance(parameter.name, str) else parameter.name
    is_many = get_origin(kind) is tuple
    if is_many:
        kind = get_args(kind)[0]
    convert = None if kind in {bool, bool | None} else _convert_of(kind)
    for each in names:
        yield each, _Option(path, convert, is_many)


def _bare(annotation: Any) -> tuple[Any, Parameter | None]:
    if get_origin(annotation) is not Annotated:
        return annotation, None
    kind, *more = get_args(annotation)
    return kind, next((each for each in more if isinstance(each, Parameter)), None)


def _convert_of(annotation: Any) -> Convert:
    kind, _ = _bare(annotation)
    origin = get_origin(kind)
    if origin is Literal:
        return partial(_one_of, get_args(kind))
    if origin in {Union, UnionType}:
        kinds = [each for each in get_args(kind) if each is not NoneType]
        if len(kinds) == 1:
            return _convert_of(kinds[0])
    return _CONVERTS.get(kind, _never)


def _one_of(choices: tuple[Any, ...], text: str) -> str:
    if text not in choices:
        raise _NotPlain
    return text


def _integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise _NotPlain
    return int(text)


def _decimal(text: str) -> float:
    if _DECIMAL.fullmatch(text) is None:
        raise _NotPlain
    return float(text)


def _never(_text: str) -> Any:
    raise _NotPlain


_CONVERTS: Final[Mapping[Any, Convert]] = {
    str: str,
    int: _integer,
    float: _decimal,
    Path: Path,
}

"""From words to the call of a function: a command by its name, values, `--option value`,
`--option=value`, `-o value`, `-ovalue`, switches; behind `--` all words are values. Pure.

Numbers such as -3 and a lone - are values. What is wrong is said by `NotSo`, in one sentence.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from curlew_client.command.catalog import options_first
from curlew_client.command.entry import Exit
from curlew_client.command.parsing.declared import App
from curlew_client.command.parsing.signatures import (
    NO,
    REQUIRED,
    Signature,
    Taken,
    is_group,
    signature_of,
)
from curlew_client.command.words import NotSo

_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_HELP: Final = frozenset({"--help", "-h"})

Given = dict[tuple[str, ...], Any]
Command = App | Callable[..., Any]


def call_of(app: App, words: Sequence[str]) -> Callable[[], Any]:
    """The function of a command with its arguments, or what prints its help."""
    found, name, rest = command_of(app, words)
    if _asks_for_help(found, rest):
        return partial(_print_help, found, name, Exit.DONE)
    if not isinstance(found, App):
        return _bound(found, name, rest)
    if rest and not rest[0].startswith("-"):
        from curlew_client.command.parsing.usage import unknown_command

        raise NotSo(unknown_command(rest[0], name, found.commands))
    if found.main is None:
        return partial(_print_help, found, name, Exit.USAGE)
    return _bound(found.main, name, rest)


def command_of(app: App, words: Sequence[str]) -> tuple[Command, str, list[str]]:
    """The command that the words name, its name, and the words behind it."""
    found: Command = app
    name = f"curlew {app.name}"
    rest = list(words)
    while isinstance(found, App) and found.commands:
        words, options = options_first(rest)
        if not words or words[0] not in found.commands:
            return found, name, [*words, *options]
        name = f"{name} {words[0]}"
        found, rest = found.commands[words[0]], [*words[1:], *options]
    if isinstance(found, App) and found.main is not None:
        return found.main, name, rest
    return found, name, rest


def _asks_for_help(found: Command, words: list[str]) -> bool:
    before = words[: words.index("--")] if "--" in words else words
    is_group = isinstance(found, App) and words[:1] == ["help"]
    return is_group or not _HELP.isdisjoint(before)


def _print_help(found: Command, name: str, status: int) -> int:
    from curlew_client.command.parsing.help import help_of

    sys.stdout.write(help_of(found, name))
    return status


def _bound(function: Callable[..., Any], name: str, words: list[str]) -> Callable[[], Any]:
    signature = signature_of(function)
    try:
        given, values = _parted(words, signature)
        arguments = _arguments(values, signature)
        _check_required(signature.options, given)
    except _Unfit as error:
        from curlew_client.command.parsing.help import usage_line

        raise NotSo(f"{error}; usage: {usage_line(signature, name)}") from None
    return partial(function, *arguments, **_named(function, given))


def _check_required(options: list[Taken], given: Given) -> None:
    for option in options:
        if option.default is REQUIRED and option.path not in given:
            raise _Unfit(f"{option.names[0]} is missing")


class _Unfit(Exception):
    """Too few words or too many; the usage says what belongs there."""


def _parted(words: list[str], signature: Signature) -> tuple[Given, list[str]]:
    """What the options are given, and the values that stand by themselves."""
    by_word = {word: option for option in signature.options for word in option.names}
    has_settings = signature.rest is not None and "SETTINGS" in signature.rest.names
    given: Given = {}
    values: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            values += rest
        elif _is_value(word):
            values.append(word)
        else:
            _take(word, rest, by_word, given, has_settings=has_settings)
    return given, values


def _take(
    word: str,
    rest: Iterator[str],
    by_word: Mapping[str, Taken],
    given: Given,
    *,
    has_settings: bool,
) -> None:
    """One option, and its value from the words behind it."""
    name, equals, text = word.partition("=")
    if name not in by_word and word[:2] in by_word:
        name, equals, text = word[:2], "=", word[2:]  # -n5
    option = by_word.get(name)
    if option is None:
        from curlew_client.command.parsing.usage import unknown_option

        raise NotSo(unknown_option(name, list(by_word), takes_settings=has_settings))
    if option.path in given and not option.is_many:
        raise NotSo(f"{name} is given twice")
    if option.is_switch:
        if equals:
            raise NotSo(f"{name} takes no value")
        given[option.path] = not name.startswith(NO)
        return
    if not equals:
        text = _value_behind(name, rest)
    value = _converted(name, option.kind, text)
    given[option.path] = (*given.get(option.path, ()), value) if option.is_many else value


def _is_value(word: str) -> bool:
    return not word.startswith("-") or word == "-" or _DECIMAL.fullmatch(word) is not None


def _value_behind(name: str, rest: Iterator[str]) -> str:
    text = next(rest, None)
    if text is None or not _is_value(text):
        hint = "" if text is None else f"; one that begins with - is written {name}={text}"
        raise NotSo(f"{name} needs a value behind it{hint}")
    return text


def _arguments(values: list[str], signature: Signature) -> list[Any]:
    places = list(signature.places)
    if len(values) > len(places):
        if signature.rest is None:
            raise _Unfit(f"{values[len(places)]!r} is a word too many")
        places += [signature.rest] * (len(values) - len(places))
    for place in places[len(values) :]:
        if place.default is REQUIRED:
            raise _Unfit(f"{place.names[0]} is missing")
    return [
        _converted(place.names[0], place.kind, text)
        for place, text in zip(places, values, strict=False)
    ]


def _named(function: Callable[..., Any], given: Given) -> dict[str, Any]:
    """By the parameters of the function; what a group of options was given is one of them."""
    named: dict[str, Any] = {}
    for path, value in given.items():
        if len(path) == 1:
            named[path[0]] = value
        else:
            named.setdefault(path[0], {})[path[1]] = value
    kinds = function.__annotations__
    return {
        name: kinds[name](**value) if is_group(kinds[name]) else value
        for name, value in named.items()
    }


def _converted(name: str, kind: Any, text: str) -> Any:
    if isinstance(kind, tuple):
        if (choice := text.lower()) in kind:
            return choice
        *others, last = kind
        raise NotSo(f"{name} is {text!r}; it is {', '.join(others)} or {last}")
    if kind is int and _INTEGER.fullmatch(text) is None:
        raise NotSo(f"{name} is {text!r}; it is a whole number")
    if kind is float and _DECIMAL.fullmatch(text) is None:
        raise NotSo(f"{name} is {text!r}; it is a number such as 5 or 0.5")
    return kind(text)

"""The help of a command, from the signature and the docstring of its function. Pure, but for the
width of the terminal.

A docstring is text, then, under `Parameters`, what each parameter is.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent, wrap
from typing import Any, Final

from curlew_client.command.catalog import OPTIONS
from curlew_client.command.parsing.declared import App
from curlew_client.command.parsing.signatures import REQUIRED, Signature, Taken, signature_of

WIDTH_MAX: Final = 100
NAMES_WIDTH_MAX: Final = 28
OF_EVERY_COMMAND: Final = "where"
"""The parameter whose members are the options of every command."""
_PARAMETERS: Final = re.compile(r"(?:^|\n)Parameters\n-+\n")
_KINDS: Final[dict[Any, str]] = {int: "N", float: "NUMBER", Path: "FILE"}

Command = App | Callable[..., Any]
Row = tuple[str, str]


def help_of(command: Command, name: str, width: int | None = None) -> str:
    """All that is said of it; `width` in characters, unless said that of the terminal."""
    width = width or _terminal_width()
    function = command.main if isinstance(command, App) else command
    signature = Signature([], None, []) if function is None else signature_of(function)
    text, meanings = parted(function.__doc__ if function is not None else None)
    lines: list[str] = []
    if isinstance(command, App) and command.commands:
        lines.append(f"Usage: {name} COMMAND …" + (" [options]" if function is not None else ""))
        text = command.help
    else:
        lines.append(f"Usage: {usage_line(signature, name)}")
    for paragraph in text.split("\n\n"):
        lines += ["", *_wrapped(paragraph, width)]
    if isinstance(command, App):
        rows = [(each, first_line(found)) for each, found in sorted(command.commands.items())]
        lines += _section("Commands", rows, width)
    places = [*signature.places, *([signature.rest] if signature.rest else [])]
    shown = [(each.names[0], meaning(each, meanings)) for each in places]
    lines += _section("Arguments", [row for row in shown if row[1]], width)
    own = [each for each in signature.options if each.path[0] != OF_EVERY_COMMAND]
    lines += _section("Options", [(_form(each), meaning(each, meanings)) for each in own], width)
    if len(own) < len(signature.options):
        lines += _section("Options of every command", list(OPTIONS), width)
    return "\n".join(lines) + "\n"


def first_line(command: Command) -> str:
    """What a list of commands says of one."""
    if isinstance(command, App):
        return command.help
    return " ".join(parted(command.__doc__)[0].split("\n\n")[0].split())


def usage_line(signature: Signature, name: str) -> str:
    """How it is written."""
    words = [
        each.names[0] if each.default is REQUIRED else f"[{each.names[0]}]"
        for each in signature.places
    ]
    if signature.rest is not None:
        words.append(f"[{signature.rest.names[0]} …]")
    words += [_form(each, 1) for each in signature.options if each.default is REQUIRED]
    if any(each.default is not REQUIRED for each in signature.options):
        words.append("[options]")
    return " ".join([name, *words])


def parted(docstring: str | None) -> tuple[str, dict[str, str]]:
    """The text of a docstring, and what each parameter is."""
    text, *parameters = _PARAMETERS.split(_clean(docstring or ""), maxsplit=1)
    meanings: dict[str, str] = {}
    name = ""
    for line in "\n".join(parameters).splitlines():
        if line[:1].isspace():
            meanings[name] = f"{meanings.get(name, '')} {line.strip()}".lstrip()
        elif line:
            name = line
    return text.strip(), meanings


def _clean(docstring: str) -> str:
    """As `inspect.cleandoc`, which takes long to import."""
    first, _, rest = docstring.partition("\n")
    return f"{first.strip()}\n{dedent(rest)}".strip()


def _form(option: Taken, names_max: int | None = None) -> str:
    """`--limit, -n N`: its names, and what follows them."""
    names = ", ".join(option.names[:names_max])
    if option.is_switch:
        return names
    kind = "CHOICE" if isinstance(option.kind, tuple) else _KINDS.get(option.kind, "TEXT")
    return f"{names} {kind}{' …' if option.is_many else ''}"


def meaning(taken: Taken, meanings: dict[str, str]) -> str:
    """What a value or an option is; `meanings` are those of the docstring."""
    said = taken.help or meanings.get(taken.path[-1], "")
    more = []
    if isinstance(taken.kind, tuple):
        more.append(f"one of {', '.join(taken.kind)}")
    if taken.default is REQUIRED:
        more.append("required" if taken.names[0].startswith("-") else "")
    elif taken.default not in (None, False, (), ""):
        more.append(f"default: {taken.default}")
    shown = "; ".join(filter(None, more))
    return f"{said} [{shown}]".lstrip() if shown else said


def _section(title: str, rows: list[Row], width: int) -> Iterator[str]:
    """Its lines: names, and beside them what they are."""
    if not rows:
        return
    yield from ("", f"{title}:")
    widths = [len(name) + 4 for name, _ in rows]
    beside = max((each for each in widths if each <= NAMES_WIDTH_MAX), default=NAMES_WIDTH_MAX)
    for name, text in rows:
        lines = _wrapped(text, max(width - beside, 20))
        shown = f"  {name}"
        if lines and len(name) + 4 <= beside:
            shown = f"{shown.ljust(beside)}{lines.pop(0)}"
        yield shown
        yield from (" " * beside + line for line in lines)


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _terminal_width() -> int:
    try:
        width = os.get_terminal_size().columns
    except OSError:
        width = 80
    return max(min(width, WIDTH_MAX), 40)

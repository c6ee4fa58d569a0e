"""What commands print: tables and lines for people, JSON for programs.

Where the output is a terminal, tables are rich's; elsewhere they are plain columns that are never
cut, so that `grep` and `awk` see everything, and rich is not imported. So they are
where rich is not installed.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from curlew_client.command.words import printable

Cell = object


def is_terminal() -> bool:
    """Whether a person reads it."""
    return sys.stdout.isatty()


def print_json(shown: Any) -> None:
    """One document; indented for a person."""
    text = json.dumps(shown, ensure_ascii=False, indent=2 if is_terminal() else None)
    sys.stdout.write(f"{text}\n")


def print_line(text: str) -> None:
    """One line, at once: whoever reads a pipe sees it when it is there."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """To a person, beside the output."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str = "nothing"
) -> None:
    """A table; numbers stand to the right."""
    found = [list(row) for row in rows]
    if not found:
        say(empty)
        return
    numbers = [
        all(isinstance(row[at], int | float) or row[at] is None or row[at] == "" for row in found)
        for at in range(len(columns))
    ]
    texts = [[_cell(cell) for cell in row] for row in found]
    if not (is_terminal() and _print_rich(columns, texts, numbers)):
        sys.stdout.write(plain_table(columns, texts, numbers))


def plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]
) -> str:
    """The columns with two blanks between them."""
    lines = [[name.upper() for name in columns], *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    shown = []
    for line in lines:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numbers, strict=True)
        ]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown) + "\n"


def _print_rich(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]
) -> bool:
    """Whether rich is there."""
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:
        return False

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, right in zip(columns, numbers, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
    return True


def print_fields(shown: Mapping[str, Any]) -> None:
    """A document, one member a line; what is nested stays JSON."""
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        sys.stdout.write(f"{name:<{width}}  {_cell(value)}\n".rstrip() + "\n")


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return printable(", ".join(value)) or "-"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return printable(value)

"""The house rules that no linter knows, as functions from a file's text to complaints.

Pure: the tests feed them the repository, and a made-up offence each, to see that they bite.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import PurePosixPath
from typing import Final, NamedTuple

MODULE_LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 70
FOLDER_MODULES_MAX: Final = 12
"""Modules side by side in a folder, `__init__` and `conftest` not counted."""

DIVIDED: Final = (
    *("app/", "benchmarks/", "clients/", "tests/"),
    *("spark_connector/examples/", "spark_connector/src/"),
)
"""Where folders are held to that."""

EMPTY_NAMES: Final = frozenset(
    ["util", "utils", "helper", "helpers", "common", "core", "base", "manager", "misc"]
)
"""Names that say nothing about what is inside."""

_MARKER: Final = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
_MACHINE_PATH: Final = re.compile(r"(?<![\w.:/])/(home|root|Users|work|tmp)/\w|\b[A-Z]:\\\w")

Rule = Callable[[str, str], Iterator[str]]
"""(path relative to the repository, text) -> complaints."""


class _Outline(NamedTuple):
    """What the rules ask of a module. Trees of all modules would be walked by each collection."""

    docstring: str | None
    functions: tuple[tuple[str, int, int], ...]
    """Name, first line, number of lines."""


@cache
def _outline(text: str) -> _Outline:
    tree = ast.parse(text)
    functions = [
        (node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return _Outline(ast.get_docstring(tree), tuple(functions))


def module_length(path: str, text: str) -> Iterator[str]:
    lines = text.count("\n")
    if path.endswith(".py") and lines > MODULE_LINES_MAX:
        yield f"{path} has {lines} lines; at most {MODULE_LINES_MAX}"


def function_length(path: str, text: str) -> Iterator[str]:
    """A migration is a table of columns rather than a function, so those are let be."""
    if not path.endswith(".py") or path.startswith("migrations/versions/"):
        return
    for name, line, lines in _outline(text).functions:
        if lines > FUNCTION_LINES_MAX:
            yield f"{path}:{line} {name} has {lines} lines"


def module_docstring(path: str, text: str) -> Iterator[str]:
    if path.endswith(".py") and text.strip() and _outline(text).docstring is None:
        yield f"{path} does not open with a docstring"


def module_name(path: str, text: str) -> Iterator[str]:
    if not path.endswith(".py"):
        return
    parts = PurePosixPath(path).with_suffix("").parts
    for name in EMPTY_NAMES.intersection(part.lstrip("_") for part in parts):
        yield f"{path}: the name {name!r} says nothing"


def unfinished_work(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if _MARKER.search(line):
            yield f"{path}:{number} marks unfinished work"


def machine_path(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _MACHINE_PATH.search(line):
            yield f"{path}:{number} names a path of one machine: {found.group()}"


def crowded_folders(paths: Iterable[str]) -> Iterator[str]:
    """Complaints about folders with too many modules, given all paths of the repository."""
    counts: Counter[str] = Counter()
    for path in map(PurePosixPath, paths):
        if path.suffix == ".py" and path.stem not in {"__init__", "conftest"}:
            counts[f"{path.parent}/"] += 1
    for folder, count in sorted(counts.items()):
        if count > FOLDER_MODULES_MAX and folder.startswith(DIVIDED):
            yield f"{folder} has {count} modules; at most {FOLDER_MODULES_MAX}"


UNIT_TESTS: Final = "tests/unit/"
OF_THE_REPOSITORY: Final = frozenset({"", "container"})
"""Folders of unit tests that are about no folder of `app`."""


def unmirrored_tests(paths: Iterable[str]) -> Iterator[str]:
    """Complaints about folders of unit tests that are not where their folder of `app` is."""
    known = {str(PurePosixPath(path).parent) for path in paths if path.startswith("app/")}
    for path in map(PurePosixPath, paths):
        if str(path).startswith(UNIT_TESTS) and path.name.startswith("test_"):
            folder = str(path.parent)[len(UNIT_TESTS) :]
            if folder not in OF_THE_REPOSITORY and f"app/{folder}" not in known:
                yield f"{path}: there is no app/{folder}"


WITH_SQL: Final = tuple(
    f"app/cluster/metadata/{folder}" for folder in ("access", "consumers", "nodes", "tables")
)
"""Folders whose modules run SQL: `tests/conformance` and `tests/integration/metadata` test them,
with SQLite and PostgreSQL."""


def untested_folders(paths: Iterable[str]) -> Iterator[str]:
    """Complaints about folders of `app` without unit tests beside, or in the folder above."""
    parents = [PurePosixPath(path) for path in paths]
    tested = {str(path.parent) for path in parents if path.name.startswith("test_")}
    folders = {
        path.parent
        for path in parents
        if path.parts[0] == "app" and path.suffix == ".py" and path.stem != "__init__"
    }
    for folder in sorted(folders):
        beside = PurePosixPath("tests/unit", *folder.parts[1:])
        if str(folder) not in WITH_SQL and not {str(beside), str(beside.parent)} & tested:
            yield f"{folder} has no tests in {beside}"


_NAMED_PATH: Final = re.compile(
    r"`((?:app|benchmarks|clients|migrations|openapi|requirements|spark_connector|tests)/[\w./-]+)`"
)


def missing_paths(path: str, text: str, known: frozenset[str]) -> Iterator[str]:
    """Complaints about files and folders that a page names and that are not there; what a page of
    changes names was there."""
    if not path.endswith(".md") or path == "CHANGELOG.md":
        return
    for named in _NAMED_PATH.findall(text):
        if named.rstrip("/") not in known:
            yield f"{path} names {named}, which is not there"


RULES: Final[tuple[Rule, ...]] = (
    module_length,
    function_length,
    module_docstring,
    module_name,
    unfinished_work,
    machine_path,
)

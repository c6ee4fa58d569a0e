"""The repository keeps the house rules of `tests.support.tidiness`, and each rule bites."""

import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.support import tidiness

REPOSITORY = Path(__file__).parents[2]

OFFENCES: dict[tidiness.Rule, tuple[str, str]] = {
    tidiness.module_length: ("app/long.py", '"""Long."""\n' + "pass\n" * tidiness.MODULE_LINES_MAX),
    tidiness.function_length: (
        "app/long.py",
        '"""Long."""\n\ndef f():\n' + "    pass\n" * tidiness.FUNCTION_LINES_MAX,
    ),
    tidiness.module_docstring: ("app/silent.py", "value = 1\n"),
    tidiness.module_name: ("app/broker/_helpers.py", '"""Odds and ends."""\n'),
    tidiness.unfinished_work: ("docs/page.md", "TO" + "DO: finish\n"),
    tidiness.machine_path: ("Makefile", "run:\n\tcat /" + "home/me/notes\n"),
}


@cache
def committed_texts() -> list[tuple[str, str]]:
    """Every text file that git tracks or would track."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    ).stdout.decode()
    texts = []
    for name in filter(None, listing.split("\0")):
        path = REPOSITORY / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            texts.append((name, content.decode()))
    return texts


@pytest.mark.parametrize("rule", tidiness.RULES, ids=lambda rule: rule.__name__)
def test_repository_keeps(rule: tidiness.Rule) -> None:
    texts = committed_texts()
    assert len(texts) > 20
    complaints = [complaint for name, text in texts for complaint in rule(name, text)]
    assert not complaints, "\n".join(complaints)


def test_no_folder_is_crowded() -> None:
    assert not list(tidiness.crowded_folders(name for name, _ in committed_texts()))


def test_unit_tests_mirror_the_house() -> None:
    names = [name for name, _ in committed_texts()]
    assert not list(tidiness.unmirrored_tests(names))
    made_up = [*names, "tests/unit/store/attic/test_x.py"]
    assert list(tidiness.unmirrored_tests(made_up)) == [
        "tests/unit/store/attic/test_x.py: there is no app/store/attic"
    ]


def test_every_folder_has_unit_tests() -> None:
    names = [name for name, _ in committed_texts()]
    assert not list(tidiness.untested_folders(names))
    assert list(
        tidiness.untested_folders([*names, "app/attic/attic.py", "app/attic/old/x.py"])
    ) == ["app/attic/old has no tests in tests/unit/attic/old"]


def test_pages_name_files_that_are_there() -> None:
    texts = committed_texts()
    parts = ((Path(name), *Path(name).parents) for name, _ in texts)
    known = frozenset(str(each) for path in parts for each in path)
    found = [each for name, text in texts for each in tidiness.missing_paths(name, text, known)]
    assert not found, "\n".join(found)
    page = "`app/cli.py`, `app/store/`, `tests/unit/test_nothing.py`"
    assert list(tidiness.missing_paths("docs/page.md", page, known)) == [
        "docs/page.md names tests/unit/test_nothing.py, which is not there"
    ]


def test_a_crowded_folder_is_seen() -> None:
    many = [f"app/broker/m{number}.py" for number in range(tidiness.FOLDER_MODULES_MAX)]
    assert not list(tidiness.crowded_folders([*many, "app/broker/__init__.py", "app/cli.py"]))
    assert list(tidiness.crowded_folders([*many, "app/broker/one_more.py"]))


@pytest.mark.parametrize("rule", tidiness.RULES, ids=lambda rule: rule.__name__)
def test_rule_bites(rule: tidiness.Rule) -> None:
    path, text = OFFENCES[rule]
    assert list(rule(path, text))


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (tidiness.module_length, "docs/long.md", "line\n" * 1_000),
        (tidiness.function_length, "app/ok.py", "def f():\n" + "    pass\n" * 69),
        (tidiness.function_length, "migrations/versions/1.py", "def f():\n" + "    pass\n" * 99),
        (tidiness.module_docstring, "app/store/__init__.py", ""),
        (tidiness.module_name, "app/broker/broker.py", '"""Broker."""\n'),
        (tidiness.unfinished_work, "app/ok.py", "METHOD_TODO_LIST = ()\n"),
        (tidiness.machine_path, "app/ok.py", 'get("/v1/home/x", "http://a/tmp/b")\n'),
    ],
)
def test_rule_lets_pass(rule: tidiness.Rule, path: str, text: str) -> None:
    assert not list(rule(path, text))

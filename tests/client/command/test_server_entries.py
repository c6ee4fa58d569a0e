"""The commands that the server adds to the command `curlew` are those of its own parser."""

import argparse
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from app.commands.server_words import ROLE_NAMES, parser_of
from app.domain.access.roles import ROLES

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
ENTRIES = PROJECT["project"]["entry-points"]["curlew.commands"]


def test_every_command_of_the_parser_is_an_entry() -> None:
    [commands] = [
        each for each in parser_of()._actions if isinstance(each, argparse._SubParsersAction)
    ]
    assert set(commands.choices) == set(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_runs_the_command_of_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def main(words: list[str]) -> int:
        seen.append(words)
        return 7

    monkeypatch.setattr("app.cli.main", main)
    module, _, attribute = ENTRIES[name].partition(":")
    command = getattr(import_module(module), attribute)
    assert command(["--port", "1"]) == 7
    assert seen == [[name, "--port", "1"]]
    assert command.help


HELP_AND_SHOW = """
import sys
from curlew_client.command.entry import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert ended.code == 0
    print("loaded:", *sys.modules)
"""


@pytest.mark.parametrize(
    "words", ["serve --help", "migrate --help", "store verify --help", "key create --help"]
)
def test_help_imports_nothing_of_a_node(words: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", HELP_AND_SHOW, *words.split()],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    text, _, modules = shown.partition("loaded:")
    loaded = set(modules.split())
    assert text.startswith(f"usage: curlew {words.removesuffix(' --help')} ")
    assert "app.commands.server_words" in loaded
    heavy = {"app.cluster", "app.store", "app.config", "sqlalchemy", "uvloop", "asyncio"}
    assert not loaded & (heavy | {"pydantic", "typing_extensions", "importlib.metadata"})


@pytest.mark.parametrize("name", ENTRIES)
def test_the_parser_of_a_command_is_that_command_of_the_whole_parser(name: str) -> None:
    def options_of(parser: argparse.ArgumentParser) -> str:
        [commands] = [
            each for each in parser._actions if isinstance(each, argparse._SubParsersAction)
        ]
        return str(commands.choices[name].format_help())

    assert options_of(parser_of(name)) == options_of(parser_of())


def test_roles_are_those_that_are_there() -> None:
    assert list(ROLE_NAMES) == list(ROLES)


def test_the_client_knows_the_names_where_the_server_is_not_installed() -> None:
    from curlew_client.command.entry import OF_THE_SERVER

    assert set(ENTRIES) == OF_THE_SERVER

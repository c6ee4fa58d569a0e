"""The commands that the server adds to the command `curlew` are those of its own parser."""

import argparse
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from app.cli import _parser

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
ENTRIES = PROJECT["project"]["entry-points"]["curlew.commands"]


def test_every_command_of_the_parser_is_an_entry() -> None:
    [commands] = [
        each for each in _parser()._actions if isinstance(each, argparse._SubParsersAction)
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


def test_the_client_knows_the_names_where_the_server_is_not_installed() -> None:
    from curlew_client.command.entry import OF_THE_SERVER

    assert set(ENTRIES) == OF_THE_SERVER

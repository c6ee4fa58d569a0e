"""The pinned requirements cover what pyproject asks for, with hashes and without addresses."""

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
REQUIREMENTS = REPOSITORY / "requirements"
PIN = re.compile(r"^([a-z0-9-]+)==([^ ;]+)(?: ; [^\\]*)? *\\$")
PINNED = ("build", "run", "demo", "test", "bench")
OURS = {"curlew-client"}
"""Installed from this repository: what they need is pinned, they are not."""


def lines(name: str) -> list[str]:
    return (REQUIREMENTS / f"{name}.txt").read_text().splitlines()


def pins(name: str) -> set[tuple[str, str]]:
    return {(found[1], found[2]) for line in lines(name) if (found := PIN.match(line))}


def bare_name(requirement: str) -> str:
    """`psycopg[binary]>=3.3` -> `psycopg`."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return found[0].lower().replace("_", "-")


@pytest.mark.parametrize("name", PINNED)
def test_every_line_is_a_pin_or_its_hash(name: str) -> None:
    for number, line in enumerate(lines(name), start=1):
        is_hash = re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?", line)
        assert is_hash or PIN.match(line), f"{name}.txt:{number}: {line}"


@pytest.mark.parametrize(
    ("project", "name"),
    [
        ("pyproject.toml", "run"),
        ("clients/python/pyproject.toml", "run"),
        ("spark_connector/pyproject.toml", "demo"),
    ],
)
def test_what_a_project_needs_is_pinned(project: str, name: str) -> None:
    table = tomllib.loads((REPOSITORY / project).read_text())
    wanted = {bare_name(text) for text in table["project"]["dependencies"]} - OURS
    assert wanted <= {package for package, _ in pins(name)}
    built_with = {bare_name(text) for text in table["build-system"]["requires"]}
    assert built_with <= {package for package, _ in pins("build")}


@pytest.mark.parametrize(("smaller", "larger"), [("run", "demo"), ("demo", "test")])
def test_larger_sets_hold_the_smaller_ones(smaller: str, larger: str) -> None:
    assert pins(smaller) <= pins(larger)


def test_an_address_would_be_noticed() -> None:
    assert not PIN.match("--index-url https://registry.example/simple")
    assert not PIN.match("thing @ https://registry.example/thing.whl \\")
    assert PIN.match("numpy==2.4.6 ; python_full_version < '3.12' \\")

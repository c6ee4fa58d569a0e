"""No Docker engine runs the tests, so each step of the Dockerfile is a command that make runs."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TARGETS = ("venv", "run", "serve", "health")
"""The commands of `make` whose lines the Dockerfile repeats."""
GIVEN_TO_MAKE = ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")
"""How the arguments of `make test ARGS=…` reach the programs it runs, and a `make` among them."""


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(keyword, rest) of each instruction, continued lines joined, comments left out."""
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(kept).replace("\\\n", " ").splitlines():
        if line.strip():
            keyword, _, rest = line.strip().partition(" ")
            yield keyword.upper(), rest.strip()


def steps(text: str) -> list[str]:
    """The shell commands that building and running the image executes."""
    found = []
    start: dict[str, list[str]] = {}
    for keyword, rest in instructions(text):
        if keyword == "RUN":
            found += [part.strip() for part in rest.split("&&")]
        elif keyword == "HEALTHCHECK":
            found.append(rest.partition("CMD ")[2])
        elif keyword in {"ENTRYPOINT", "CMD"}:
            start[keyword] = json.loads(rest)
    return [*found, " ".join([*start["ENTRYPOINT"], *start["CMD"]])]


def make_commands() -> set[str]:
    """What `make` would run for `TARGETS` on a fresh machine."""
    plan = subprocess.run(
        ["make", "--dry-run", "--always-make", "--no-print-directory", *TARGETS],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in GIVEN_TO_MAKE},
    ).stdout
    return {line.strip() for line in plan.splitlines()}


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (REPOSITORY / "Dockerfile").read_text()


def test_every_step_is_a_command_of_make(dockerfile: str) -> None:
    found = steps(dockerfile)
    assert len(found) >= 7
    assert [step for step in found if step not in make_commands()] == []


def test_a_step_of_its_own_would_be_noticed(dockerfile: str) -> None:
    changed = dockerfile + "\nRUN python3 -m venv .venv && apt-get install something\n"
    strange = set(steps(changed)) - make_commands()
    assert strange == {"apt-get install something"}


def test_arguments_of_the_make_that_runs_the_tests_are_not_of_the_image(
    dockerfile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGS", "-k name")
    monkeypatch.setenv("MAKEFLAGS", r" -- ARGS=-k\ name")
    assert set(steps(dockerfile)) <= make_commands()


def test_what_is_copied_exists_and_is_not_ignored(dockerfile: str) -> None:
    allowed = re.findall(r"^!(\S+)$", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE)
    for keyword, rest in instructions(dockerfile):
        if keyword != "COPY" or "--from=" in rest:
            continue
        for source in rest.split()[:-1]:
            assert (REPOSITORY / source).exists(), source
            assert any(Path(source).match(pattern) for pattern in allowed), source


def test_the_last_stage_is_not_root(dockerfile: str) -> None:
    last_stage = dockerfile.rpartition("\nFROM ")[2]
    users = [rest for keyword, rest in instructions(last_stage) if keyword == "USER"]
    assert users
    assert not users[-1].startswith(("root", "0"))

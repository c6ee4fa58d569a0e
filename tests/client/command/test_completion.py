"""What a shell offers at the tab key."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.command.conftest import Run

PROGRAMS = str(Path(sys.executable).parent)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([""], ["send", "topic", "completion", "serve"]),
        (["to"], ["topic"]),
        (["topic", ""], ["list", "show", "stats", "create", "set", "route", "delete"]),
        (["--json", "--url", "http://a", "offsets", "snapshot", "re"], ["restore"]),
        (["topic", "create", "orders", "--q"], ["--queues"]),
        (["topic", "create", "--queues", ""], []),
        (["receive", "orders", "--then", "re"], ["release"]),
        (["receive", "orders", "--then", "=", "re"], ["release"]),
        (["receive", "orders", "--then", "="], ["ack", "leave"]),
        (["receive", "orders", "--then=re"], ["--then=release"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["topic", "create", "orders", ""], []),
        (["serve", ""], []),
        (["nonesuch", ""], []),
        ([], ["send"]),
    ],
    ids=str,
)
def test_offers(words: list[str], offered: list[str], run: Run) -> None:
    done = run("--complete", *words)
    assert (done.status, done.err) == (0, "")
    found = [line.split("\t")[0] for line in done.out.splitlines()]
    assert {*offered} <= {*found}
    assert len(found) == len(offered) or words in ([""], []) or words[-1] == "="


def test_an_offer_says_what_it_is(run: Run) -> None:
    assert run("--complete", "topic", "li").out == (
        "list\tAll topics, or those that begin with PREFIX.\n"
    )
    assert run("--complete", "topic", "create", "--ret").out.startswith("--retention\tHow long")
    assert run("--complete", "topic", "list", "--ur").out.startswith("--url\tthe node; else")


def test_bash_offers_them(run: Run) -> None:
    script = (
        run("completion", "bash").out
        + """
try() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=(); _curlew; echo "${COMPREPLY[*]}"; }
try curlew top
try curlew receive orders --then = re
try curlew send orders -f ""
"""
    )
    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.stdout == "topic\nrelease\n\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_ask_in_the_same_way(shell: str, run: Run) -> None:
    """Their scripts were tried by hand: these shells are not where the tests run."""
    assert "curlew --complete" in run("completion", shell).out

"""Servers by name: which counts, and that keys stay where they are."""

import json
from pathlib import Path

import pytest

from tests.client.command.conftest import Run

KEY = "curlew_secret"


def test_a_key_goes_in_and_never_comes_out(run: Run, own_contexts: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    done = run("context", "add", "eu", "https://127.0.0.1:1", "--key-file", str(tmp_path / "key"))
    assert done.status == 0
    printed = done.out + done.err
    for words in (("context", "list"), ("context", "list", "--json"), ("topic", "list")):
        done = run(*words)
        printed += done.out + done.err
    assert KEY not in printed
    assert json.loads(own_contexts.read_text())["contexts"]["eu"]["key"] == KEY
    assert own_contexts.stat().st_mode & 0o777 == 0o600
    assert own_contexts.parent.stat().st_mode & 0o777 == 0o700


def test_the_key_may_come_from_stdin(run: Run, own_contexts: Path) -> None:
    run("context", "add", "eu", "https://mq.example", "--key-stdin", stdin=f"{KEY}\n".encode())
    assert json.loads(own_contexts.read_text())["contexts"]["eu"]["key"] == KEY


def test_an_address_may_change_without_the_key(run: Run, own_contexts: Path) -> None:
    """But the key of one server is not handed to another."""
    run("context", "add", "eu", "https://mq.example", "--key-stdin", stdin=f"{KEY}\n".encode())
    run("context", "add", "eu", "https://mq.example", "--namespace", "eu")
    assert "key" in json.loads(own_contexts.read_text())["contexts"]["eu"]
    run("context", "add", "eu", "https://other.example")
    assert "key" not in json.loads(own_contexts.read_text())["contexts"]["eu"]


def test_the_first_is_in_use_until_another_is(run: Run) -> None:
    run("context", "add", "one", "http://127.0.0.1:1")
    run("context", "add", "two", "http://127.0.0.1:2")
    assert "127.0.0.1:1 " in run("topic", "list").err
    assert run("context", "use", "two").status == 0
    assert "127.0.0.1:2 " in run("topic", "list").err
    assert "127.0.0.1:1 " in run("topic", "list", "--context", "one").err
    assert run("context", "remove", "two", "--yes").status == 0
    shown = json.loads(run("context", "list", "--json").out)
    assert [(each["name"], each["in_use"]) for each in shown] == [("one", False)]


def test_what_is_said_wins_over_what_is_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("context", "add", "one", "http://127.0.0.1:1")
    run("context", "add", "two", "http://127.0.0.1:2")
    monkeypatch.setenv("CURLEW_CONTEXT", "two")
    assert "127.0.0.1:2 " in run("topic", "list").err
    monkeypatch.setenv("CURLEW_URL", "http://127.0.0.1:3")
    assert "127.0.0.1:3 " in run("topic", "list").err
    assert "127.0.0.1:4 " in run("topic", "list", "--url", "http://127.0.0.1:4").err


def test_a_name_mistyped(run: Run) -> None:
    run("context", "add", "staging", "http://127.0.0.1:1")
    done = run("topic", "list", "--context", "stagin")
    assert (done.status, done.err) == (
        2,
        "curlew: there is no context 'stagin'; did you mean 'staging'?\n",
    )


def test_a_file_that_others_can_read_is_refused(run: Run, own_contexts: Path) -> None:
    run("context", "add", "eu", "https://mq.example")
    own_contexts.chmod(0o644)
    done = run("topic", "list")
    assert done.status == 2
    assert f"chmod 600 {own_contexts}" in done.err


@pytest.mark.parametrize("text", ["", "[]", '{"contexts": 3}', "\x00"])
def test_a_file_that_is_broken_is_named_and_kept(text: str, run: Run, own_contexts: Path) -> None:
    own_contexts.parent.mkdir()
    own_contexts.touch(0o600)
    own_contexts.write_text(text)
    done = run("context", "add", "eu", "https://mq.example")
    assert done.status == 2
    assert str(own_contexts) in done.err
    assert own_contexts.read_text() == text


def test_removing_asks(run: Run) -> None:
    run("context", "add", "eu", "https://mq.example")
    done = run("context", "remove", "eu")
    assert done.status == 2
    assert "Say --yes" in done.err

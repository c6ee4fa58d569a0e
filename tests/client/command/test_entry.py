"""The first word, the exit status, and what is said when something is wrong. No node."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.command.conftest import Run

CURLEW = str(Path(sys.executable).with_name("curlew"))
NOBODY = ("--url", "http://127.0.0.1:1")


def test_help_lists_the_commands_of_the_client_and_of_the_server(run: Run) -> None:
    done = run("--help")
    assert (done.status, done.err) == (0, "")
    for name in ("send", "topic", "context", "serve", "migrate", "store"):
        assert f"\n  {name} " in done.out
    assert "start a production node" in done.out


def test_no_words_are_help_and_a_failure(run: Run) -> None:
    assert run().status == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topik",), "there is no command 'topik'; did you mean `curlew topic`?"),
        (("xxxxxx",), "`curlew --help` lists all"),
        (("topic", "lst"), "did you mean `curlew topic list`?"),
        (("topic", "describe", "orders"), "did you mean `curlew topic show`?"),
        (("config", "get"), "did you mean `curlew config list`?"),
        (("topic", "ls"), "did you mean `curlew topic list`?"),
        (("topic", "rm", "orders"), "did you mean `curlew topic delete`?"),
        (("topic", "orders"), "curlew topic has no command 'orders'; it has create, delete, list"),
        (("cluster", "--timeout", "1s", "evnts"), "did you mean `curlew cluster events`?"),
        (("produce", "orders", "x"), "did you mean `curlew send`?"),
        (("consume",), "did you mean `curlew receive`?"),
        (("topic", "list", "--jsn"), "did you mean --json?"),
        (("topic", "create", "orders", "--partitions", "3"), "did you mean --queues?"),
        (("receive", "orders", "-g", "g", "--idle", "1s"), "did you mean --wait?"),
        (("send", "orders", "--body", "x"), "no option --body; it is a word without a name here"),
        (("schedule", "create", "x"), "did you mean `curlew schedule put`?"),
        (("schedule", "update", "x"), "did you mean `curlew schedule put`?"),
        (("whoami",), "did you mean `curlew node whoami`?"),
        (("replicas",), "did you mean `curlew cluster status`?"),
        (("bench", "orders", "--count=1"), "there is no option --count; --help lists all"),
        (("send", "orders", "-b", "x"), "there is no option -b"),
        (("send", "orders", "x", "--tag"), "--tag needs a value behind it"),
        (("topic", "create", "orders", "queues=3"), "'queues=3' is a word too many"),
        (("offsets", "show"), "GROUP is missing"),
        (("topic", "show"), "TOPIC is missing"),
        (("topic", "list", "--timeout", "soon"), "--timeout is 'soon'; write it as"),
        (("topic", "list", "--url", "127.0.0.1:8710"), "write 'http://127.0.0.1:8710'"),
        (("topic", "list", "--url", "a", "--context", "b"), "not both"),
        (("topic", "delete", "orders", *NOBODY, "--dry-run", "--key-file", "/none"), "/none"),
        (("topic", "list", "--namespace", "a b", *NOBODY), "namespace is 'a b'"),
        (("pull", "orders", "--offset", "1", "--tail", "1", *NOBODY), "give one of"),
        (("pull", "orders", "--from", "noon", *NOBODY), "--from is 'noon'; write a time"),
        (("send", "orders", "a", "--ndjson", *NOBODY), "not both"),
        (("send", "orders", "a", "--property", "x", *NOBODY), "write it as name=value"),
        (("receive", "orders"), "--group is missing; usage: curlew receive TOPIC --group TEXT"),
        (("receive", "orders", "-g", "billing", "--then", "eat"), "eat"),
    ],
)
def test_wrong_words_are_said_and_are_2(words: tuple[str, ...], said: str, run: Run) -> None:
    done = run(*words)
    assert done.out == ""
    assert said in done.err
    assert done.err.startswith("curlew: ")
    assert done.err.count("\n") == 1
    assert done.status == 2


def test_a_node_that_is_not_there_is_3(run: Run) -> None:
    done = run("topic", "list", *NOBODY)
    assert done.status == 3
    assert "http://127.0.0.1:1 cannot be made" in done.err


def test_errors_are_json_when_the_answer_would_be(run: Run) -> None:
    done = run("--json", "topic", "list", *NOBODY)
    assert done.status == 3
    error = json.loads(done.err)["error"]
    assert (error["exit_status"], error["outcome"]) == (3, "not_stored")


def test_options_may_stand_before_the_command(run: Run) -> None:
    assert run(*NOBODY, "--json", "topic", "list").status == 3
    assert run("--url=http://127.0.0.1:1", "topic", "list").status == 3


def test_a_command_of_the_server_is_run_with_its_words(run: Run) -> None:
    done = run("settings")
    assert done.status == 0
    assert "| `port` |" in done.out


def test_without_the_server_its_commands_say_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curlew_client.command.entry._others", dict)
    done = run("serve")
    assert done.status == 2
    assert "a command of the server, which is not installed here" in done.err
    assert run("--help").status == 0


def test_the_script_itself() -> None:
    done = subprocess.run([CURLEW, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("curlew ")


def test_ctrl_c_ends_it_quietly() -> None:
    """It reads the message from stdin, which does not end."""
    process = subprocess.Popen(
        [CURLEW, "send", "orders", *NOBODY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin is not None
    with process:
        process.stdin.write(b"x" * 200_000)  # more than a pipe holds, so it has begun to read
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 130

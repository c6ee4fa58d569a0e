"""Finding, following, moving and measuring messages on the command line, against a node."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from curlew_client.command.messages.benching import summary

from tests.client.command.conftest import Run
from tests.support.nodes.node import RunningNode

CURLEW = str(Path(sys.executable).with_name("curlew"))


def test_a_tail_begins_with_what_is_there_and_goes_on(curlew: Run, node: RunningNode) -> None:
    curlew("topic", "create", "tails", "--queues", "1")
    curlew("send", "tails", "a", "b")
    words = [CURLEW, "tail", "tails", "-n", "1", "--json", "--url", node.url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["text"] == "b"
        curlew("send", "tails", "c")
        assert json.loads(process.stdout.readline())["text"] == "c"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
    assert process.returncode == 130


def test_a_tail_ends_at_its_limit_and_says_what_is_wrong(curlew: Run) -> None:
    curlew("send", "limited", "a")
    done = curlew("tail", "limited", "--limit", "1")
    assert done.out.rstrip().endswith(" a")
    assert curlew("tail", "nothing-here").status == 5
    done = curlew("tail", "limited", "--url", "http://127.0.0.1:1")
    assert (done.status, done.err.count("\n")) == (3, 1)


def test_messages_are_found_by_what_is_in_them(curlew: Run) -> None:
    curlew("topic", "create", "found", "--queues", "1")
    curlew("send", "found", "one", "--key", "order-1", "--tag", "created", "-p", "region=eu")
    curlew("send", "found", "two", "--unique-id", "u-2")
    for words in (
        ("--key", "order-1"),
        ("--tag", "created"),
        ("--property", "region=eu"),
        ("--text", "on"),
        ("--filter", "created"),
        ("--oldest-first", "--limit", "1"),
    ):
        [line] = curlew("browse", "found", "--json", *words).out.splitlines()
        assert json.loads(line)["text"] == "one", words
    assert curlew("browse", "found", "--unique-id", "u-2").out.splitlines()[1].endswith("two")
    assert curlew("browse", "found", "--until", "1h").out == ""
    assert [line[-3:] for line in curlew("browse", "found").out.splitlines()[1:]] == ["two", "one"]


def test_where_a_message_is_and_what_became_of_it(curlew: Run) -> None:
    curlew("topic", "create", "traced", "--queues", "1", "--set", "trace_rate=1.0")
    message = json.loads(curlew("send", "traced", "a\x1b[2J", "--json").out)["message_id"]
    done = curlew("message", "show", "traced", message)
    assert done.out.splitlines()[-1].endswith(r"a\x1b[2J")
    assert curlew("message", "show", "traced", message, "--raw").out == "a\x1b[2J"
    assert json.loads(curlew("message", "show", "traced", message, "--json").out)["queue_id"] == 0
    curlew("receive", "traced", "-g", "tracers", "--then", "dead-letter")
    done = curlew("message", "where", "traced", message, "-g", "tracers")
    assert "standing" in done.out
    assert "dead" in done.out
    done = curlew("message", "trace", "traced", message)
    assert "in queue 0 at offset 0" in done.out
    assert done.out.splitlines()[2].split()[0] == "tracers"
    assert json.loads(curlew("message", "trace", "traced", message, "--json").out)["deliveries"]
    assert curlew("message", "show", "traced", "0" * 34).status == 5


def test_a_topic_goes_out_and_comes_back(curlew: Run, tmp_path: Path) -> None:
    curlew("topic", "create", "whole", "--queues", "2")
    curlew("topic", "create", "again", "--queues", "2")
    for number in range(4):
        curlew("send", "whole", f"m{number}", "--queue", str(number % 2), "--tag", "t")
    file = tmp_path / "whole.ndjson"
    done = curlew("export", "whole", "--to", str(file))
    assert (done.status, done.err) == (0, "exported 4 messages of whole\n")
    assert curlew("export", "whole", "--to", str(file)).status == 2
    assert curlew("export", "whole").out == file.read_text()
    done = curlew("import", "again", str(file), "--keep-queues", "--json")
    assert json.loads(done.out) == {"topic": "again", "imported": 4}

    def shown(topic: str) -> list[tuple[object, ...]]:
        lines = curlew("pull", topic, "--json").out.splitlines()
        names = ("queue_id", "queue_offset", "text", "tag")
        return [tuple(json.loads(line).get(name) for name in names) for line in lines]

    assert shown("again") == shown("whole")


def test_a_rate_is_kept(curlew: Run) -> None:
    done = curlew("send", "paced", "--lines", "--rate", "20", "--json", stdin=b"a\n" * 10)
    assert json.loads(done.out)["seconds"] >= 0.45


def test_a_bench_says_how_long_it_took(curlew: Run) -> None:
    done = curlew("bench", "measured", "--for", "300ms", "--at-once", "2", "--json")
    found = json.loads(done.out)
    assert found["requests"] == sum(found["histogram_ms"].values()) > 0
    assert found["latency_ms"]["min"] <= found["latency_ms"]["p50"] <= found["latency_ms"]["max"]
    done = curlew("bench", "measured", "--for", "300ms", "--batch", "10")
    assert "messages/s" in done.out
    assert "█" in done.out
    done = curlew("bench", "measured", "--for", "1s", "--url", "http://127.0.0.1:1")
    assert (done.status, done.out) == (3, "")


def test_percentiles() -> None:
    found = summary([float(each) for each in range(1, 101)], 2.0, 10, 100)
    assert (found["messages"], found["messages_per_s"], found["bytes_per_s"]) == (
        1_000,
        500,
        50_000,
    )
    latency = found["latency_ms"]
    assert (latency["min"], latency["p50"], latency["p99"], latency["max"]) == (1, 51, 100, 100)
    assert latency["mean"] == 50.5
    assert (found["histogram_ms"]["1"], found["histogram_ms"]["100"]) == (1, 50)
    assert summary([], 1.0, 1, 1)["latency_ms"]["max"] == 0


@pytest.mark.parametrize("answer", [b"n\n", b"y\n"])
def test_a_terminal_shows_tables_and_is_asked(
    answer: bytes, curlew: Run, node: RunningNode
) -> None:
    name = f"asked-{answer[:1].decode()}"
    curlew("topic", "create", name)
    ours, theirs = pty.openpty()
    command = f"{CURLEW} topic list {name}; {CURLEW} topic delete {name}"
    environment = {**os.environ, "CURLEW_URL": node.url, "TERM": "xterm", "COLUMNS": "100"}
    words = ["/bin/sh", "-c", command]
    process = subprocess.Popen(words, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    with process:
        while b"[y/N]" not in seen:
            seen += os.read(ours, 10_000)
        os.write(ours, answer)
    os.close(ours)
    assert "─" in seen.decode()  # rich's table
    assert process.returncode == (0 if answer == b"y\n" else 1)
    assert curlew("topic", "show", name).status == (5 if answer == b"y\n" else 0)

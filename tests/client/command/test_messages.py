"""Sending, pulling and receiving on the command line, against a node."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.client.command.conftest import Run
from tests.support.nodes.node import RunningNode

CURLEW = str(Path(sys.executable).with_name("curlew"))


@pytest.fixture
def topic(node: RunningNode, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).translate(str.maketrans("[]-. ", "_____"))[:100]
    httpx.put(f"{node.url}/v1/topics/{name}", json={"queues": 1}).raise_for_status()
    return name


def pulled(curlew: Run, topic: str, *more: str) -> list[dict[str, object]]:
    done = curlew("pull", topic, "--json", *more)
    assert done.status == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_message_with_all_that_it_may_have(curlew: Run, topic: str) -> None:
    options = ("--tag", "created", "--key", "a", "--key", "b", "--sharding-key", "s")
    more = ("-p", "region=eu", "--content-type", "text/plain", "--unique-id", "mine")
    done = curlew("send", topic, "hello", *options, *more, "--json")
    assert done.status == 0
    sent = json.loads(done.out)
    [shown] = pulled(curlew, topic)
    assert shown["message_id"] == sent["message_id"]
    assert (shown["text"], shown["tag"], shown["keys"]) == ("hello", "created", ["a", "b"])
    assert (shown["properties"], shown["content_type"]) == ({"region": "eu"}, "text/plain")
    assert (shown["sharding_key"], shown["unique_id"]) == ("s", "mine")


def test_stdin_is_one_message_byte_by_byte(curlew: Run, topic: str) -> None:
    body = (
        bytes(range(256)) * 8_000
    )  # above what is read before the node is asked how much it takes
    assert curlew("send", topic, stdin=body).status == 0
    [shown] = pulled(curlew, topic)
    assert base64.b64decode(str(shown["body_base64"])) == body
    done = curlew("pull", topic, "--raw")
    assert done.out.encode(errors="surrogateescape") == body


def test_files_are_messages(curlew: Run, topic: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    done = curlew("send", topic, "-f", str(tmp_path / "a"), "-f", str(tmp_path / "b"))
    assert done.status == 0
    assert [each["text"] for each in pulled(curlew, topic)] == ["a", "b"]
    done = curlew("send", topic, "-f", str(tmp_path / "none"))
    assert (done.status, "No such file" in done.err) == (2, True)


def test_a_stdin_larger_than_a_message_is_refused_and_nothing_is_sent(
    curlew: Run, topic: str
) -> None:
    done = curlew("send", topic, stdin=b"x" * (5 * 1024 * 1024))
    assert done.status == 2
    assert "--lines sends each line" in done.err
    assert pulled(curlew, topic) == []


def test_lines_of_any_bytes(curlew: Run, topic: str) -> None:
    done = curlew("send", topic, "--lines", "--tag", "t", stdin=b"a\r\n\n\xff\xfe\nlast")
    assert done.status == 0
    assert "sent 4 messages" in done.err
    shown = pulled(curlew, topic)
    assert [each.get("text") for each in shown] == ["a", "", None, "last"]
    assert {each["tag"] for each in shown} == {"t"}


def test_more_lines_than_a_batch_has_keep_their_order(curlew: Run, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(1_234))
    assert curlew("send", topic, "--lines", stdin=lines).status == 0
    shown = pulled(curlew, topic, "--limit", "0")
    assert [each["text"] for each in shown] == [str(number) for number in range(1_234)]


def test_what_one_command_prints_another_one_sends(curlew: Run, topic: str) -> None:
    given = [
        {"text": "a", "tag": "t", "keys": ["k"], "properties": {"p": "1"}, "flag": 7},
        {"body": {"id": 17}},
        {"body_base64": "//4="},
    ]
    lines = "".join(f"{json.dumps(each)}\n" for each in given).encode()
    assert curlew("send", topic, "--ndjson", stdin=lines).status == 0
    printed = curlew("pull", topic, "--json").out
    assert curlew("send", topic, "--ndjson", stdin=printed.encode()).status == 0
    shown = pulled(curlew, topic)
    assert len(shown) == 6
    past = ("message_id", "queue_offset", "born_time_ms", "store_time_ms")
    first, again = (
        [{name: value for name, value in each.items() if name not in past} for each in part]
        for part in (shown[:3], shown[3:])
    )
    assert first == again


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"text": "a"}\n{"txt": "b"}\n', "line 2 of stdin: a message has no 'txt'; did you mean"),
        (b"\n\nnot json\n", "line 3 of stdin is no JSON"),
        (b'{"text": "\xff"}\n', "line 1 of stdin is not UTF-8"),
        (b"[1]\n", "no JSON object"),
        (b'{"tag": "a"}\n', "give the body as one of text"),
        (b'{"text": "a", "body": 1}\n', "give the body as one of text"),
        (b'{"body_base64": "*"}\n', "is no Base64"),
        (b'{"text": "a", "keys": "b"}\n', "keys is a list of str"),
        (b'{"text": "a", "queue_id": -1}\n', "queue_id is -1"),
    ],
)
def test_a_line_that_is_wrong_is_named(line: bytes, said: str, curlew: Run) -> None:
    done = curlew("send", "wrong-lines", "--ndjson", stdin=line)
    assert done.status == 2
    assert said in done.err


def test_what_was_sent_before_a_wrong_line_is_counted(curlew: Run, topic: str) -> None:
    lines = b'{"text":"a"}\n' * 600 + b"{"
    done = curlew("send", topic, "--ndjson", stdin=lines)
    assert done.status == 2
    assert "line 601 of stdin" in done.err
    assert "500 messages were sent before" in done.err
    assert len(pulled(curlew, topic, "--limit", "0")) == 500


def test_where_a_pull_begins(curlew: Run, topic: str) -> None:
    curlew("send", topic, "a", "b", "c", "--tag", "t")
    assert [each["text"] for each in pulled(curlew, topic, "--offset", "1")] == ["b", "c"]
    assert [each["text"] for each in pulled(curlew, topic, "--tail", "1")] == ["c"]
    assert [each["text"] for each in pulled(curlew, topic, "--limit", "2")] == ["a", "b"]
    assert len(pulled(curlew, topic, "--from", "1h", "--queue", "0")) == 3
    assert pulled(curlew, topic, "--filter", "other") == []
    done = curlew("pull", topic, "--queue", "9")
    assert (done.status, "QUEUE_NOT_FOUND" in done.err) == (5, True)


def test_a_table_for_people(curlew: Run, topic: str) -> None:
    curlew("send", topic, "two\nlines \x1b[31m", "--key", "k")
    head, row = curlew("pull", topic).out.splitlines()
    assert head.split() == ["QUEUE", "OFFSET", "STORED", "TAG", "KEYS", "BODY"]
    assert row.endswith(r"k     two\nlines \x1b[31m")


def test_receive_acks_what_it_prints(curlew: Run, topic: str) -> None:
    curlew("send", topic, "a", "b", "c")
    done = curlew("receive", topic, "-g", "billing", "-n", "2", "--raw")
    assert (done.status, done.out) == (0, "ab")
    assert curlew("receive", topic, "-g", "billing", "-n", "9", "--raw").out == "c"
    done = curlew("receive", topic, "-g", "billing")
    assert (done.status, done.out) == (0, "")
    assert "no message" in done.err


@pytest.mark.parametrize(
    ("then", "attempt"), [("release", 1), ("nack", None), ("dead-letter", None), ("leave", None)]
)
def test_what_becomes_of_a_message(then: str, attempt: int | None, curlew: Run, topic: str) -> None:
    curlew("send", topic, "a")
    group = f"g-{then}"
    done = curlew("receive", topic, "-g", group, "--then", then, "--json")
    assert json.loads(done.out)["text"] == "a"
    again = curlew("receive", topic, "-g", group, "--json").out
    assert (json.loads(again)["delivery_attempt"] if again else None) == attempt
    dead = httpx.get(f"{curlew_url(curlew)}/v1/groups/{group}/dlq").json()["messages"]
    assert dead == (1 if then == "dead-letter" else 0)


def curlew_url(_: Run) -> str:
    import os

    return os.environ["CURLEW_URL"]


def test_a_closed_pipe_releases_what_was_not_printed(
    curlew: Run, topic: str, node: RunningNode
) -> None:
    """`curlew receive … | head -1`: what nobody read is there for others at once."""
    curlew("send", topic, "--lines", stdin=b"".join(b"%d\n" % each for each in range(20)))
    words = [CURLEW, "receive", topic, "-g", "heads", "-n", "20", "--url", node.url]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
    done = curlew("receive", topic, "-g", "heads", "-n", "20", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [each["text"] for each in found] == [str(each) for each in range(20)]
    assert {each["delivery_attempt"] for each in found} == {1}

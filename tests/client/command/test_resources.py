"""Topics, groups and lag on the command line, against a node."""

import json
import os
import time
from types import SimpleNamespace

import pytest
from curlew_client import Client
from curlew_client.command.entry import Exit
from curlew_client.command.resources import lags

from tests.client.command.conftest import Run


def test_a_topic_from_its_making_to_its_end(curlew: Run) -> None:
    done = curlew("topic", "create", "life", "--queues", "2", "--set", "retention=1d")
    assert (done.status, done.err) == (0, "made topic life\n")
    done = curlew("topic", "create", "life")
    assert (done.status, "`curlew topic set life …` changes it" in done.err) == (2, True)
    done = curlew("topic", "set", "life", "queues=4")
    assert "queues: 2 → 4" in done.err
    assert json.loads(curlew("topic", "show", "life", "--json").out)["queues"] == 4
    assert "retention " in curlew("topic", "show", "life").out
    assert "in_bytes" in curlew("topic", "stats", "life").out
    [row] = json.loads(curlew("topic", "list", "lif", "--json").out)
    assert row["name"] == "life"
    head, line = curlew("topic", "list", "life").out.splitlines()
    assert (head.split()[0], line.split()[0]) == ("TOPIC", "life")
    assert curlew("topic", "delete", "life", "--yes").status == 0
    done = curlew("topic", "show", "life")
    assert (done.status, "; `curlew topic create life` makes it" in done.err) == (5, True)


def test_what_destroys_asks_first(curlew: Run) -> None:
    curlew("topic", "create", "kept")
    curlew("send", "kept", "a")
    done = curlew("topic", "delete", "kept")
    assert done.status == 2
    assert "Delete topic kept with 1 messages for ever? Say --yes, or --dry-run" in done.err
    done = curlew("topic", "delete", "kept", "--dry-run", "--json")
    assert json.loads(done.out)["dry_run"] is True
    assert curlew("topic", "show", "kept").status == 0


def test_a_name_mistyped_is_5_with_a_hint(curlew: Run) -> None:
    curlew("topic", "create", "shipments")
    done = curlew("topic", "show", "shipment", "--json")
    assert done.status == 5
    error = json.loads(done.err)["error"]
    assert (error["code"], error["hint"]) == ("TOPIC_NOT_FOUND", "did you mean 'shipments'?")


def test_a_setting_that_there_is_not_is_refused(curlew: Run) -> None:
    curlew("topic", "create", "settings")
    done = curlew("topic", "set", "settings", "quues=3")
    assert (done.status, "quues" in done.err) == (1, True)
    assert curlew("topic", "set", "settings").status == 2


def test_a_group_from_its_making_to_its_end(curlew: Run) -> None:
    assert curlew("group", "create", "billing", "--max-attempts", "3").status == 0
    assert curlew("group", "create", "billing").status == 2
    assert curlew("group", "set", "billing", "invisible=1m").status == 0
    shown = json.loads(curlew("group", "show", "billing", "--json").out)
    assert (shown["max_attempts"], shown["invisible"]) == (3, "1m")
    assert curlew("group", "pause", "billing").status == 0
    assert "yes" in curlew("group", "list", "billing").out.splitlines()[1]
    assert curlew("group", "resume", "billing").status == 0
    curlew("send", "bills", "a")
    curlew("receive", "bills", "-g", "billing", "--then", "release")
    assert "bills" in curlew("group", "show", "billing").out
    [client] = json.loads(curlew("group", "clients", "billing", "--json").out)
    assert client["user_agent"].startswith("curlew-client-python/")
    assert curlew("group", "members", "billing").status == 0
    assert curlew("group", "delete", "billing").status == 2
    assert curlew("group", "delete", "billing", "--yes").status == 0
    assert curlew("group", "show", "billing").status == 5


def test_the_lag_of_a_group(curlew: Run) -> None:
    curlew("topic", "create", "late", "--queues", "1")
    curlew("send", "late", "a", "b", "c")
    curlew("receive", "late", "-g", "slow")
    done = curlew("lag", "slow")
    assert done.out.startswith("slow: 2 ready, 0 in flight, 0 retrying, 0 delayed, 0 dead, oldest")
    assert done.out.splitlines()[2].split()[:5] == ["late", "0", "1", "3", "2"]
    assert json.loads(curlew("lag", "slow", "--json").out)["ready"] == 2
    assert json.loads(curlew("lag", "slow", "--json", "--topic", "late").out)["ready"] == 2
    assert curlew("lag", "nobody").status == 5
    [line] = [each for each in curlew("lag").out.splitlines() if each.startswith("slow ")]
    assert line.split()[:6] == ["slow", "2", "0", "0", "0", "0"]
    lags_by_group = {each["group"]: each for each in json.loads(curlew("lag", "--json").out)}
    assert lags_by_group["slow"]["ready"] == 2
    assert curlew("lag", "--topic", "late").status == 2
    refused = curlew("topic", "set", "late", "--retention", "1d")
    assert refused.err.endswith("--retention; a setting is written retention=…\n")


@pytest.mark.parametrize("how", ["plain", "--json", "terminal"])
def test_the_lag_of_a_group_is_watched(
    curlew: Run, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    name = f"watch-{how.strip('-')}"
    curlew("topic", "create", name, "--queues", "1")
    curlew("send", name, "a", "b", "c")
    curlew("receive", name, "-g", name)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt
        with Client(os.environ["CURLEW_URL"]) as client:
            for message in client.receive_batch(name, group=name, max_messages=1):
                message.ack()

    clock = SimpleNamespace(sleep=sleep, time_ns=time.time_ns)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(lags, "time", clock)
    monkeypatch.setattr(lags, "is_terminal", lambda: how == "terminal")
    words = ["--json"] if how == "--json" else []
    done = curlew("lag", name, "--watch", "--every", "5s", *words)
    assert (done.status, pauses) == (Exit.INTERRUPTED, [5.0] * 3)
    if how == "--json":
        assert [json.loads(line)["ready"] for line in done.out.splitlines()] == [2, 1, 0]
    elif how == "plain":
        lines = [line.partition(",")[0] for line in done.out.splitlines()]
        assert lines == [f"{name}: {left} ready" for left in (2, 1, 0)]
    else:
        assert f"{name}: 0 ready" in done.out
        assert "committed" in done.out, "the columns of the table"


def test_a_namespace_has_its_own_names(curlew: Run) -> None:
    assert curlew("--namespace", "eu", "namespace", "create", "eu").status == 0
    assert curlew("--namespace", "eu", "topic", "create", "stock", "--queues", "1").status == 0
    assert curlew("--namespace", "eu", "send", "stock", "a").status == 0
    assert curlew("--namespace", "eu", "send", "stock", "--lines", stdin=b"b\nc\n").status == 0
    assert curlew("--namespace", "eu", "pull", "stock", "--raw").out == "abc"
    assert curlew("topic", "show", "stock").status == 5
    done = curlew("--namespace", "us", "topic", "list")
    assert (done.status, "NAMESPACE_NOT_FOUND" in done.err) == (5, True)
    assert "eu" in curlew("namespace", "list").out
    assert curlew("namespace", "delete", "eu").status == 2
    assert curlew("namespace", "delete", "eu", "--yes").status == 1
    assert curlew("--namespace", "eu", "topic", "delete", "stock", "--yes").status == 0
    assert curlew("namespace", "delete", "eu", "--yes").status == 0


def test_a_group_goes_back_to_a_snapshot(curlew: Run) -> None:
    curlew("topic", "create", "backs", "--queues", "1")
    curlew("send", "backs", "a", "b")
    curlew("receive", "backs", "-g", "going")
    assert "nothing is kept" in curlew("offsets", "snapshot", "list", "going").err
    assert curlew("offsets", "snapshot", "keep", "going", "monday").status == 0
    curlew("receive", "backs", "-g", "going")
    [row] = json.loads(curlew("offsets", "snapshot", "list", "going", "--json").out)
    assert row["name"] == "monday"
    done = curlew("offsets", "snapshot", "restore", "going", "monday", "--dry-run", "--json")
    assert json.loads(done.out)["dry_run"] is True
    assert curlew("offsets", "snapshot", "restore", "going", "monday").status == 2
    assert curlew("offsets", "snapshot", "restore", "going", "monday", "--yes").status == 0
    assert curlew("lag", "going").out.startswith("going: 1 ready")
    assert curlew("offsets", "snapshot", "forget", "going", "monday").status == 0

"""Offsets, dead letters, delays, schedules, transactions, nodes and keys, against a node."""

import json
import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from curlew_client.command.service import Service

from tests.client.command.conftest import Run
from tests.support.nodes.node import run_node


def shown(curlew: Run, *words: str) -> Any:
    done = curlew(*words, "--json")
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_a_group_is_put_elsewhere(curlew: Run) -> None:
    curlew("topic", "create", "seen", "--queues", "1")
    curlew("send", "seen", "a", "b", "c")
    curlew("receive", "seen", "-g", "readers", "-n", "3")

    def offset() -> int:
        [row] = json.loads(curlew("offsets", "show", "readers", "seen", "--json").out)
        return int(row["offset"])

    assert offset() == 3
    done = curlew("offsets", "reset", "readers", "seen", "--to", "earliest")
    assert (done.status, offset()) == (2, 3)  # nobody could be asked
    done = curlew("offsets", "reset", "readers", "seen", "--to", "earliest", "--dry-run")
    assert (done.status, offset()) == (0, 3)
    for to, expected in (("earliest", 0), ("+2", 2), ("-1", 1), ("latest", 3), ("1h", 0), ("2", 2)):
        words = ("offsets", "reset", "readers", "seen", "--to", to, "--yes")
        assert (curlew(*words).status, offset()) == (0, expected), to
    assert curlew("offsets", "reset", "readers", "seen", "--to", "soon", "--yes").status == 2
    assert curlew("offsets", "copy", "readers", "others", "seen", "--yes").status == 0
    assert "2" in curlew("offsets", "show", "others").out.splitlines()[1].split()
    assert curlew("offsets", "ends", "seen").out.split()[-2:] == ["0", "3"]
    assert curlew("offsets", "ends", "seen", "1h").out.split()[-2:] == ["0", "0"]


def test_a_copy_that_a_shard_did_not_take_is_no_success(
    curlew: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"queue_id": queue_id, "offset": 2} for queue_id in range(2)]
    refused = [{**rows[1], "code": "SHARD_UNAVAILABLE", "detail": "it is away"}]
    monkeypatch.setattr(Service, "get", lambda *_: {"offsets": rows})
    monkeypatch.setattr(Service, "request", lambda *_, **__: {"refused": refused})
    done = curlew("offsets", "copy", "readers", "others", "seen", "--yes")
    assert done.status == 1
    assert done.err.splitlines() == ["put: 1 queues", "not queue 1: it is away"]


def test_dead_letters(curlew: Run) -> None:
    curlew("topic", "create", "bad", "--queues", "1")
    curlew("send", "bad", "a", "b", "c")
    curlew("receive", "bad", "-g", "failing", "-n", "3", "--then", "dead-letter")
    lines = curlew("dlq", "list", "failing", "--json").out.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["a", "b", "c"]
    assert "given up" in curlew("dlq", "list", "failing", "--reason", "given up").out
    assert curlew("dlq", "redrive", "failing").status == 2  # says which
    assert curlew("dlq", "redrive", "failing", "--all").status == 2  # asks
    plan = shown(curlew, "dlq", "redrive", "failing", "0", "--dry-run")
    assert (plan["matched"], plan["dry_run"]) == (1, True)
    done = curlew("dlq", "redrive", "failing", "0", "--yes")
    assert (done.status, done.err) == (0, "succeeded: 1 of 1 delivered again\n")
    assert curlew("receive", "bad", "-g", "failing", "--raw").out == "a"
    done = curlew("dlq", "purge", "failing", "--topic", "bad", "--dry-run")
    assert done.err.startswith("would remove")
    assert curlew("dlq", "purge", "failing", "--all", "--yes").status == 0
    assert curlew("dlq", "list", "failing").out == ""


def test_delayed_messages(curlew: Run) -> None:
    curlew("topic", "create", "later", "--queues", "1")
    sent = json.loads(curlew("send", "later", "a", "--delay", "1h", "--json").out)
    [waiting] = shown(curlew, "delayed", "list", "later")
    handle = sent["recall_handle"]
    assert waiting["recall_handle"] == handle
    assert handle in curlew("delayed", "list", "later").out
    assert curlew("delayed", "move", "later", handle).status == 2
    done = curlew("delayed", "move", "later", handle, "--delay", "2h", "--json")
    assert done.status == 0, done.err
    [waiting] = shown(curlew, "delayed", "list", "later")
    handle = waiting["recall_handle"]
    assert curlew("delayed", "cancel", "later", handle, "--dry-run").status == 0
    assert curlew("delayed", "cancel", "later", handle).status == 2
    assert curlew("delayed", "cancel", "later", handle, "--yes").status == 0
    assert shown(curlew, "delayed", "list", "later") == []
    curlew("send", "later", "b", "--delay", "1h")
    [waiting] = shown(curlew, "delayed", "list", "later")
    assert curlew("delayed", "deliver", "later", waiting["recall_handle"]).status == 0
    assert curlew("tail", "later", "--limit", "1").out.rstrip().endswith(" b")


def test_schedules(curlew: Run) -> None:
    curlew("topic", "create", "jobs", "--queues", "1")
    words = ("--cron", "0 3 * * *", "--topic", "jobs", "--text", "go", "--tag", "nightly")
    assert curlew("schedule", "put", "nightly", *words, "--dry-run").status == 0
    assert shown(curlew, "schedule", "list") == []
    assert curlew("schedule", "put", "nightly", *words).status == 0
    assert curlew("schedule", "pause", "nightly").status == 0
    found = shown(curlew, "schedule", "show", "nightly")
    assert (found["paused"], found["message"]["tag"]) == (True, "nightly")
    assert curlew("schedule", "resume", "nightly").status == 0
    assert "0 3 * * *" in curlew("schedule", "list").out
    assert curlew("schedule", "delete", "nightly").status == 2
    assert curlew("schedule", "delete", "nightly", "--yes").status == 0
    assert curlew("schedule", "show", "nightly").status == 5
    done = curlew("schedule", "put", "wrong", "--cron", "x", "--topic", "jobs", "--text", "go")
    assert done.status == 1


def times_of(curlew: Run, transaction: str) -> int:
    """In its line of the list."""
    lines = curlew("tx", "list").out.splitlines()
    [line] = [line for line in lines if line.startswith(transaction)]
    return len(re.findall(r" \d\d:\d\d:\d\d\.", line))


def test_transactions(curlew: Run) -> None:
    url = os.environ["CURLEW_URL"]
    httpx.put(f"{url}/v1/topics/pays", json={"queues": 1, "type": "transaction"})
    headers = {"MQ-Transaction": "prepare", "MQ-Producer-Group": "payers"}
    for how in ("commit", "rollback"):
        answer = httpx.post(f"{url}/v1/topics/pays/messages", content=how, headers=headers)
        transaction = answer.json()["transaction_id"]
        rows = shown(curlew, "tx", "list", "--group", "payers", "--state", "PREPARED")
        assert [each["transaction_id"] for each in rows] == [transaction]
        assert times_of(curlew, transaction) == 2  # with the next check
        assert curlew("tx", how, transaction).status == 2
        assert curlew("tx", how, transaction, "--yes").status == 0
        found = shown(curlew, "tx", "show", transaction)
        assert found["state"] == ("COMMITTED" if how == "commit" else "ROLLED_BACK")
        assert times_of(curlew, transaction) == 1  # nobody is asked of it any more
    assert curlew("pull", "pays", "--raw").out == "commit"


def test_nodes_clients_and_settings(curlew: Run) -> None:
    assert "ready" in curlew("node", "status").out
    limits = shown(curlew, "node", "limits")
    assert limits["topics_max"] > 0
    assert shown(curlew, "node", "whoami")
    for words in (("cluster",), ("cluster", "status")):
        [shard] = shown(curlew, *words)["shards"]
        assert shard["answers"]
    assert "LEADER" in curlew("cluster").out
    assert "shard_led" in curlew("cluster", "events").out
    assert len(shown(curlew, "cluster", "events", "--limit", "2")) == 2
    curlew("topic", "create", "routed", "--queues", "2")
    assert [each["queue_id"] for each in shown(curlew, "topic", "route", "routed")["queues"]] == [
        0,
        1,
    ]
    assert curlew("topic", "route", "routed").out.splitlines()[1].split()[0] == "0"
    assert curlew("clients", "producers", "nowhere").status == 5
    curlew("send", "watched", "a")
    curlew("receive", "watched", "-g", "watchers")
    assert curlew("clients", "producers", "watched").status == 0
    [client] = shown(curlew, "clients", "consumers", "watchers")
    assert client["client_id"] in curlew("clients", "show", client["client_id"]).out
    assert curlew("config", "set", "access_log=true").status == 2
    assert curlew("config", "set", "access_log=true", "--dry-run").status == 0
    assert curlew("config", "set", "access_log=true", "--yes").status == 0
    [row] = shown(curlew, "config", "list", "access_log")
    assert (row["value"], row["source"]) == (True, "stored")
    assert "access_log" in curlew("config", "list", "--changed").out
    assert curlew("config", "set", "access_log=null", "--yes").status == 0
    done = curlew("config", "set", "port=1", "--yes")
    assert (done.status, "SETTING_FIXED" in done.err) == (1, True)


def test_principals_and_their_keys(run: Run, tmp_path: Path) -> None:
    key_file = tmp_path / "admin"
    data = str(tmp_path / "data")
    assert run("init", "--data-dir", data, "--key-file", str(key_file)).status == 0
    with run_node(tmp_path / "data") as node:
        at = ("--url", node.url)
        done = run("topic", "list", *at)
        assert (done.status, "UNAUTHORIZED" in done.err) == (4, True)
        admin = (*at, "--key-file", str(key_file))
        let_in = ("--from", "127.0.0.0/8", "--from", "::1")
        done = run("principal", "put", "ci", "--role", "producer", *let_in, *admin)
        assert (done.status, "warning" in done.err) == (0, False)
        bound = ("--resource", "topic:none", "--bound-to", "eu")
        done = run("principal", "put", "lost", "--role", "producer", *bound, *admin)
        assert (done.status, "warning: there is no namespace 'eu'" in done.err) == (0, True)
        file = tmp_path / "ci"
        done = run("principal", "new-key", "ci", "--to-file", str(file), *admin)
        assert (done.status, done.out) == (0, "")
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text().strip() not in done.err
        assert run("principal", "new-key", "ci", "--to-file", str(file), *admin).status == 2
        listed = run("principal", "list", *admin).out
        assert "ci" in listed
        assert "127.0.0.0/8" in listed
        assert "anywhere" in listed, "the administrator"
        offline = run("key", "list", "--data-dir", data).out
        assert [row.split()[-1] for row in offline.splitlines() if "ci " in row] == [
            "127.0.0.0/8,::1"
        ]
        assert file.read_text().strip() not in listed
        theirs = (*at, "--key-file", str(file))
        told = run("node", "whoami", *theirs).out
        assert "ci" in told
        assert "127.0.0.0/8" in told
        assert run("topic", "create", "mine", *theirs).status == 4
        denies = ("--subject", "principal:ci", "--effect", "deny", "--action", "PUB")
        done = run("policy", "put", "no", *denies, "--resource", "topic:orders", *admin)
        assert (done.status, "policy no is kept" in done.err) == (0, True), done.err
        done = run("policy", "may", "PUB", "--topic", "orders", *theirs)
        assert (done.status, "no, by the policy no" in done.err) == (4, True)
        assert run("policy", "may", "PUB", "--topic", "other", *theirs).status == 0
        assert run("policy", "may", "PUB", *theirs).status == 2
        assert "DENY" in run("policy", "list", *admin).out
        assert json.loads(run("policy", "show", "no", "--json", *admin).out)["effect"] == "DENY"
        assert run("policy", "delete", "no", *admin).status == 2
        assert run("policy", "delete", "no", "--yes", *admin).status == 0
        assert run("policy", "may", "PUB", "--topic", "orders", *theirs).status == 0
        found = json.loads(run("principal", "show", "ci", "--json", *admin).out)
        [key] = found["keys"]
        assert run("principal", "revoke", "ci", key["id"], *admin).status == 2
        assert run("principal", "revoke", "ci", key["id"], "--yes", *admin).status == 0
        assert run("principal", "delete", "ci", "--yes", *admin).status == 0
        (tmp_path / "wrong").write_text("curlew_nonsense")
        assert run("topic", "list", *at, "--key-file", str(tmp_path / "wrong")).status == 4

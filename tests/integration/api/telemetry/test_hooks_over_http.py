"""The example hook on a real node: found by its entry point, asked, told, counted."""

import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.broker.hooks.hook_contract import ENTRY_POINTS
from app.domain.message import Message
from tests.support.clients.frames import request_frame
from tests.support.nodes.node import ROOT, NodeRefused, run_node
from tests.support.nodes.waiting import wait_until

EXAMPLE = ROOT / "tests/support/example_hook"
NUMBERED = {"mq-keys": "order-17"}


def installed(directory: Path) -> dict[str, str]:
    """What an installer makes of the example package, and the environment that finds it."""
    shutil.copytree(EXAMPLE / "src", directory, dirs_exist_ok=True)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    about = directory / "curlew_example_hook-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"][ENTRY_POINTS]
    lines = [f"[{ENTRY_POINTS}]", *(f"{name} = {value}" for name, value in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))
    return {"PYTHONPATH": str(directory)}


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    directory = tmp_path_factory.mktemp("hooks")
    environment = {**installed(directory / "site"), "CURLEW_HOOKS": "order-numbers"}
    with (
        run_node(directory / "data", environment=environment) as node,
        httpx.Client(base_url=node.url, timeout=60) as client,
    ):
        yield client


def calls(http: httpx.Client, point: str, result: str) -> int:
    labels = f'{{hook="order-numbers",point="{point}",result="{result}"}}'
    lines = http.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith(f"curlew_hook_calls_total{labels}")]
    return int(found[0].rpartition(" ")[2]) if found else 0


def depth(http: httpx.Client, topic: str) -> int:
    answer = http.get(f"/v1/topics/{topic}/stats")
    return int(answer.json().get("depth", 0))


def sends(http: httpx.Client, keyed: bool) -> Iterator[httpx.Response]:
    """Each kind of send, with a number or without one."""
    base, keys = "/v1/topics/orders/messages", ["order-17"] if keyed else ["17"]
    header = {"mq-keys": keys[0]}
    yield http.post(base, content=b"x", headers=header)
    yield http.post(base, content=b"x", headers={**header, "idempotency-key": f"k{keyed}"})
    entries = [{"text": "a", "keys": ["order-1"]}, {"text": "b", "keys": keys}]
    yield http.post(f"{base}:batch", json={"messages": entries})
    messages = [Message(b"a", keys=("order-1",)), Message(b"b", keys=tuple(keys))]
    frame = request_frame(messages, "orders")
    framed = {"content-type": "application/vnd.curlew.batch"}
    yield http.post(f"{base}:batch", content=frame, headers=framed)
    prepare = {**header, "mq-transaction": "prepare; group=pg"}
    yield http.post(base, content=b"x", headers=prepare)


def test_what_a_hook_forbids_is_not_stored(hooked: httpx.Client) -> None:
    before = depth(hooked, "orders")
    refused = calls(hooked, "check_send", "refused")
    answers: list[Any] = [answer.json() for answer in sends(hooked, keyed=False)]
    answers.append(hooked.post("/v1/topics/orders/messages", content=b"plain").json())
    waiting = hooked.post("/v1/topics/orders/messages:request?wait=10ms", content=b"x")
    answers.append(waiting.json())
    for answer in answers:
        assert (answer["status"], answer["code"]) == (403, "FORBIDDEN_BY_HOOK"), answer
        assert (answer["outcome"], answer["retryable"]) == ("not_stored", False)
        assert answer["hook"] == "order-numbers"
        assert "no key that begins with order-" in answer["detail"]
    assert depth(hooked, "orders") == before
    assert calls(hooked, "check_send", "refused") == refused + len(answers)


def test_a_step_of_acks_and_sends_is_forbidden_whole(hooked: httpx.Client) -> None:
    hooked.post("/v1/topics/tasks/messages", content=b"x").raise_for_status()
    base = "/v1/topics/tasks/groups/workers/messages"
    [got] = hooked.post(f"{base}:receive").json()["messages"]
    step = {"acks": [got["receipt_handle"]], "sends": [{"topic": "orders", "text": "x"}]}
    refused = hooked.post(f"{base}:settle", json=step)
    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN_BY_HOOK")
    step["sends"] = [{"topic": "orders", "text": "x", "keys": ["order-18"]}]
    assert hooked.post(f"{base}:settle", json=step).status_code == 200


def test_what_a_hook_lets_pass_is_stored_and_told(hooked: httpx.Client) -> None:
    told = calls(hooked, "after_send", "ok")
    statuses = [answer.status_code for answer in sends(hooked, keyed=True)]
    assert statuses == [201, 201, 200, 200, 202]
    hooked.post("/v1/topics/payments/messages", content=b"not asked").raise_for_status()
    wait_until(lambda: calls(hooked, "after_send", "ok") > told)
    base = "/v1/topics/payments/groups/billing/messages"
    [got] = hooked.post(f"{base}:receive").json()["messages"]
    settled = calls(hooked, "on_settle", "ok")
    hooked.post(f"{base}:ack", json={"receipt_handles": [got["receipt_handle"]]}).raise_for_status()
    wait_until(lambda: calls(hooked, "on_settle", "ok") == settled + 1)
    assert calls(hooked, "after_send", "raised") == calls(hooked, "on_settle", "raised") == 0


def test_of_a_request_without_a_reply_hooks_are_told_once(hooked: httpx.Client) -> None:
    told = calls(hooked, "after_send", "ok")
    path = "/v1/topics/orders/messages:request?wait=10ms"
    answer = hooked.post(path, content=b"x", headers=NUMBERED)
    assert (answer.status_code, answer.json()["outcome"]) == (504, "stored")
    wait_until(lambda: calls(hooked, "after_send", "ok") > told)
    assert calls(hooked, "after_send", "ok") == told + 1


def test_a_node_with_an_unknown_hook_does_not_start(tmp_path: Path) -> None:
    environment = {**installed(tmp_path / "site"), "CURLEW_HOOKS": "order-number"}
    with (
        pytest.raises(NodeRefused, match="did you mean 'order-numbers'"),
        run_node(tmp_path / "data", environment=environment),
    ):
        pass

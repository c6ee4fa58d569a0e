"""API3, broken object property level authorization: no member that is not in the document is taken
(mass assignment), no reserved property of a message is, and bodies are shown to no viewer."""

import json
from typing import Any

import pytest

from tests.support.cluster.closed_cluster import ClosedCluster
from tests.unit.api.access.test_foreign_names import in_path, operations, plain

pytestmark = pytest.mark.anyio

MORE: dict[str, Any] = {
    "principal": "root",
    "owner": "root",
    "roles": ["admin"],
    "is_admin": True,
    "created_ms": 1,
    "generation": 10**6,
    "version": 10**6,
    "shard": "a",
}
CANARY = "canary-of-alphas-message"
TOLERANT = {"send_message", "request_reply", "reply_to_request"}
"""Their JSON is a message of the client's."""


async def test_no_operation_takes_a_member_that_it_does_not_name(target: ClosedCluster) -> None:
    wrong, count = [], 0
    for number, (method, path, operation) in enumerate(operations()):
        asked = plain(method, path, operation)
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" not in content or asked.operation_id in TOLERANT:
            continue
        body = asked.body if isinstance(asked.body, dict) else {}
        body = json.loads(json.dumps(body).replace("{own}", "alpha"))
        node = number % len(target.nodes)
        url = in_path(asked.path, "").replace("{own}", "alpha")
        for name, value in MORE.items():
            count += 1
            answer = await target.ask(
                node, "root", method, url, json={**body, f"x_{name}": value}, params=asked.query
            )
            if answer.status_code not in (400, 404, 409, 412, 422):
                wrong.append(f"{asked.operation_id} {name}: {answer.status_code} {answer.text}")
    assert wrong == []
    assert count > 100


async def test_what_the_service_writes_is_nobodys_to_set(target: ClosedCluster) -> None:
    """Members that answers have and requests do not."""
    for node in range(len(target.nodes)):
        for path, members in (
            ("topics/alpha-in", {"owner": "beta", "created_ms": 1, "shards": ["x"]}),
            ("groups/alpha-g", {"owner": "beta", "paused": True, "created_ms": 1}),
            ("schedules/alpha-s", {"owner": "root", "principal": "root"}),
            ("groups/alpha-g/members/c", {"principal": "root", "generation": 9, "queues": [1]}),
        ):
            for name, value in members.items():
                answer = await target.ask(node, "alpha", "PUT", f"/v1/{path}", json={name: value})
                assert answer.status_code == 400, f"{path} {name}: {answer.text}"
        for name in ("UNIQ_KEY", "KEYS", "TAGS", "__TOPIC__", "REAL_TOPIC", "TRAN_MSG", "PGROUP"):
            body = {"messages": [{"text": "x", "properties": {name: "y"}}]}
            answer = await target.ask(
                node, "alpha", "POST", "/v1/topics/alpha-in/messages:batch", json=body
            )
            assert answer.status_code in (400, 200, 201), answer.text
            assert '"status":"STORED"' not in answer.text.replace(" ", ""), f"{name}: {answer.text}"


async def test_no_body_is_shown_to_who_sees_figures(target: ClosedCluster) -> None:
    """A viewer and an operator of everything ask every reading operation."""
    for name, role in (("watcher", "viewer"), ("pager", "operator")):
        made = await target.ask(0, "root", "PUT", f"/v1/principals/{name}", json={"roles": [role]})
        assert made.is_success, made.text
        key = await target.ask(0, "root", "POST", f"/v1/principals/{name}/keys", json={})
        target.keys[name] = key.json()["key"]
    await target.refresh()
    message = ""
    for queue in range(3):
        path = f"/v1/topics/alpha-in/messages?queue_id={queue}"
        sent = await target.ask(0, "alpha", "POST", path, content=CANARY)
        assert sent.status_code == 201, sent.text
        message = sent.json()["message_id"]
    shown = await target.ask(0, "alpha", "GET", f"/v1/topics/alpha-in/messages/{message}")
    assert CANARY in shown.text
    for number, (method, path, operation) in enumerate(operations()):
        if method != "GET":
            continue
        asked = plain(method, path, operation)
        url = in_path(asked.path, "").replace("{own}", "alpha")
        url = url.replace("/messages/0101020304018BCFE56800000000000000", f"/messages/{message}")
        for who in ("watcher", "pager"):
            answer = await target.ask(
                number % len(target.nodes), who, method, url, params=asked.query
            )
            assert CANARY not in answer.text, f"{asked.operation_id} {who}"

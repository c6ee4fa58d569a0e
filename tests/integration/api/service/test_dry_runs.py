"""Dry runs of all control operations: they answer what would be, and change nothing at all."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.control.log_changes import IN_THE_LOG
from app.api.document.openapi import build_document
from tests.support.clients.wire import served_node
from tests.support.nodes.one_of_each import SCHEDULE, UNHURRIED, World, fill

pytestmark = pytest.mark.anyio

DATA_PLANE = {
    *("send_message", "send_batch", "request_reply", "reply_to_request"),
    *("receive_messages", "settle_messages", "ack_messages", "nack_messages", "extend_messages"),
    *("dead_letter_messages", "ack_receipt", "change_receipt"),
    *("poll_queues", "receive_transactions"),  # which hand out messages
}
"""Operations that have no dry run."""


def control_operations(document: dict[str, Any]) -> set[str]:
    """All that change something and are not about single messages."""
    return {
        operation["operationId"]
        for methods in document["paths"].values()
        for method, operation in methods.items()
        if method not in {"get", "head"}
    } - DATA_PLANE


def test_every_control_operation_says_that_it_has_a_dry_run() -> None:
    document = build_document()
    operations = control_operations(document)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            names = [each.get("name") for each in operation["parameters"]]
            expected = operation["operationId"] in operations
            assert ("dry_run" in names) == expected, f"{method} {path}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with served_node(tmp_path, UNHURRIED) as served:
        url = f"http://127.0.0.1:{served.port}"
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            made = World(http, served)
            await served.node.broker.delays.service.stop()  # once a minute it trims, into the log
            await fill(made)
            yield made


DONE = "/v1/groups/done"
BEAT = {"subscriptions": [{"topic": "orders"}], "generation": 0}
LOCK = {"client_id": "m", "generation": 1, "queues": [{"topic": "orders", "queue_id": 0}]}
UNLOCK = {"client_id": "m", "queues": LOCK["queues"]}
PLAN = {"producer": "loader", "epoch": 2, "topic": "orders"}
OPERATIONS: list[tuple[str, str, str, object]] = [
    ("lock_queues", "POST", "/v1/groups/readers/queues:lock", LOCK),
    ("unlock_queues", "POST", "/v1/groups/readers/queues:unlock", UNLOCK),
    ("put_topic", "PUT", "/v1/topics/orders", {"retention": "1h"}),
    ("put_topic", "PUT", "/v1/topics/made", {"queues": 3}),
    ("patch_topic", "PATCH", "/v1/topics/orders", {"queues": 2}),
    ("put_namespace", "PUT", "/v1/namespaces/eu", None),
    ("delete_namespace", "DELETE", "/v1/namespaces/eu", None),
    ("patch_config", "PATCH", "/v1/config", {"limit_page_size_max": 999}),
    ("put_group", "PUT", "/v1/groups/billing", {"order": "fifo"}),
    ("put_group", "PUT", "/v1/groups/made", {}),
    ("patch_group", "PATCH", "/v1/groups/billing", {"max_attempts": 5}),
    ("pause_group", "POST", "/v1/groups/billing:pause", None),
    ("resume_group", "POST", "/v1/groups/billing:resume", None),
    ("put_schedule", "PUT", "/v1/schedules/hourly", SCHEDULE),
    ("patch_schedule", "PATCH", "/v1/schedules/nightly", {"paused": True}),
    ("delete_schedule", "DELETE", "/v1/schedules/nightly", None),
    (
        "commit_group_offsets",
        "PUT",
        f"{DONE}/offsets/orders",
        {"offsets": [{"queue_id": 0, "offset": 5}]},
    ),
    (
        "commit_group_offsets",
        "PUT",
        "/v1/groups/unheard/offsets/orders",
        {"offsets": [{"queue_id": 0, "offset": 5}]},
    ),
    ("reset_group_offsets", "POST", f"{DONE}/offsets/orders:reset", {"to": "earliest"}),
    ("reset_all_group_offsets", "POST", f"{DONE}/offsets:reset", {"to": "latest"}),
    ("put_group_subscription", "PUT", f"{DONE}/subscriptions/orders", {"filter": "paid"}),
    ("delete_group_subscription", "DELETE", f"{DONE}/subscriptions/orders", None),
    ("put_snapshot", "PUT", f"{DONE}/snapshots/second", None),
    ("restore_snapshot", "POST", f"{DONE}/snapshots/first:restore", None),
    ("delete_snapshot", "DELETE", f"{DONE}/snapshots/first", None),
    ("delete_group_offsets", "DELETE", "/v1/groups/done2/offsets/orders", None),
    ("put_member", "PUT", "/v1/groups/unheard2/members/m", BEAT),
    ("put_member", "PUT", "/v1/groups/unheard2/members/m2", BEAT),
    ("delete_member", "DELETE", "/v1/groups/readers/members/m", None),
    ("plan_epoch", "POST", "/v1/producers:plan", PLAN),
    ("seal_producer", "POST", "/v1/producers:seal", {"producer": "loader", "epoch": 1}),
    ("delete_producer", "DELETE", "/v1/producers/gone", None),
    ("release_parked", "POST", "/v1/groups/inorder/parked:release", "{parked}"),
    (
        "redrive_dead_letters",
        "POST",
        "/v1/groups/billing/dlq/messages:redrive",
        {"offsets": [2]},
    ),
    ("purge_dead_letters", "POST", "/v1/groups/billing/dlq/messages:purge", {"offsets": [3]}),
    ("cancel_operation", "POST", "/v1/operations/{operation}:cancel", None),
    ("move_scheduled_message", "PATCH", "/v1/topics/orders/scheduled/{move}", {"delay": "3h"}),
    ("cancel_scheduled_message", "DELETE", "/v1/topics/orders/scheduled/{cancel}", None),
    ("deliver_scheduled_message", "POST", "/v1/topics/orders/scheduled/{deliver}:deliver", None),
    ("commit_transaction", "POST", "/v1/transactions/{commit}:commit", None),
    ("rollback_transaction", "POST", "/v1/transactions/{rollback}:rollback", None),
    ("delete_group", "DELETE", "/v1/groups/billing", None),
    ("delete_topic", "DELETE", "/v1/topics/orders", None),
]


POLICY = {"subject": "role:viewer", "actions": ["GET"], "resources": ["topic:orders"]}
ON_A_CLOSED_NODE: list[tuple[str, str, str, object]] = [
    ("put_principal", "PUT", "/v1/principals/shop", {"roles": ["producer"]}),
    ("put_principal", "PUT", "/v1/principals/shop", {"roles": ["consumer"]}),
    ("make_key", "POST", "/v1/principals/shop/keys", {"expires": "90d"}),
    ("revoke_key", "DELETE", "/v1/principals/second/keys/{key}", None),
    ("delete_principal", "DELETE", "/v1/principals/second", None),
    ("put_policy", "PUT", "/v1/policies/look", POLICY),
    ("delete_policy", "DELETE", "/v1/policies/look", None),
]


OF_SEVERAL_NODES = {
    *("elect_replica", "hand_over_shard", "remove_replica", "reset_replica"),
    *("drain_shard", "undo_drain"),
}
"""Tried in `tests/integration/cluster`, since a lone node has nobody to hand over to."""


def test_every_control_operation_is_tried() -> None:
    tried = {each[0] for each in OPERATIONS + ON_A_CLOSED_NODE}
    assert tried | OF_SEVERAL_NODES == control_operations(build_document())


_TIMES = {"version", "created_ms", "updated_ms", "deliver_time_ms", "decided_ms", "queue_offset"}
_TIMES |= {"expires_ms", "set_ms", "assignment_id"}
"""Members that tell of the moment of the change itself."""
_KNOWN_WHEN_DONE = {"id", "key"}
"""Of a key."""


async def test_a_dry_run_changes_nothing_and_the_real_one_does_what_it_said(world: World) -> None:
    for operation, method, path, body in OPERATIONS:
        await try_and_do(world, operation, method, path, body)


async def test_so_it_is_with_principals_keys_and_policies(world: World) -> None:
    await world.close_to_strangers()
    for operation, method, path, body in ON_A_CLOSED_NODE:
        await try_and_do(world, operation, method, path, body)


async def try_and_do(
    world: World, operation: str, method: str, template: str, given: object
) -> None:
    path, body = template.format(**world.seen), given
    if given == "{parked}":
        body = {**json.loads(world.seen["parked"]), "action": "skip"}
    before = await world.state()
    tried = await world.http.request(method, path, json=body, params={"dry_run": "on"})
    assert tried.status_code == 200, f"{operation}: {tried.text}"
    assert tried.json()["dry_run"] is True, operation
    assert await world.state() == before, operation
    done = await world.http.request(method, path, json=body)
    assert done.is_success, f"{operation}: {done.text}"
    assert await world.state() != before, f"{operation}: nothing tells the real one"
    entries = [each["outcome"] for each in await world.entries() if _is_of(operation, each)]
    is_audited = operation in IN_THE_LOG and operation != "commit_group_offsets"  # if forced
    assert entries[-2:] == (["intended", "done"] if is_audited else []), operation
    if not done.content or done.status_code == 202:
        return
    said, was = tried.json(), done.json()
    assert said.pop("dry_run") is True
    assert was.pop("dry_run", False) is False, operation
    for name in was.keys() - _TIMES - _KNOWN_WHEN_DONE:
        if name != "generation":  # a reset tells members by the next one
            assert said[name] == was[name], f"{operation}: {name}"


def _is_of(operation: str, entry: dict[str, Any]) -> bool:
    after = entry["after"]
    return isinstance(after, dict) and after.get("operation") == operation


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/v1/topics/orders", {"queues": 0}, 400),
        ("PUT", "/v1/topics/a.b", {}, 400),
        ("PATCH", "/v1/topics/nothing", {}, 404),
        ("DELETE", "/v1/topics/nothing", None, 404),
        ("PUT", "/v1/groups/a.b", {}, 400),
        ("PUT", "/v1/groups/readers", {"mode": "broadcast"}, 409),
        ("DELETE", "/v1/groups/nothing", None, 404),
        ("POST", "/v1/groups/nothing:pause", None, 404),
        ("PUT", "/v1/schedules/s", {**SCHEDULE, "cron": "61 * * * *"}, 400),
        ("PUT", "/v1/schedules/s", {**SCHEDULE, "topic": "nothing"}, 404),
        ("DELETE", "/v1/schedules/nothing", None, 404),
        ("PUT", f"{DONE}/offsets/orders", {"offsets": [{"queue_id": 0, "offset": 99}]}, 416),
        ("PUT", f"{DONE}/offsets/orders", {"offsets": [{"queue_id": 9, "offset": 0}]}, 404),
        (
            "PUT",
            "/v1/groups/readers/offsets/orders",
            {"offsets": [{"queue_id": 0, "offset": 1}]},
            409,
        ),
        (
            "PUT",
            "/v1/groups/readers/offsets/orders",
            {"offsets": [{"queue_id": 0, "offset": 1}], "client_id": "m", "generation": 0},
            409,
        ),
        ("DELETE", "/v1/groups/readers/offsets/orders", None, 409),
        ("PUT", f"{DONE}/snapshots/first", None, 409),
        ("DELETE", f"{DONE}/snapshots/nothing", None, 404),
        ("POST", f"{DONE}/snapshots/nothing:restore", None, 404),
        ("DELETE", "/v1/groups/readers/members/nobody", None, 404),
        (
            "POST",
            "/v1/groups/inorder/parked:release",
            {"topic": "orders", "queue_id": 0, "queue_offset": 77, "action": "skip"},
            404,
        ),
        ("POST", "/v1/groups/billing/dlq/messages:redrive", {"all": True, "to_topic": "no"}, 404),
        ("POST", "/v1/groups/billing/dlq/messages:purge", {"filter": "sql:(", "topic": "x"}, 400),
        ("POST", "/v1/operations/nothing:cancel", None, 404),
        ("DELETE", "/v1/topics/orders/scheduled/{broken}", None, 400),
        ("PATCH", "/v1/topics/orders/scheduled/{move}", {"delay": "99d"}, 400),
        ("PUT", "/v1/groups/readers/members/m", {**BEAT, "generation": 99}, 409),
        ("PUT", "/v1/groups/readers/members/m", {"subscriptions": []}, 400),
        ("PUT", "/v1/groups/a.b/members/m", BEAT, 400),
        ("PUT", "/v1/groups/unheard3/members/m", {"subscriptions": [{"topic": "no"}]}, 404),
        ("PUT", "/v1/groups/billing/members/m", BEAT, 409),
        ("POST", "/v1/groups/readers/queues:lock", {**LOCK, "client_id": "n"}, 409),
        ("POST", "/v1/groups/nothing/queues:lock", LOCK, 404),
        ("POST", "/v1/groups/nothing/queues:unlock", UNLOCK, 404),
        ("POST", "/v1/producers:plan", {**PLAN, "topic": "nothing"}, 404),
        ("POST", "/v1/producers:seal", {"producer": "new", "epoch": 3, "messages": 5}, 409),
        ("DELETE", "/v1/producers/nobody", None, 404),
        ("POST", "/v1/transactions/nothing:commit", None, 404),
        ("POST", "/v1/transactions/{rolled}:commit", None, 409),
    ],
)
async def test_it_refuses_what_the_real_one_refuses(
    world: World, method: str, path: str, body: object, status: int
) -> None:
    if "{rolled}" in path:
        rolled = world.seen["rolled"] = world.seen["rollback"]
        await world.call("POST", f"/v1/transactions/{rolled}:rollback")
    path = path.format(broken="x", **world.seen)
    before = await unaudited(world)
    tried = await world.http.request(method, path, json=body, params={"dry_run": "true"})
    real = await world.http.request(method, path, json=body)
    assert (tried.status_code, real.status_code) == (status, status), tried.text + real.text
    for problem in (said := tried.json(), was := real.json()):
        problem.pop("request_id")
    assert said == was
    assert await unaudited(world) == before


MESSAGES = "/v1/topics/orders/groups/billing/messages"
OFFSETS = {"offsets": [{"queue_id": 0, "offset": 1}]}
REFUSED: list[tuple[str, str, str, object]] = [
    ("put_topic", "PUT", "/v1/topics/orders", {"queues": 0}),
    ("put_topic", "PUT", "/v1/topics/a.b", {}),
    ("put_namespace", "PUT", "/v1/namespaces/a.b", None),
    ("delete_namespace", "DELETE", "/v1/namespaces/nothing", None),
    ("patch_config", "PATCH", "/v1/config", {"segment_mib": 8}),
    ("patch_topic", "PATCH", "/v1/topics/nothing", {"queues": 2}),
    ("delete_topic", "DELETE", "/v1/topics/nothing", None),
    ("put_group", "PUT", "/v1/groups/readers", {"mode": "broadcast"}),
    ("patch_group", "PATCH", "/v1/groups/nothing", {"max_attempts": 2}),
    ("delete_group", "DELETE", "/v1/groups/nothing", None),
    ("pause_group", "POST", "/v1/groups/nothing:pause", None),
    ("resume_group", "POST", "/v1/groups/nothing:resume", None),
    ("put_schedule", "PUT", "/v1/schedules/s", {**SCHEDULE, "topic": "nothing"}),
    ("patch_schedule", "PATCH", "/v1/schedules/nothing", {"paused": True}),
    ("delete_schedule", "DELETE", "/v1/schedules/nothing", None),
    ("commit_group_offsets", "PUT", "/v1/groups/nobody/offsets/nothing", OFFSETS),
    ("commit_group_offsets", "PUT", "/v1/groups/billing/offsets/orders", OFFSETS),
    ("commit_group_offsets", "PUT", "/v1/groups/readers/offsets/orders", OFFSETS),
    (
        "commit_group_offsets",
        "PUT",
        "/v1/groups/nobody/offsets/orders",
        {"offsets": [{"queue_id": 0, "offset": 999}]},
    ),
    (
        "commit_group_offsets",
        "PUT",
        "/v1/groups/nobody/offsets/orders",
        {**OFFSETS, "client_id": "m", "generation": 7},
    ),
    ("reset_group_offsets", "POST", f"{DONE}/offsets/nothing:reset", {"to": "earliest"}),
    ("reset_group_offsets", "POST", "/v1/groups/nothing/offsets/orders:reset", {"to": "latest"}),
    ("reset_all_group_offsets", "POST", "/v1/groups/nothing/offsets:reset", {"to": "latest"}),
    ("put_group_subscription", "PUT", f"{DONE}/subscriptions/orders", {"filter": "sql:("}),
    ("put_group_subscription", "PUT", f"{DONE}/subscriptions/nothing", {"filter": "paid"}),
    ("delete_group_subscription", "DELETE", f"{DONE}/subscriptions/empty", None),
    ("put_snapshot", "PUT", "/v1/groups/nothing/snapshots/a", None),
    ("put_snapshot", "PUT", f"{DONE}/snapshots/first", None),
    ("restore_snapshot", "POST", f"{DONE}/snapshots/nothing:restore", None),
    ("delete_snapshot", "DELETE", f"{DONE}/snapshots/nothing", None),
    ("delete_group_offsets", "DELETE", "/v1/groups/nothing/offsets/orders", None),
    ("delete_group_offsets", "DELETE", f"{DONE}/offsets/nothing", None),
    ("delete_group_offsets", "DELETE", f"{DONE}/offsets/empty", None),
    ("delete_group_offsets", "DELETE", "/v1/groups/readers/offsets/orders", None),
    ("delete_member", "DELETE", "/v1/groups/readers/members/nobody", None),
    ("delete_member", "DELETE", "/v1/groups/nothing/members/m", None),
    (
        "release_parked",
        "POST",
        "/v1/groups/inorder/parked:release",
        {"topic": "orders", "queue_id": 0, "queue_offset": 77, "action": "skip"},
    ),
    (
        "release_parked",
        "POST",
        "/v1/groups/done/parked:release",
        {"topic": "orders", "queue_id": 0, "queue_offset": 0, "action": "retry"},
    ),
    (
        "redrive_dead_letters",
        "POST",
        "/v1/groups/billing/dlq/messages:redrive",
        {"all": True, "to_topic": "nothing"},
    ),
    (
        "redrive_dead_letters",
        "POST",
        "/v1/groups/nothing/dlq/messages:redrive",
        {"all": True},
    ),
    ("purge_dead_letters", "POST", "/v1/groups/nothing/dlq/messages:purge", {"all": True}),
    ("cancel_operation", "POST", "/v1/operations/nothing:cancel", None),
    ("move_scheduled_message", "PATCH", "/v1/topics/orders/scheduled/{move}", {"delay": "99d"}),
    ("move_scheduled_message", "PATCH", "/v1/topics/empty/scheduled/{move}", {"delay": "1h"}),
    ("cancel_scheduled_message", "DELETE", "/v1/topics/empty/scheduled/{cancel}", None),
    ("deliver_scheduled_message", "POST", "/v1/topics/empty/scheduled/{deliver}:deliver", None),
    ("commit_transaction", "POST", "/v1/transactions/nothing:commit", None),
    ("rollback_transaction", "POST", "/v1/transactions/nothing:rollback", None),
    ("send_message", "POST", "/v1/topics/a.b/messages", None),
    ("send_message", "POST", "/v1/topics/orders/messages?queue_id=99", None),
    ("send_message", "POST", "/v1/topics/orders/messages?delay=99d", None),
    ("send_batch", "POST", "/v1/topics/orders/messages:batch", {"messages": []}),
    (
        "send_batch",
        "POST",
        "/v1/topics/orders/messages:batch?queue_id=99",
        {"messages": [{"text": "a"}]},
    ),
    ("request_reply", "POST", "/v1/topics/orders/messages:request?queue_id=99", {"text": "a"}),
    ("reply_to_request", "POST", "/v1/replies/nothing", None),
    ("receive_messages", "POST", "/v1/topics/nothing.x/groups/billing/messages:receive", {}),
    ("receive_messages", "POST", "/v1/topics/orders/groups/readers/messages:receive", {}),
    ("receive_messages", "POST", "/v1/topics/orders/groups/a.b/messages:receive", {}),
    ("receive_messages", "POST", f"{MESSAGES}:receive", {"filter": "sql:("}),
    ("receive_messages", "POST", f"{MESSAGES}:receive", {"invisible": "99d"}),
    ("settle_messages", "POST", f"{MESSAGES}:settle", {"acks": ["nothing"]}),
    (
        "settle_messages",
        "POST",
        f"{MESSAGES}:settle",
        {"acks": ["nothing"], "sends": [{"topic": "orders", "text": "a"}]},
    ),
    ("ack_messages", "POST", f"{MESSAGES}:ack", {"receipt_handles": ["nothing"]}),
    ("nack_messages", "POST", f"{MESSAGES}:nack", {"receipt_handles": ["nothing"]}),
    (
        "extend_messages",
        "POST",
        f"{MESSAGES}:extend",
        {"receipt_handles": ["nothing"], "invisible": "1m"},
    ),
    ("dead_letter_messages", "POST", f"{MESSAGES}:dead-letter", {"receipt_handles": ["nothing"]}),
    ("ack_receipt", "DELETE", "/v1/receipts/nothing", None),
    ("change_receipt", "PATCH", "/v1/receipts/nothing", {"action": "nack"}),
    (
        "put_member",
        "PUT",
        "/v1/groups/billing/members/m",
        {"subscriptions": [{"topic": "orders"}], "generation": 0},
    ),
    (
        "put_member",
        "PUT",
        "/v1/groups/nobody/members/m",
        {"subscriptions": [{"topic": "a.b"}], "generation": 0},
    ),
    (
        "put_member",
        "PUT",
        "/v1/groups/readers/members/m",
        {"subscriptions": [{"topic": "orders"}], "generation": 99},
    ),
    (
        "lock_queues",
        "POST",
        "/v1/groups/readers/queues:lock",
        {"client_id": "nobody", "generation": 1, "queues": [{"topic": "orders", "queue_id": 0}]},
    ),
    (
        "unlock_queues",
        "POST",
        "/v1/groups/nothing/queues:unlock",
        {"client_id": "nobody", "generation": 1, "queues": [{"topic": "orders", "queue_id": 0}]},
    ),
    ("poll_queues", "POST", "/v1/groups/billing/members:poll", {"client_id": "m"}),
    ("put_principal", "PUT", "/v1/principals/shop", {"roles": ["producer"]}),
    ("delete_principal", "DELETE", "/v1/principals/nobody", None),
    ("make_key", "POST", "/v1/principals/nobody/keys", None),
    ("revoke_key", "DELETE", "/v1/principals/nobody/keys/none", None),
    ("put_policy", "PUT", "/v1/policies/p", {**POLICY, "subject": "nobody"}),
    ("delete_policy", "DELETE", "/v1/policies/nothing", None),
    ("plan_epoch", "POST", "/v1/producers:plan", {"prefix": "a", "epoch": -1}),
    ("seal_producer", "POST", "/v1/producers:seal", {"prefix": "", "epoch": -1}),
    ("delete_producer", "DELETE", "/v1/producers/nobody", None),
    ("hand_over_shard", "POST", "/v1/shards/nowhere/hand-over", None),
    ("drain_shard", "POST", "/v1/shards/nowhere/drain", {"keys": True}),
    ("undo_drain", "DELETE", "/v1/shards/nowhere/drain", None),
    ("elect_replica", "POST", "/v1/shards/nowhere/elect", {"replica": "x", "unclean": True}),
    ("remove_replica", "DELETE", "/v1/shards/nowhere/replicas/x", None),
    ("reset_replica", "POST", "/v1/shards/nowhere/replicas/x/reset", None),
    (
        "receive_transactions",
        "POST",
        "/v1/producer-groups/a.b/transactions:receive",
        {},
    ),
]
"""Each operation with a name that nobody has, or a state that it does not fit."""


def test_every_operation_is_refused_once() -> None:
    operations = control_operations(build_document()) | DATA_PLANE
    assert {each[0] for each in REFUSED} == operations


async def test_what_is_refused_changes_nothing(world: World) -> None:
    await world.call("PUT", "/v1/topics/empty", {"queues": 1})
    before = await unaudited(world)
    for operation, method, path, body in REFUSED:
        answer = await world.http.request(method, path.format(**world.seen), json=body)
        refused = [answer.status_code]
        if answer.status_code == 200:  # one status for each handle
            refused = [each["error"]["status"] for each in answer.json()["results"]]
        assert refused, operation
        assert all(400 <= status < 500 for status in refused), f"{operation}: {answer.text}"
        assert await unaudited(world) == before, f"{operation} {path}: {answer.text}"


async def unaudited(world: World) -> dict[str, Any]:
    """The state without the audit, which has what was intended and failed."""
    state = await world.state()
    for table in ("audit_entries", "audit_heads"):
        del state["sql"][table]
    return state


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{DONE}/offsets/orders:reset", {"to": "earliest"}),
        (f"{DONE}/offsets:reset", {"to": "earliest"}),
        (f"{DONE}/snapshots/first:restore", {}),
        ("/v1/groups/billing/dlq/messages:redrive", {"offsets": [4]}),
        ("/v1/groups/billing/dlq/messages:purge", {"offsets": [4]}),
    ],
)
async def test_the_member_of_the_body_stays_and_may_not_contradict(
    world: World, path: str, body: dict[str, object]
) -> None:
    before = await world.state()
    for in_body, in_query in ((True, None), (True, "true"), (None, "true")):
        sent = body if in_body is None else {**body, "dry_run": in_body}
        params = {} if in_query is None else {"dry_run": in_query}
        tried = await world.http.post(path, json=sent, params=params)
        assert (tried.status_code, tried.json()["dry_run"]) == (200, True), tried.text
    for member, parameter in ((True, "false"), (False, "true")):
        both = await world.http.post(
            path, json={**body, "dry_run": member}, params={"dry_run": parameter}
        )
        assert (both.status_code, both.json()["errors"][0]["pointer"]) == (400, "/dry_run")
    unknown = await world.http.post(path, json=body, params={"dry_run": "perhaps"})
    assert (unknown.status_code, unknown.json()["code"]) == (400, "BAD_REQUEST")
    assert await world.state() == before

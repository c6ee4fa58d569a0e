"""The client's `admin` has what the control plane has: each operation, each parameter, each
property."""

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, is_typeddict

import pytest
from curlew_client import Client, documents
from curlew_client.blocking.admin.admin import Admin
from curlew_client.errors import ServiceError

from tests.support.nodes.node import run_node

DOCUMENT: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "openapi" / "openapi.json").read_text()
)
SCHEMAS: Final = DOCUMENT["components"]["schemas"]

NOT_OF_ADMIN: Final = {
    # what producers and consumers do by the client's other calls
    *("ack_messages", "ack_receipt", "change_receipt", "dead_letter_messages", "extend_messages"),
    *("lock_queues", "nack_messages", "plan_epoch", "poll_queues", "pull_messages", "put_member"),
    *("receive_messages", "receive_transactions", "reply_to_request", "request_reply"),
    *("seal_producer", "send_batch", "send_message", "settle_messages", "stream_group"),
    *("stream_topic", "unlock_queues", "get_positions"),
    # what says no more than a `get`, and what programs that watch nodes read
    *(
        "get_health",
        "get_metrics",
        "head_group",
        "head_queue",
        "head_schedule",
        "head_topic",
    ),
}
PAGED_BY_THE_CLIENT: Final = {"page_token", "page_size"}
SHOWN_OTHERWISE: Final = {
    ("delete_producer", "dry_run"),
    ("list_groups", "show"),
    ("make_key", "dry_run"),
    ("redrive_dead_letters", "dry_run"),
}
"""`plan_redrive` is the dry run; what is not made, or not forgotten, has nothing to show; what a
list shows of groups, `get_lag` and `get_dead_letters` show of one."""

OF_CLIENT: Final = {
    "TopicConsumption": "ConsumptionDocument",
    "ProducerSequence": "SequenceDocument",
    "GroupSettings": "GroupBody",
    "TopicSettings": "TopicBody",
    "ScheduleSettings": "ScheduleBody",
    "PolicySettings": "PolicyBody",
    "PrincipalSettings": "PrincipalBody",
    "KeySettings": "KeyBody",
    "SubscriptionSettings": "SubscriptionSettingBody",
    "ParkedRelease": "ReleaseBody",
    "NewKey": "IssuedKeyDocument",
    "NewTime": "MoveBody",
    "OffsetCommit": "CommitBody",
    "OffsetReset": "ResetBody",
    "OffsetsReset": "ResetAllBody",
    "LettersToPurge": "PurgeBody",
    "LettersToRedrive": "RedriveBody",
}
"""Typed dicts that have another name than the schema of the HTTP API's document."""


def _operations() -> dict[str, list[dict[str, Any]]]:
    found = {}
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            if isinstance(operation, dict) and "operationId" in operation:
                shown = operation.get("parameters", [])
                found[operation["operationId"]] = [_parameter(each) for each in shown]
    return found


def _parameter(shown: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in shown:
        return shown
    found: dict[str, Any] = DOCUMENT["components"]["parameters"][shown["$ref"].split("/")[-1]]
    return found


OPERATIONS: Final = {
    name: parameters for name, parameters in _operations().items() if name not in NOT_OF_ADMIN
}
TYPES: Final = {
    name: kind
    for module in pkgutil.iter_modules(documents.__path__, "curlew_client.documents.")
    for name, kind in vars(importlib.import_module(module.name)).items()
    if is_typeddict(kind) and kind.__module__ == module.name and not name.startswith("_")
}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_has_its_method(name: str) -> None:
    method = getattr(Admin, name, None)
    assert method is not None, f"admin has no {name}"
    known = set(inspect.signature(method).parameters)
    for parameter in OPERATIONS[name]:
        asked = parameter["name"].lower().replace("-", "_")
        is_of_every_call = asked in {"mq_namespace", "prefer"}
        is_paged = asked in PAGED_BY_THE_CLIENT and asked not in known
        if is_of_every_call or is_paged or (name, asked) in SHOWN_OTHERWISE:
            continue
        if parameter["in"] == "query" and "settings" in known and asked not in known:
            asked = _of_the_body(name, asked)
        assert asked in known, f"{name} does not take {asked}"


def _of_the_body(operation: str, asked: str) -> str:
    """What the body says, too, is not a parameter beside it."""
    (settings,) = (
        inspect.signature(getattr(Admin, operation)).parameters["settings"].annotation.__args__
    )
    return "settings" if asked in settings.__annotations__ else asked


@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_document_has_the_properties_of_its_schema(name: str) -> None:
    schema = SCHEMAS.get(OF_CLIENT.get(name, f"{name}Document")) or SCHEMAS[name]
    kind = TYPES[name]
    own = {
        member
        for member, described in schema["properties"].items()
        if not described.get("description", "").startswith("Only in a ")  # never in this one
    }
    shown = own - ({"dry_run"} if name in OF_CLIENT else set())
    assert set(kind.__annotations__) == shown
    assert kind.__required_keys__ == set(schema.get("required", [])) & shown


@pytest.fixture(scope="module")
def curlew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        run_node(tmp_path_factory.mktemp("admin") / "node") as running,
        Client(running.url) as client,
    ):
        client.admin.put_topic("orders", queues=2)
        client.admin.put_group("billing")
        client.send("orders", "a", keys=["order-1"])
        yield client


READ: Final = [
    *("list_topics", "list_groups", "list_namespaces", "list_nodes", "list_operations"),
    *("list_policies", "list_principals", "list_roles", "list_schedules", "list_transactions"),
    *("list_error_codes", "get_audit", "get_config", "get_limits", "get_readiness", "get_whoami"),
    *("get_cluster", "get_cluster_events", "get_stats"),
    "search_traces",
]


@pytest.mark.parametrize("name", READ)
def test_what_is_of_no_name_can_be_read(name: str, curlew: Client) -> None:
    _check(name, getattr(curlew.admin, name)())


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in sorted(OPERATIONS)
        if "group" in inspect.signature(getattr(Admin, name)).parameters
        and name.startswith(("get_", "list_"))
        and len(OPERATIONS[name]) <= 2
    ],
)
def test_what_is_of_a_group_can_be_read(name: str, curlew: Client) -> None:
    _check(name, getattr(curlew.admin, name)("billing"))


@pytest.mark.parametrize(
    "name", ["get_topic", "get_topic_stats", "list_topic_producers", "browse_messages",
             "list_scheduled_messages", "search_topic_traces"],
)  # fmt: skip
def test_what_is_of_a_topic_can_be_read(name: str, curlew: Client) -> None:
    _check(name, getattr(curlew.admin, name)("orders"))


def test_a_change_names_the_version_that_it_is_of(curlew: Client) -> None:
    version = str(curlew.admin.get_topic("orders")["version"])
    changed = curlew.admin.patch_topic("orders", retention="2d", if_match=f'"{version}"')
    assert changed["retention"] == "2d"
    with pytest.raises(ServiceError, match="PRECONDITION_FAILED"):
        curlew.admin.patch_topic("orders", retention="3d", if_match=f'"{version}"')


def _check(name: str, answer: Any) -> None:
    kind = inspect.signature(getattr(Admin, name)).return_annotation
    rows = answer if isinstance(answer, list) else [answer]
    kind = kind.__args__[0] if isinstance(answer, list) else kind
    for row in rows:
        if is_typeddict(kind):
            assert kind.__required_keys__ <= set(row) <= set(kind.__annotations__)
        else:
            assert row

"""Every name that the document has a place for, filled by each of three teams with each other's:
never a success, and the same bytes whether or not there is such a thing.

The places come from the OpenAPI document (paths, queries, headers, and members of bodies at any
depth), one foreign name at a time with all others the asker's own, so that a new operation or
member is tried without anybody listing it. The asker may everything on its own names. Positive
control: a node that decides on nothing.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from app.api.access.operation_rights import OperationRights
from app.api.document.openapi import build_document
from app.domain.access.standing import Standing
from tests.support.clients.asgi import Answer
from tests.support.nodes.access_matrix import (
    BODIES,
    LISTS,
    MISSING,
    NAMES,
    OWN,
    QUERIES,
    TEAMS,
    others_of,
)
from tests.support.nodes.closed import EVERYBODY, ClosedNode, closed_node, principal

pytestmark = pytest.mark.anyio

DOCUMENT = build_document()
ALL = tuple(
    principal(
        team,
        "producer",
        "consumer",
        "operator",
        to=(f"topic:{team}-*", f"group:{team}-*", f"producer:{team}-*"),
    )
    for team in TEAMS
)
"""They may everything that a team may, on their own names."""

NAME_OF: Mapping[str, str] = {
    "topic": "{team}-in",
    "topics": "{team}-in",
    "to_topic": "{team}-in",
    "group": "{team}-g",
    "producer": "{team}-job",
    "producer_id": "{team}-job",
    "producer_group": "{team}-pg",
}
"""Parameters and members of bodies that are names, wherever they stand."""
HEADERS: Mapping[str, str] = {
    "MQ-Producer-Id": "producer_id",
    "MQ-Producer-Group": "producer_group",
}
BESIDE: Mapping[str, Mapping[str, str]] = {
    "MQ-Producer-Id": {"MQ-Producer-Epoch": "1", "MQ-Producer-Seq": "0"},
    "MQ-Producer-Group": {"MQ-Transaction": "prepare"},
}
WITH_PRODUCER = {"producer_epoch": "1", "producer_seq": "0"}
IN_BODIES: Mapping[str, Mapping[str, object]] = {
    "put_member": {
        "subscriptions": [{"topic": "{own}-in"}],
        "queues": [{"topic": "{own}-in", "queue_id": 0}],
    },
    "poll_queues": {
        "client_id": "c1",
        "subscriptions": [{"topic": "{own}-in"}],
        "queues": [{"topic": "{own}-in", "queue_id": 0}],
        "positions": [{"topic": "{own}-in", "queue_id": 0, "offset": 0}],
        "paused": [{"topic": "{own}-in", "queue_id": 0}],
        "commits": [{"topic": "{own}-in", "queue_id": 0, "offset": 0}],
        "hand_backs": [{"topic": "{own}-in", "queue_id": 0, "queue_offset": 0}],
    },
    "lock_queues": {
        "client_id": "c1",
        "generation": 1,
        "queues": [{"topic": "{own}-in", "queue_id": 0}],
    },
    "unlock_queues": {"client_id": "c1", "queues": [{"topic": "{own}-in", "queue_id": 0}]},
    "plan_epoch": {"producer": "{own}-job", "epoch": 1, "topic": "{own}-in"},
    "seal_producer": {"producer": "{own}-job", "epoch": 1},
    "put_schedule": {"cron": "0 3 * * *", "topic": "{own}-in", "message": {"text": "x"}},
    "patch_schedule": {"topic": "{own}-in"},
    "release_parked": {
        "topic": "{own}-in",
        "queue_id": 0,
        "queue_offset": 0,
        "action": "retry",
    },
    "reset_all_group_offsets": {"to": "earliest", "topics": ["{own}-in"]},
    "redrive_dead_letters": {"topic": "{own}-in", "to_topic": "{own}-in"},
    "purge_dead_letters": {"topic": "{own}-in"},
    "send_batch": {"messages": [{"text": "x"}]},
    "settle_messages": {"acks": ["x"], "sends": [{"topic": "{own}-in", "text": "x"}]},
}
"""Bodies with every name that the document has a place for. The test says which is missing."""
NOT_TAKEN = {("poll_queues", "settles.sends.topic")}
"""The shape is shared; there it is refused."""
ANSWERED = LISTS | {"get_whoami", "search_topic_traces"}
"""Foreign names in their queries choose rows, of which none is shown; or ask what one may."""
OF_THE_GROUP = {
    ("purge_dead_letters", "body topic"),
    ("redrive_dead_letters", "body topic"),
}
"""Choose among the letters of the asker's own group, of which there are none: those that come from
a topic that it may not read are tried with all that a redrive asks for (`test_matrix`)."""


class Asked(NamedTuple):
    """A request with one foreign name in it."""

    operation_id: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: object
    place: str

    async def to(self, node: ClosedNode, who: str, team: str) -> Answer:
        """What a team is answered that asks with the name of another one."""

        def named(text: str) -> str:
            return text.replace("{team}", team).replace("{own}", who)

        query = "&".join(f"{name}={named(text)}" for name, text in self.query.items())
        headers = {name: named(text) for name, text in self.headers.items()}
        body = json.loads(named(json.dumps(self.body)))
        path = named(self.path)
        return await node.ask(who, self.method, path, body, query=query, headers=headers)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of each."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def parameters(operation: dict[str, Any], place: str) -> list[str]:
    known = DOCUMENT["components"].get("parameters", {})
    found = [
        known[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        for each in operation.get("parameters", ())
    ]
    return [each["name"] for each in found if each["in"] == place]


def plain(method: str, path: str, operation: dict[str, Any]) -> Asked:
    """The request with the asker's own names."""
    operation_id = operation["operationId"]
    body = IN_BODIES.get(operation_id, BODIES.get(operation_id))
    query = dict(part.split("=") for part in QUERIES.get(operation_id, "").split("&") if part)
    for name in parameters(operation, "path"):
        if name not in NAME_OF:
            path = path.replace("{" + name + "}", NAMES[name].format(team="{own}", who="c1"))
    return Asked(operation_id, method, path, query, {}, body, "")


def in_path(path: str, foreign: str) -> str:
    """With the names of the asker, but for one."""
    for name, text in NAME_OF.items():
        path = path.replace(
            "{" + name + "}", text if name == foreign else text.format(team="{own}")
        )
    return path


def members(body: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where names stand in a body."""
    if isinstance(body, dict):
        for name, value in body.items():
            if name in NAME_OF and isinstance(value, str):
                yield (*path, name)
            elif name in NAME_OF and isinstance(value, list):
                yield from ((*path, name, index) for index in range(len(value)))
            yield from members(value, (*path, name))
    elif isinstance(body, list):
        for index, value in enumerate(body):
            yield from members(value, (*path, index))


def replaced(body: Any, path: tuple[str | int, ...]) -> object:
    changed = copy.deepcopy(body)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = NAME_OF[next(step for step in reversed(path) if isinstance(step, str))]
    return changed


def in_queries(asked: Asked, operation: dict[str, Any]) -> Iterator[Asked]:
    """Each foreign name in the query, with what has to be beside it."""
    beside = {"producer_id": WITH_PRODUCER, "producer_group": {"transaction": "prepare"}}
    for name in parameters(operation, "query"):
        if name in NAME_OF:
            more = {} if asked.operation_id in ANSWERED else beside.get(name, {})
            query = {**asked.query, **more, name: NAME_OF[name]}
            yield asked._replace(query=query, place=f"query {name}")


def in_headers(asked: Asked, operation: dict[str, Any]) -> Iterator[Asked]:
    for name in parameters(operation, "header"):
        if name in HEADERS:
            headers = {**BESIDE[name], name: NAME_OF[HEADERS[name]]}
            yield asked._replace(headers=headers, place=f"header {name}")


def all_asked() -> Iterator[Asked]:
    """Each place of the document once."""
    for method, path, operation in operations():
        base = plain(method, path, operation)
        own = base._replace(path=in_path(base.path, ""))
        for name in parameters(operation, "path"):
            if name in NAME_OF:
                yield base._replace(path=in_path(base.path, name), place=f"path {name}")
        yield from in_queries(own, operation)
        yield from in_headers(own, operation)
        for where in members(base.body):
            shown = ".".join(map(str, where))
            yield own._replace(body=replaced(base.body, where), place=f"body {shown}")


def described(schema: Any, path: tuple[str, ...] = (), seen: tuple[str, ...] = ()) -> Iterator[str]:
    """Members that are names, in a schema of the document."""
    if "$ref" in schema:
        if schema["$ref"] in seen:
            return
        seen = (*seen, schema["$ref"])
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from described(each, path, seen)
    for name, inner in schema.get("properties", {}).items():
        if name in NAME_OF:
            yield ".".join((*path, name))
        yield from described(inner, (*path, name), seen)
    if isinstance(schema.get("items"), dict):
        yield from described(schema["items"], path, seen)


async def make(node: ClosedNode) -> None:
    """What there is of both teams; an operation on own names may have taken it away."""
    for team in TEAMS:
        await node.world.topic(2, name=f"{team}-in")
        await node.world.metadata.ensure_group(f"{team}-g")


def _comparable(body: bytes) -> bytes:
    """Without the metadata version, which `make` raises."""
    return re.sub(rb'"metadata_version":\d+', b"", body)


async def wrong_of(node: ClosedNode, asked: Asked, who: str) -> list[str]:
    """What is not as it should be with one place."""
    await make(node)
    missing = await asked.to(node, who, MISSING)
    wrong = []
    for other in others_of(who):
        await make(node)
        found = await asked.to(node, who, other)
        cell = f"{asked.operation_id} {asked.place} {who} {other}: {found.status} {found.body!r}"
        expected = _comparable(missing.body.replace(MISSING.encode(), other.encode()))
        if (asked.operation_id, asked.place) in OF_THE_GROUP:
            wrong += [] if found.status == missing.status else [cell]
        elif expected != _comparable(found.body):
            wrong += [f"{cell}: differs from {missing.status} {missing.body!r}"]
        elif found.status != 403 and asked.operation_id not in ANSWERED:
            wrong += [cell]
    return wrong


@pytest.mark.parametrize("who", TEAMS)
async def test_no_foreign_name_is_answered_wherever_it_stands(who: str) -> None:
    wrong = []
    places = set()
    async with closed_node() as node:
        node.access.show([*(each for each in EVERYBODY if each.name not in TEAMS), *ALL])
        for asked in all_asked():
            places.add(asked.place.split()[0])
            wrong += await wrong_of(node, asked, who)
    assert wrong == []
    assert places == {"path", "query", "header", "body"}


def test_every_name_that_a_body_may_have_is_tried() -> None:
    missing = []
    for method, path, operation in operations():
        body = plain(method, path, operation).body
        tried = {".".join(str(s) for s in where if isinstance(s, str)) for where in members(body)}
        for content in operation.get("requestBody", {}).get("content", {}).values():
            wanted = set(described(content["schema"])) - tried
            missing += [
                (operation["operationId"], each)
                for each in wanted
                if (operation["operationId"], each) not in NOT_TAKEN
            ]
    assert missing == []


async def test_a_node_that_decides_on_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def anything(_: OperationRights, standing: Standing, *__: object) -> None:
        standing.for_anybody()

    monkeypatch.setattr(OperationRights, "require", anything)
    asked = next(each for each in all_asked() if each.operation_id == "get_topic")
    async with closed_node() as node:
        assert await wrong_of(node, asked, OWN) != []

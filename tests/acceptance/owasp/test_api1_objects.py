"""API1, broken object level authorization: every name of another team in every place that the
document has for one, and every id and handle of its, at every node.

Positive control: `test_foreign_names` has a node that decides on nothing.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.support.cluster.closed_cluster import TEAMS, ClosedCluster
from tests.support.nodes.access_matrix import MISSING
from tests.unit.api.access.test_foreign_names import ANSWERED, OF_THE_GROUP, Asked, all_asked

pytestmark = pytest.mark.anyio

SAME = {"mq-request-id": "the-same"}


async def ask(
    target: ClosedCluster, node: int, asked: Asked, who: str, team: str
) -> tuple[int, str]:
    def named(text: str) -> str:
        return text.replace("{team}", team).replace("{own}", who)

    query = "&".join(f"{name}={named(text)}" for name, text in asked.query.items())
    headers = {name: named(text) for name, text in asked.headers.items()} | SAME
    more: dict[str, Any] = {}
    if asked.body is not None:
        more["json"] = json.loads(named(json.dumps(asked.body)))
    path = f"{named(asked.path)}?{query}" if query else named(asked.path)
    answer = await target.ask(node, who, asked.method, path, headers=headers, **more)
    text = re.sub(r'"metadata_version":\d+', "", answer.text).replace(team, "{team}")
    return answer.status_code, text


async def owned(target: ClosedCluster, team: str) -> dict[str, Any]:
    """All that a team has, as an administrator sees it."""
    paths = [f"topics/{team}-in", f"groups/{team}-g", f"principals/{team}", "policies"]
    paths += [f"topics/{team}-in/offsets?at=latest", f"groups/{team}-g/offsets"]
    paths.append(f"groups/{team}-g/members")
    found = {}
    for path in paths:
        answer = await target.ask(0, "root", "GET", f"/v1/{path}")
        assert answer.status_code == 200, answer.text
        found[path] = re.sub(r'"(last_used_ms|metadata_version)":\d+', "", answer.text)
    return found


@pytest.mark.parametrize("who", TEAMS)
async def test_no_name_of_another_team_is_answered(target: ClosedCluster, who: str) -> None:
    others = [each for each in TEAMS if each != who]
    before, wrong, count = [await owned(target, each) for each in others], [], 0
    for number, asked in enumerate(all_asked()):
        node = number % len(target.nodes)
        is_of_own_group = (asked.operation_id, asked.place) in OF_THE_GROUP
        missing = await ask(target, node, asked, who, MISSING)
        for other in others:
            count += 1
            found = await ask(target, node, asked, who, other)
            cell = f"{asked.operation_id} {asked.place} {other} by node {node}: {found}"
            if is_of_own_group:
                wrong += [] if found[0] == missing[0] else [cell]
            elif found != missing:
                wrong += [f"{cell} differs from {missing}"]
            elif found[0] != 403 and asked.operation_id not in ANSWERED:
                wrong += [cell]
    assert wrong == []
    assert count > 200
    assert [await owned(target, each) for each in others] == before


async def made(target: ClosedCluster, team: str) -> dict[str, str]:
    """Things of a team, by the parameter of paths that names them."""

    async def ask(method: str, path: str, **more: Any) -> httpx.Response:
        answer = await target.ask(0, team, method, f"/v1/{path}", **more)
        assert answer.is_success, answer.text
        return answer

    topic = f"topics/{team}-in"
    sent = await ask("POST", f"{topic}/messages?queue_id=0", content=b"x")
    received = await ask("POST", f"{topic}/groups/{team}-g/messages:receive?wait=5")
    await ask("PUT", f"topics/{team}-later", json={"type": "delay"})
    delayed = await ask("POST", f"topics/{team}-later/messages?delay=1h", content=b"x")
    await ask("PUT", f"topics/{team}-sure", json={"type": "transaction"})
    headers = {"MQ-Transaction": f"prepare; group={team}-pg"}
    prepared = await ask("POST", f"topics/{team}-sure/messages", content=b"x", headers=headers)
    schedule = {"cron": "0 3 * * *", "topic": f"{team}-in", "message": {"text": "x"}}
    await ask("PUT", f"schedules/{team}-s", json=schedule)
    return {
        "message_id": sent.json()["message_id"],
        "handle": received.json()["messages"][0]["receipt_handle"],
        "recall_handle": delayed.json()["recall_handle"],
        "transaction_id": prepared.json()["transaction_id"],
        "name": f"{team}-s",
    }


BY_ID: Mapping[str, tuple[str, str, Any]] = {
    "ack a receipt": ("DELETE", "receipts/{handle}", None),
    "extend a receipt": ("PATCH", "receipts/{handle}", {"invisible": "60s"}),
    "ack by one's own group": (
        *("POST", "topics/{own}-in/groups/{own}-g/messages:ack"),
        {"receipt_handles": ["{handle}"]},
    ),
    "settle by one's own group": (
        *("POST", "topics/{own}-in/groups/{own}-g/messages:settle"),
        {"acks": ["{handle}"]},
    ),
    "read a transaction": ("GET", "transactions/{transaction_id}", None),
    "commit a transaction": ("POST", "transactions/{transaction_id}:commit", None),
    "roll a transaction back": ("POST", "transactions/{transaction_id}:rollback", None),
    "read a schedule": ("GET", "schedules/{name}", None),
    "change a schedule": ("PATCH", "schedules/{name}", {"paused": True}),
    "delete a schedule": ("DELETE", "schedules/{name}", None),
    "read a message in one's own topic": ("GET", "topics/{own}-in/messages/{message_id}", None),
    "recall in one's own topic": ("DELETE", "topics/{own}-in/scheduled/{recall_handle}", None),
}


async def test_no_id_of_another_team_is_found(target: ClosedCluster) -> None:
    """The answer is that to the same id when it was used up or never was."""
    things = await made(target, "beta")
    for what, (method, template, body) in BY_ID.items():
        for node in range(len(target.nodes)):
            path, text = template, json.dumps(body)
            for name, thing in {**things, "own": "alpha"}.items():
                path, text = (each.replace(f"{{{name}}}", thing) for each in (path, text))
            more = {} if body is None else {"json": json.loads(text)}
            answer = await target.ask(node, "alpha", method, f"/v1/{path}", **more)
            if "one's own group" in what and answer.status_code == 200:
                assert '"acked":1' not in answer.text.replace(" ", ""), f"{what}: {answer.text}"
                assert "INVALID_RECEIPT_HANDLE" in answer.text, f"{what}: {answer.text}"
                continue
            assert answer.status_code in (400, 403, 404, 410), f"{what}: {answer.text}"
            assert "beta-" not in answer.text.replace(things["name"], ""), what
    for path in (f"transactions/{things['transaction_id']}", "schedules/beta-s"):
        kept = await target.ask(0, "beta", "GET", f"/v1/{path}")
        assert kept.status_code == 200, kept.text
    acked = await target.ask(0, "beta", "DELETE", f"/v1/receipts/{things['handle']}")
    assert acked.status_code == 204, "nobody has used it"

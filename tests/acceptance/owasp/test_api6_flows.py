"""API6, unrestricted access to sensitive business flows: what one request does in several steps or
places is permitted as a whole, before its first step."""

from typing import Any

import httpx
import pytest

from tests.support.cluster.closed_cluster import ClosedCluster

pytestmark = pytest.mark.anyio


async def done(
    target: ClosedCluster, who: str, method: str, path: str, **more: Any
) -> httpx.Response:
    answer = await target.ask(0, who, method, f"/v1/{path}", **more)
    assert answer.is_success, answer.text
    return answer


async def refused(target: ClosedCluster, who: str, method: str, path: str, **more: Any) -> None:
    for node in range(len(target.nodes)):
        answer = await target.ask(node, who, method, f"/v1/{path}", **more)
        assert answer.status_code == 403, f"{path} by node {node}: {answer.text}"


async def test_acks_with_sends_to_another_team_settle_nothing(target: ClosedCluster) -> None:
    await done(target, "alpha", "POST", "topics/alpha-in/messages", content=b"x")
    receive = "topics/alpha-in/groups/alpha-g/messages:receive?wait=10"
    found = (await done(target, "alpha", "POST", receive)).json()["messages"]
    handle = found[0]["receipt_handle"]
    sends = [{"topic": "alpha-in", "text": "y"}, {"topic": "beta-in", "text": "x"}]
    before = await target.stored("beta-in"), await target.stored("alpha-in")
    settle = "topics/alpha-in/groups/alpha-g/messages:settle"
    await refused(target, "alpha", "POST", settle, json={"acks": [handle], "sends": sends})
    assert (await target.stored("beta-in"), await target.stored("alpha-in")) == before
    await done(target, "alpha", "DELETE", f"receipts/{handle}")


async def test_letters_are_redriven_to_nobody_else(target: ClosedCluster) -> None:
    for is_dry in (False, True):
        body = {"all": True, "to_topic": "beta-in", "dry_run": is_dry}
        await refused(target, "alpha", "POST", "groups/alpha-g/dlq/messages:redrive", json=body)
    await refused(
        *(target, "alpha", "POST", "groups/beta-g/dlq/messages:redrive"),
        json={"all": True, "to_topic": "alpha-in"},
    )


async def test_no_schedule_sends_for_another_team(target: ClosedCluster) -> None:
    body = {"cron": "0 3 * * *", "topic": "beta-in", "message": {"text": "x"}}
    await refused(target, "alpha", "PUT", "schedules/alpha-s", json=body)
    await done(target, "alpha", "PUT", "schedules/alpha-s", json={**body, "topic": "alpha-in"})
    await refused(target, "alpha", "PATCH", "schedules/alpha-s", json={"topic": "beta-in"})
    taken = await target.ask(
        0, "beta", "PUT", "/v1/schedules/alpha-s", json={**body, "topic": "beta-in"}
    )
    assert taken.status_code in (403, 404, 409), taken.text
    assert (await done(target, "alpha", "GET", "schedules/alpha-s")).json()["topic"] == "alpha-in"


async def test_nobody_fences_or_seals_the_producer_of_another_team(target: ClosedCluster) -> None:
    def headers(epoch: int, seq: int) -> dict[str, str]:
        return {
            "MQ-Producer-Id": "beta-job",
            "MQ-Producer-Epoch": str(epoch),
            "MQ-Producer-Seq": str(seq),
        }

    own = "topics/alpha-in/messages?queue_id=0"
    last = 2**53 - 1
    await refused(target, "alpha", "POST", own, content=b"x", headers=headers(last, 0))
    for name in ("beta-job", "beta", "b"):
        seal = {"producer": name, "epoch": last}
        await refused(target, "alpha", "POST", "producers:seal", json=seal)
    await refused(
        target,
        "alpha",
        "POST",
        "producers:plan",
        json={"producer": "beta-job", "epoch": 1, "topic": "alpha-in"},
    )
    theirs = "topics/beta-in/messages?queue_id=0"
    await done(target, "beta", "POST", theirs, content=b"x", headers=headers(1, 0))


async def test_an_idempotency_key_of_another_gives_nothing_away(target: ClosedCluster) -> None:
    """Nor keeps anybody from sending under the same word."""
    policy = {
        "subject": "principal:alpha",
        "effect": "ALLOW",
        "actions": ["PUB"],
        "resources": ["topic:gamma-in"],
    }
    await done(target, "root", "PUT", "policies/shared", json=policy)
    await target.refresh()
    headers = {"idempotency-key": '"the-same"'}
    path = "topics/gamma-in/messages?queue_id=0"
    first = await done(target, "gamma", "POST", path, content=b"mine", headers=headers)
    second = await done(target, "alpha", "POST", path, content=b"other", headers=headers)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["message_id"] != second.json()["message_id"]
    await done(target, "root", "DELETE", "policies/shared")


async def test_the_last_administrator_stays(target: ClosedCluster) -> None:
    name = (await target.ask(0, "root", "GET", "/v1/whoami")).json()["principal"]
    keys = (await done(target, "root", "GET", f"principals/{name}")).json()["keys"]
    for node in range(len(target.nodes)):
        for method, path, body in (
            ("DELETE", f"principals/{name}", None),
            ("DELETE", f"principals/{name}/keys/{keys[0]['id']}", None),
            ("PUT", f"principals/{name}", {"roles": ["viewer"]}),
            ("PUT", f"principals/{name}", {"roles": ["admin"], "disabled": True}),
            ("PUT", f"principals/{name}", {"roles": ["admin"], "resources": ["topic:x"]}),
        ):
            answer = await target.ask(node, "root", method, f"/v1/{path}", json=body)
            assert answer.status_code == 409, f"{method} {path} {body}: {answer.text}"
    assert (await target.ask(0, "root", "GET", "/v1/principals")).status_code == 200

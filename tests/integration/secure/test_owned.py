"""Quotas of topics and groups over HTTP: whatever makes them counts, on the way in the path and in
bodies, for whoever asked."""

import asyncio
from collections import Counter
from pathlib import Path

import httpx
import pytest

from app.domain.limits import Limits
from tests.support.clients.wire import served_node

pytestmark = pytest.mark.anyio

RESOURCES = ["topic:red-*", "group:red-*", "topic:orders", "cluster"]


async def test_each_way_to_make_one_counts(tmp_path: Path) -> None:
    quotas = {"quota_topics": 2, "quota_groups": 1, "quota_schedules": 1}
    async with served_node(tmp_path, Limits(), auto_create_topics=True, **quotas) as server:
        principals = server.node.metadata.principals
        key = (await principals.make_first()).text
        await principals.refresh()
        url = f"http://127.0.0.1:{server.port}"
        bearer = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=url, headers=bearer, timeout=60) as admin:
            made = {"roles": ["producer", "consumer", "operator"], "resources": RESOURCES}
            assert (await admin.put("/v1/principals/red", json=made)).status_code == 201
            given = (await admin.post("/v1/principals/red/keys")).json()["key"]
            red_header = {"authorization": f"Bearer {given}"}
            async with httpx.AsyncClient(base_url=url, headers=red_header, timeout=60) as red:
                await _make_all_ways(admin, red)
                await _make_schedules(red)
                await _take_over_a_schedule(admin)


def _check(answer: httpx.Response, bound: str, limit: int) -> None:
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (403, "QUOTA_EXCEEDED"), answer.text
    assert (problem["bound"], problem["limit"], problem["retryable"]) == (bound, limit, False)


async def _make_all_ways(admin: httpx.AsyncClient, red: httpx.AsyncClient) -> None:
    sent = await red.post("/v1/topics/red-a/messages", content=b"x")
    assert sent.status_code == 201, sent.text
    answers = await asyncio.gather(
        *[red.put(f"/v1/topics/red-{number}", json={}) for number in range(6)]
    )
    assert Counter(each.status_code for each in answers) == {201: 1, 403: 5}
    [second] = [number for number, each in enumerate(answers) if each.status_code == 201]
    refused = await red.post("/v1/topics/red-more/messages", content=b"x")
    _check(refused, "quota_topics", 2)
    assert refused.json()["outcome"] == "not_stored"
    batch = {"messages": [{"body": "x"}]}
    _check(await red.post("/v1/topics/red-more/messages:batch", json=batch), "quota_topics", 2)
    _check(await red.put("/v1/topics/red-more?dry_run=true", json={}), "quota_topics", 2)
    await _settle(red)
    assert (await red.put("/v1/topics/red-a", json={"queues": 9})).status_code == 200
    assert (await red.delete(f"/v1/topics/red-{second}")).status_code == 204
    assert (await red.post("/v1/topics/red-more/messages", content=b"x")).status_code == 201
    # Others have room, and who made what by its first use is in the audit.
    assert (await admin.put("/v1/topics/other", json={})).status_code == 201
    entries = (await admin.get("/v1/audit?resource=topic:red-a")).json()["entries"]
    assert [(each["action"], each["principal"]) for each in entries][:1] == [("CREATE", "red")]
    metrics = (await admin.get("/metrics")).text
    assert 'curlew_denials_total{code="QUOTA_EXCEEDED"}' in metrics


async def _make_schedules(red: httpx.AsyncClient) -> None:
    body = {"cron": "0 3 * * *", "topic": "red-a", "message": {"text": "x"}}
    assert (await red.put("/v1/schedules/red-s", json=body)).status_code == 201
    _check(await red.put("/v1/schedules/red-t", json=body), "quota_schedules", 1)
    _check(await red.put("/v1/schedules/red-t?dry_run=true", json=body), "quota_schedules", 1)
    changed = await red.put("/v1/schedules/red-s", json={**body, "paused": True})
    assert changed.status_code == 200
    assert (await red.delete("/v1/schedules/red-s")).status_code == 204
    assert (await red.put("/v1/schedules/red-t", json=body)).status_code == 201


async def _take_over_a_schedule(admin: httpx.AsyncClient) -> None:
    """Who changes one has it from then on."""
    body = {"cron": "0 3 * * *", "topic": "red-a", "message": {"text": "x"}}
    assert (await admin.put("/v1/schedules/own", json=body)).status_code == 201
    _check(await admin.patch("/v1/schedules/red-t", json={"paused": True}), "quota_schedules", 1)
    assert (await admin.patch("/v1/schedules/own", json={"paused": True})).status_code == 200
    assert (await admin.delete("/v1/schedules/own")).status_code == 204
    assert (await admin.patch("/v1/schedules/red-t", json={"paused": True})).status_code == 200


async def _settle(red: httpx.AsyncClient) -> None:
    """A group by its first receive, and a topic by what is sent with an ack."""
    receive = "messages:receive"
    path = "/v1/topics/red-a/groups/red-g"
    body = {"max_messages": 1}
    first = await red.post(f"{path}/{receive}", json=body)
    assert first.status_code == 200, first.text
    _check(await red.post(f"/v1/topics/red-a/groups/red-h/{receive}", json=body), "quota_groups", 1)
    _check(await red.put("/v1/groups/red-h", json={}), "quota_groups", 1)
    assert (await red.put("/v1/groups/red-g", json={"max_attempts": 3})).status_code == 200
    sent = await red.post("/v1/topics/red-a/messages", content=b"y")
    assert sent.status_code == 201
    waiting = {"max_messages": 1, "wait": "5s"}
    found = (await red.post(f"{path}/{receive}", json=waiting)).json()["messages"]
    handle = found[0]["receipt_handle"]
    sends = [{"topic": "red-more", "body": "z"}]
    settled = await red.post(f"{path}/messages:settle", json={"acks": [handle], "sends": sends})
    _check(settled, "quota_topics", 2)

"""API4, unrestricted resource consumption: what one request asks too much of is refused before the
work, and one team that asks without end leaves the others their part."""

import asyncio
import gzip
import json
from typing import Any

import pytest

from tests.support.cluster.closed_cluster import ClosedCluster

pytestmark = pytest.mark.anyio

SETTINGS = {
    "quota_concurrent_requests": 6,
    "quota_parked_polls": 4,
    "quota_topics": 3,
    "quota_groups": 3,
    "quota_schedules": 3,
    "auto_create_topics": True,
}
NESTED = "[" * 100_000
LARGE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "nested JSON": (
        "POST",
        "topics/alpha-in/messages:batch",
        {"content": f'{{"messages":{NESTED}'},
    ),
    "a packed bomb": (
        *("POST", "topics/alpha-in/messages"),
        {"content": gzip.compress(b"0" * 80_000_000), "headers": {"content-encoding": "gzip"}},
    ),
    "a large body": ("POST", "topics/alpha-in/messages", {"content": b"0" * 17_000_000}),
    "too many messages": (
        *("POST", "topics/alpha-in/messages:batch"),
        {"json": {"messages": [{"text": ""}] * 100_000}},
    ),
    "a large page": ("GET", "topics?page_size=1000000", {}),
    "many to receive": (
        "POST",
        "topics/alpha-in/groups/alpha-g/messages:receive?max_messages=1000000",
        {},
    ),
    "a long wait": ("POST", "topics/alpha-in/groups/alpha-g/messages:receive?wait=99999", {}),
    "a long lease": ("POST", "topics/alpha-in/groups/alpha-g/messages:receive?invisible=999d", {}),
    "a large filter": (
        *("POST", "topics/alpha-in/groups/alpha-g/messages:receive"),
        {"json": {"filter": " || ".join(f"t{number}" for number in range(100_000))}},
    ),
    "a deep expression": (
        *("POST", "topics/alpha-in/groups/alpha-g/messages:receive"),
        {"json": {"filter": "sql:" + "(" * 20_000 + "1=1" + ")" * 20_000}},
    ),
    "many queues": ("PUT", "topics/alpha-wide", {"json": {"queues": 10**9}}),
    "a long name": ("PUT", "topics/alpha-" + "x" * 1_500, {"json": {}}),
    "many topics at once": (
        "GET",
        "topics:positions?topics=" + ",".join(["alpha-in"] * 3_000),
        {},
    ),
    "many parameters": ("GET", "topics?" + "&".join(f"a{number}=1" for number in range(5_000)), {}),
    "many rows": (
        *("PUT", "groups/alpha-g/offsets/alpha-in"),
        {"json": {"offsets": [{"queue_id": 0, "offset": 0}] * 200_000}},
    ),
    "large headers": ("GET", "topics", {"headers": {"mq-property-a": "x" * 200_000}}),
}


@pytest.mark.parametrize("what", LARGE)
async def test_what_is_too_much_is_refused(target: ClosedCluster, what: str) -> None:
    method, path, more = LARGE[what]
    for node in range(len(target.nodes)):
        answer = await target.ask(node, "alpha", method, f"/v1/{path}", **more)
        assert answer.status_code in (400, 413, 414, 422, 431), answer.text[:300]
        assert len(answer.content) < 4_000
    assert (await target.ask(0, "beta", "GET", "/v1/topics")).status_code == 200


async def test_names_made_without_end_are_bounded(target: ClosedCluster) -> None:
    made: dict[str, list[int]] = {"topics": [], "groups": [], "schedules": []}
    for number in range(12):
        node = number % len(target.nodes)
        send = f"/v1/topics/gamma-{number}/messages"
        receive = f"/v1/topics/gamma-in/groups/gamma-{number}/messages:receive"
        schedule = {"cron": "0 3 * * *", "topic": "gamma-in", "message": {"text": "x"}}
        for kind, answer in (
            ("topics", await target.ask(node, "gamma", "POST", send, content=b"x")),
            ("groups", await target.ask(node, "gamma", "POST", receive)),
            (
                "schedules",
                await target.ask(
                    node, "gamma", "PUT", f"/v1/schedules/gamma-{number}", json=schedule
                ),
            ),
        ):
            made[kind].append(answer.status_code)
            if not answer.is_success:
                assert answer.json()["code"] == "QUOTA_EXCEEDED", answer.text
    counts = {kind: sum(each < 300 for each in found) for kind, found in made.items()}
    assert counts == {"topics": 2, "groups": 2, "schedules": 3}, "one each was made with the teams"
    assert (await target.ask(0, "beta", "PUT", "/v1/topics/beta-more", json={})).status_code == 201


async def test_who_waits_without_end_leaves_others_their_part(target: ClosedCluster) -> None:
    path = "/v1/topics/alpha-in/queues/0/messages?offset=0&wait=50"
    for node in range(len(target.nodes)):
        tasks = [asyncio.ensure_future(target.ask(node, "alpha", "GET", path)) for _ in range(12)]
        done, waiting = await asyncio.wait(tasks, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 8:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        assert {each.result().status_code for each in done} == {429}
        assert len(waiting) == 4
        other = await target.ask(node, "beta", "POST", "/v1/topics/beta-in/messages", content=b"x")
        assert other.status_code == 201, other.text
        own = await target.ask(node, "alpha", "GET", "/v1/whoami")
        assert own.status_code == 200, "and itself what does not wait"
        for each in waiting:
            each.cancel()


async def test_metrics_count_what_was_refused(target: ClosedCluster) -> None:
    text = (await target.ask(0, "root", "GET", "/metrics")).text
    assert 'curlew_quota_refusals_total{quota="principal-parked-polls"}' in text
    assert json.dumps("QUOTA_EXCEEDED") in text

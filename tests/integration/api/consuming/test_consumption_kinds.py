"""Receives and commits of one group in one topic, over HTTP and over a kill."""

from pathlib import Path

import httpx
import pytest

from tests.support.nodes.node import run_node


def _send(http: httpx.Client, topic: str, count: int) -> None:
    for number in range(count):
        sent = http.post(f"/v1/topics/{topic}/messages?queue_id=0", content=b"%d" % number)
        sent.raise_for_status()


def _receive(http: httpx.Client, topic: str, group: str, query: str) -> httpx.Response:
    return http.post(f"/v1/topics/{topic}/groups/{group}/messages:receive?{query}")


def _join(http: httpx.Client, topic: str, group: str, query: str = "") -> httpx.Response:
    return http.put(
        f"/v1/groups/{group}/members/m{query}",
        json={"subscriptions": [{"topic": topic}], "generation": 0},
    )


def _subscriptions(http: httpx.Client, path: str) -> list[tuple[str, str | None]]:
    answer = http.get(path).raise_for_status().json()
    return [(each["topic"], each["consumption"]) for each in answer["subscriptions"]]


@pytest.mark.parametrize("dry_run", ["", "&dry_run=true"])
def test_a_commit_settles_no_lease_of_others(http: httpx.Client, topic: str, dry_run: str) -> None:
    group = f"g-{topic}"
    _send(http, topic, 4)
    leased = _receive(http, topic, group, "max_messages=2&client_id=w").json()["messages"]
    offsets = f"/v1/groups/{group}/offsets/{topic}"
    body = {"offsets": [{"queue_id": 0, "offset": 4}]}
    refused = http.put(f"{offsets}?force=false{dry_run}", json=body)
    problem = refused.json()
    assert refused.status_code == 409
    assert problem["code"] == "CONSUMPTION_CONFLICT"
    assert (problem["current"], problem["clients"]) == ("lease", ["w"])
    assert problem["since_ms"] > 0
    assert "force=true" in problem["hint"]
    for path in (f"/v1/groups/{group}", f"/v1/groups/{group}/lag"):
        assert _subscriptions(http, path) == [(topic, "lease")]
    message_id = leased[0]["message_id"]
    delivery = f"/v1/topics/{topic}/messages/{message_id}/delivery?group={group}"
    assert _subscriptions(http, delivery) == [(topic, "lease")]
    handle = leased[0]["receipt_handle"]
    nack = http.patch(f"/v1/receipts/{handle}?action=nack&delay=0s")
    assert nack.status_code == 200
    forced = http.put(f"{offsets}?force=true{dry_run}", json=body)
    assert forced.status_code == 200
    assert [(each["code"], each["count"]) for each in forced.json()["effects"]] == [
        ("LEASES_END", 1),
        ("RETRIES_WAIT", 1),
    ]
    assert forced.json()["dry_run"] is bool(dry_run)
    settled = http.delete(f"/v1/receipts/{leased[1]['receipt_handle']}")
    assert settled.status_code == (204 if dry_run else 410)


def test_a_queue_has_no_second_reader(http: httpx.Client, topic: str) -> None:
    group = f"g-{topic}"
    _send(http, topic, 1)
    joined = _join(http, topic, group)
    assert joined.json()["effects"] == []
    generation = joined.json()["generation"]
    refused = _receive(http, topic, group, "max_messages=1")
    assert (refused.status_code, refused.json()["current"]) == (409, "assigned")
    assert http.get(f"/v1/topics/{topic}/groups/{group}/stream?duration=1s").status_code == 409
    raw = _receive(http, topic, group, "format=raw&force=true")
    assert (raw.status_code, raw.json()["parameter"]) == (400, "force")
    forced = _receive(http, topic, group, "max_messages=1&force=true")
    assert [each["code"] for each in forced.json()["effects"]] == ["ASSIGNMENTS_END"]
    assert len(forced.json()["messages"]) == 1
    body = {
        "client_id": "m",
        "generation": generation,
        "offsets": [{"queue_id": 0, "offset": 1}],
    }
    late = http.put(f"/v1/groups/{group}/offsets/{topic}", json=body)
    assert (late.status_code, late.json()["code"]) == (409, "CONSUMPTION_CONFLICT")
    back = _join(http, topic, group, "?force=true")
    assert [each["code"] for each in back.json()["effects"]] == ["LEASES_END"]


def test_a_killed_node_knows_how_its_groups_consume(tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node, httpx.Client(base_url=node.url) as http:
        for topic in ("leased", "shared"):
            http.put(f"/v1/topics/{topic}", json={"queues": 1, "flush": "sync"}).raise_for_status()
            _send(http, topic, 1)
        assert _receive(http, "leased", "g", "").status_code == 200
        assert _join(http, "shared", "g").status_code == 200
        node.kill()
    with run_node(tmp_path / "data") as node, httpx.Client(base_url=node.url) as http:
        assert _subscriptions(http, "/v1/groups/g") == [("leased", "lease"), ("shared", "assigned")]
        assert _join(http, "leased", "g").status_code == 409
        assert _receive(http, "shared", "g", "").status_code == 409
        assert len(_receive(http, "leased", "g", "").json()["messages"]) in {0, 1}

"""Topics, groups, offsets and the service itself, over real sockets."""

import re
from dataclasses import asdict

import httpx
import pytest

from app.api.http.errors import STATUS_OF_CODE
from app.domain.limits import FIXED_LIMITS, Limits
from app.web.serving.headers import CONTENT_SECURITY_POLICY


def document_of(answer: httpx.Response) -> dict[str, object]:
    """The document in the answer to a change."""
    members = answer.json()
    for name in ("changed", "effects", "dry_run"):
        del members[name]
    return dict(members)


def test_a_topic_lives(http: httpx.Client) -> None:
    made = http.put("/v1/topics/life")
    assert made.status_code == 201
    document = made.json()
    assert (document["queues"], document["type"], document["flush"]) == (4, "normal", "sync")
    assert (document["retention"], document["retention_ms"]) == ("3d", 259_200_000)
    tag = made.headers["etag"]
    assert tag == f'"{document["version"]}"'

    changed = http.put(
        "/v1/topics/life", json={"queues": 8, "retention": "1h"}, headers={"If-Match": tag}
    )
    assert (changed.status_code, changed.json()["queues"]) == (200, 8)
    assert http.put("/v1/topics/life", headers={"If-Match": tag}).status_code == 412
    assert http.put("/v1/topics/life", headers={"If-None-Match": "*"}).status_code == 412
    read = http.get("/v1/topics/life")
    assert read.json() == document_of(changed)
    assert read.headers["etag"] == changed.headers["etag"]

    assert http.delete("/v1/topics/life").status_code == 204
    assert http.get("/v1/topics/life").status_code == 404


def test_a_lone_node_leads_every_queue(http: httpx.Client) -> None:
    http.put("/v1/topics/alone", json={"queues": 2}).raise_for_status()
    (shard,) = http.get("/v1/cluster").json()["shards"]
    assert shard["epoch"] > 0
    url = shard["leader_url"]
    assert url.startswith("http://127.0.0.1:")
    queues = http.get("/v1/topics/alone/route").json()["queues"]
    assert [(each["epoch"], each["leader"], each["replicas"]) for each in queues] == [
        (shard["epoch"], url, [url])
    ] * 2


def test_events_of_a_lone_node_are_its_start(http: httpx.Client) -> None:
    found = http.get("/v1/cluster/events").json()
    assert [each["kind"] for each in found["events"]] == [
        *("shard_led", "node_registered", "shard_made"),
    ]
    assert found["next_page_token"] is None
    first = found["events"][-1]
    assert abs(first["at_ms"] - http.get("/v1/nodes").json()["nodes"][0]["started_ms"]) < 600_000
    (event,) = http.get("/v1/cluster/events?page_size=1").json()["events"]
    assert event["seq"] == found["events"][0]["seq"]
    refused = http.get("/v1/cluster/events?page_token=x")
    assert (refused.status_code, refused.json()["code"]) == (400, "ILLEGAL_PAGE")


def test_a_large_body_without_a_length_is_refused(http: httpx.Client) -> None:
    answer = http.put("/v1/topics/large", content=iter([b" " * 600_000] * 2))
    assert (answer.status_code, answer.json()["code"]) == (413, "PAYLOAD_TOO_LARGE")


def test_a_group_lives(http: httpx.Client) -> None:
    made = http.put(
        "/v1/groups/life",
        json={
            "max_attempts": 3,
            "retry_policy": {"exponential": {"initial": "5s", "multiplier": 2, "max": "2h"}},
            "order": "fifo",
            "invisible": "1m",
            "start": 1_700_000_000_000,
        },
    )
    assert made.status_code == 201
    document = made.json()
    assert document["retry_policy"]["exponential"]["max"] == "2h"
    assert (document["invisible_ms"], document["start"]) == (60_000, 1_700_000_000_000)
    assert http.get("/v1/groups/life").json() == document_of(made)
    same = http.put("/v1/groups/life")
    assert (same.status_code, document_of(same)) == (200, document_of(made))
    defaults = http.patch(
        "/v1/groups/life", json={"retry_policy": None, "max_attempts": None, "start": None}
    ).json()
    assert defaults["retry_policy"]["customized"][0] == "10s"
    assert (defaults["max_attempts"], defaults["start"]) == (16, "earliest")
    assert http.delete("/v1/groups/life").status_code == 204
    assert http.delete("/v1/groups/life").status_code == 404


@pytest.mark.parametrize("kind", ["topics", "groups"])
def test_lists_page_by_prefix(http: httpx.Client, kind: str) -> None:
    for number in range(5):
        http.put(f"/v1/{kind}/page-{number}").raise_for_status()
    names: list[str] = []
    token: str | None = ""
    while token is not None:
        parameters: dict[str, str | int] = {"prefix": "page-", "page_size": 2, "page_token": token}
        page = http.get(f"/v1/{kind}", params=parameters).json()
        assert len(page[kind]) <= 2
        names += [each["name"] for each in page[kind]]
        token = page["next_page_token"]
    assert names == [f"page-{number}" for number in range(5)]


def test_offsets_and_depth_of_a_topic(http: httpx.Client, topic: str) -> None:
    for _ in range(3):
        http.post(f"/v1/topics/{topic}/messages?queue_id=1", content=b"x").raise_for_status()
    stats = http.get(f"/v1/topics/{topic}/stats").json()
    assert stats["depth"] == 3
    assert stats["queues"][1] == {"queue_id": 1, "min_offset": 0, "max_offset": 3, "depth": 3}

    def offsets(at: str) -> list[int]:
        answer = http.get(f"/v1/topics/{topic}/offsets", params={"at": at}).json()
        return [each["offset"] for each in answer["offsets"]]

    assert offsets("earliest") == [0, 0]
    assert offsets("latest") == [0, 3]
    assert offsets("1") == [0, 0]
    assert offsets("99999999999999") == [0, 3]


def test_offsets_are_committed_forward_unless_forced(http: httpx.Client, topic: str) -> None:
    for _ in range(3):
        http.post(f"/v1/topics/{topic}/messages?queue_id=0", content=b"x").raise_for_status()
    url = f"/v1/groups/commit-{topic}/offsets/{topic}"

    def commit(offset: int, *, force: bool = False) -> int:
        entry = {"queue_id": 0, "offset": offset}
        answer = http.put(url, json={"offsets": [entry], "force": force})
        assert answer.status_code == 200, answer.text
        assert answer.json() == http.get(url).json() | {"dry_run": False, "effects": []}
        committed: int = answer.json()["offsets"][0]["offset"]
        return committed

    assert commit(2) == 2
    assert commit(1) == 2
    assert commit(1, force=True) == 1


def test_one_message_by_its_id(http: httpx.Client, topic: str) -> None:
    sent = http.post(f"/v1/topics/{topic}/messages?tag=t", content=b"hello").json()
    url = f"/v1/topics/{topic}/messages/{sent['message_id']}"
    assert http.get(url).json()["text"] == "hello"
    raw = http.get(url, headers={"Accept": "application/octet-stream"})
    assert (raw.content, raw.headers["mq-tag"]) == (b"hello", "t")
    assert http.get(url + "?format=json", headers={"Accept": "application/octet-stream"}).json()


def test_the_service_describes_itself(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ready", "reasons": [], "degraded": []}
    assert http.get("/v1/limits").json() == {**asdict(Limits()), **FIXED_LIMITS}
    codes = http.get("/v1/error-codes").json()["error_codes"]
    assert {each["code"]: each["status"] for each in codes} == dict(STATUS_OF_CODE)
    nodes = http.get("/v1/nodes").json()["nodes"]
    assert len(nodes) == 1
    assert nodes[0]["started_ms"] <= nodes[0]["seen_ms"]


def test_the_documentation_loads_nothing_from_elsewhere(http: httpx.Client) -> None:
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "send_message" in page.text
    assert "The disk is full" in page.text, "answers are described in full"
    for sign in ("http://", "https://", "<style", " style="):
        assert sign not in page.text
    loaded = re.findall(r"(?:src=|icon href=|stylesheet href=)(\S+?)[ >]", page.text)
    assert len(loaded) == page.text.count("<script") + page.text.count("<link") == 3
    for address in loaded:
        assert http.get(f"/{address}").raise_for_status().content
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert http.get("/docs/static/docs_page.py").status_code == 404
    assert http.get("/openapi.json").json()["openapi"] == "3.1.0"


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("text/html,application/xhtml+xml,*/*;q=0.8", 307),
        ("application/json, TEXT/HTML;q=0.5", 307),
        ("*/*", 404),
        ("text/htmlx", 404),
    ],
)
def test_the_front_door_leads_browsers_to_the_pages(
    http: httpx.Client, accept: str, status: int
) -> None:
    answer = http.get("/", headers={"Accept": accept})
    assert answer.status_code == status
    if status == 307:
        assert answer.headers["location"].endswith("/ui/")
        assert answer.headers["vary"] == "Accept"
    else:
        assert "the page is at /ui" in answer.json()["hint"]


def test_the_pages_are_behind_the_same_shell(http: httpx.Client) -> None:
    page = http.get("/ui/")
    assert page.status_code == 200
    assert page.headers["mq-request-id"]


def test_where_several_topics_stand_in_one_call(http: httpx.Client, topic: str) -> None:
    http.post(f"/v1/topics/{topic}/messages?queue_id=1", content=b"x" * 100).raise_for_status()
    found = http.get("/v1/topics:positions", params={"topics": f"{topic},nowhere"}).json()
    assert found["missing"] == ["nowhere"]
    (state,) = found["topics"]
    assert state["topic"] == topic
    assert 0 < state["generation"] < 2**53
    empty, full = state["queues"]
    assert empty == {"queue_id": 0, "min_offset": 0, "max_offset": 0, "average_bytes": None}
    assert (full["max_offset"], full["average_bytes"] > 191) == (1, True)


def test_waiting_for_the_positions_to_move(http: httpx.Client, topic: str) -> None:
    known = http.get("/v1/topics:positions", params={"topics": topic}).json()["state"]
    parameters = {"topics": topic, "known": known, "wait": "50ms"}
    assert http.get("/v1/topics:positions", params=parameters).json()["state"] == known
    http.post(f"/v1/topics/{topic}/messages", content=b"x").raise_for_status()
    moved = http.get("/v1/topics:positions", params={**parameters, "wait": "20s"}).json()
    assert moved["state"] != known
    refused = http.get("/v1/topics:positions", params={"topics": topic, "wait": "1"})
    assert (refused.status_code, refused.json()["parameter"]) == (400, "wait")


def test_offsets_of_several_topics_by_time(http: httpx.Client, topic: str) -> None:
    sent = http.post(f"/v1/topics/{topic}/messages?queue_id=0", content=b"x").json()
    parameters = {"topics": f"{topic},nowhere", "at": str(sent["store_time_ms"])}
    found = http.get("/v1/topics:offsets", params=parameters).json()
    assert found["missing"] == ["nowhere"]
    offsets = [{"queue_id": 0, "offset": 0}, {"queue_id": 1, "offset": 0}]
    assert found["topics"] == [{"topic": topic, "at": parameters["at"], "offsets": offsets}]
    bad = http.get("/v1/topics:offsets", params={"topics": topic, "at": "noon"})
    assert bad.status_code == 400


def test_dead_letters_of_a_group_without_any(http: httpx.Client) -> None:
    http.put("/v1/groups/tidy").raise_for_status()
    summary = http.get("/v1/groups/tidy/dlq").json()
    assert summary == {"group": "tidy", "messages": 0, "oldest_ms": None}
    listing = http.get("/v1/groups/tidy/dlq/messages", params={"filter": "a||b"}).json()
    assert listing == {"messages": [], "scanned": 0}
    url = "/v1/groups/tidy/dlq/messages:redrive"
    plan = http.post(url, json={"all": True, "dry_run": True})
    assert (plan.status_code, plan.json()["matched"]) == (200, 0)
    started = http.post(url, json={"all": True})
    assert started.status_code == 202
    operation = http.get(started.headers["location"]).json()
    assert (operation["kind"], operation["done"]) == ("redrive", 0)
    assert operation in http.get("/v1/operations").json()["operations"]
    cancelled = http.post(f"{started.headers['location']}:cancel")
    assert cancelled.status_code == 200


@pytest.mark.parametrize("body", [{}, {"all": True, "topic": "x"}, {"offsets": []}])
def test_a_redrive_says_which_letters(http: httpx.Client, body: dict[str, object]) -> None:
    http.put("/v1/groups/tidy").raise_for_status()
    for verb in ("redrive", "purge"):
        answer = http.post(f"/v1/groups/tidy/dlq/messages:{verb}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "MALFORMED_BODY"), answer.text


def test_operations_and_dead_letters_that_are_not_there(http: httpx.Client) -> None:
    for method, path, code in (
        ("GET", "/v1/operations/nothing", "OPERATION_NOT_FOUND"),
        ("POST", "/v1/operations/nothing:cancel", "OPERATION_NOT_FOUND"),
        ("GET", "/v1/groups/nobody/dlq", "CONSUMER_GROUP_NOT_FOUND"),
        ("GET", "/v1/groups/nobody/dlq/messages", "CONSUMER_GROUP_NOT_FOUND"),
    ):
        answer = http.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (404, code)

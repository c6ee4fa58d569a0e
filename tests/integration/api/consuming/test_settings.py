"""Changing settings over HTTP: merging, conditions, what is said of a change, dry runs."""

from itertools import count
from typing import Any

import httpx
import pytest

_NUMBERS = count(1)
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
KINDS = ("topics", "groups", "schedules")


def rest_of(answer: httpx.Response) -> tuple[Any, Any, Any]:
    body = answer.json()
    return body["changed"], [each["code"] for each in body["effects"]], body["dry_run"]


@pytest.fixture
def name() -> str:
    return f"settings-{next(_NUMBERS)}"


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, name: str) -> str:
    return f"/v1/{request.param}/{name}"


def first_body(path: str, topic: str) -> dict[str, Any]:
    """What makes the thing, with a setting that is not the default."""
    if "topics" in path:
        return {"queues": 3, "trace": False}
    if "groups" in path:
        return {"max_attempts": 3}
    return {"cron": "0 3 * * *", "topic": topic, "message": {"text": "x"}, "missed": "skip"}


def test_put_makes_and_then_merges(http: httpx.Client, path: str, topic: str) -> None:
    first = first_body(path, topic)
    made = http.put(path, json=first)
    assert (made.status_code, *rest_of(made)) == (201, {}, [], False)
    document = http.get(path).json()
    for body in ({}, first):
        again = http.put(path, json=body)
        assert (again.status_code, *rest_of(again)) == (200, {}, [], False)
        assert again.headers["etag"] == made.headers["etag"]
    assert http.put(path).status_code == 200  # no body at all
    assert http.get(path).json() == document


def test_patch_changes_only(http: httpx.Client, path: str, topic: str) -> None:
    missing = http.patch(path, json={}, headers=MERGE_PATCH)
    assert (missing.status_code, missing.json()["code"][-10:]) == (404, "_NOT_FOUND")
    http.put(path, json=first_body(path, topic)).raise_for_status()
    for headers in (MERGE_PATCH, {"Content-Type": "application/json"}, {}):
        assert http.patch(path, content=b"{}", headers=headers).status_code == 200
    for wrong in ("text/plain", "application/json-patch+json", "application/xml"):
        answer = http.patch(path, content=b"{}", headers={"Content-Type": wrong})
        assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    put = http.put(path, content=b"{}", headers=MERGE_PATCH)
    assert put.status_code == 415
    for body in (b"[]", b"null", b'"x"', b"{"):
        assert http.patch(path, content=body, headers=MERGE_PATCH).status_code == 400


def test_the_script_of_bug_three(http: httpx.Client, name: str) -> None:
    """A deploy script that says `PUT {}` to be sure that a topic is there."""
    path = f"/v1/topics/{name}"
    http.put(path, json={"queues": 1, "retention": "1h", "flush": "async"}).raise_for_status()
    document = http.put(path).json()
    assert (document["queues"], document["retention"], document["flush"]) == (1, "1h", "async")
    http.patch(path, json={"queues": 8}).raise_for_status()
    assert http.put(path, json={"retention": "2h"}).json()["queues"] == 8
    fewer = http.put(path, json={"queues": 4})
    assert (fewer.status_code, fewer.json()["errors"][0]["pointer"]) == (409, "/queues")
    group = f"/v1/groups/{name}"
    http.put(group, json={"max_attempts": 3, "order": "fifo"}).raise_for_status()
    changed = http.put(group, json={"invisible": "10s"}).json()
    assert (changed["max_attempts"], changed["order"]) == (3, "fifo")
    assert changed["changed"] == {"invisible": ["30s", "10s"], "invisible_ms": [30_000, 10_000]}


def test_null_is_the_default(http: httpx.Client, name: str) -> None:
    path = f"/v1/groups/{name}"
    policy = {"exponential": {"initial": "5s", "multiplier": 3.0, "max": "1h"}}
    http.put(path, json={"retry_policy": policy, "start": 5, "max_in_flight_per_member": 7})
    part = http.patch(path, json={"retry_policy": {"exponential": {"max": "2h"}}}).json()
    assert part["changed"]["retry_policy"][1]["exponential"] == {
        **policy["exponential"],
        "max": "2h",
    }
    null = {"retry_policy": {"exponential": {"multiplier": None}}, "start": None}
    assert http.patch(path, json=null).json()["retry_policy"]["exponential"]["multiplier"] == 2
    other = http.patch(path, json={"retry_policy": {"customized": ["1s"]}}).json()
    assert other["retry_policy"] == {"customized": ["1s"]}
    reset = http.patch(path, json={"retry_policy": None, "max_in_flight_per_member": None})
    assert reset.json()["retry_policy"]["customized"][0] == "10s"
    assert reset.json()["max_in_flight_per_member"] is None


def test_a_part_of_a_message(http: httpx.Client, name: str, topic: str) -> None:
    path = f"/v1/schedules/{name}"
    message = {"text": "x", "tag": "a", "properties": {"k": "1", "l": "2"}}
    http.put(path, json={"cron": "0 3 * * *", "topic": topic, "message": message})
    patched = http.patch(
        path, json={"message": {"tag": None, "properties": {"k": None, "m": "3"}}}
    ).json()["message"]
    assert (patched["text"], patched["tag"]) == ("x", None)
    assert patched["properties"] == {"l": "2", "m": "3"}
    typed = http.patch(path, json={"message": {"body": {"n": 1}}}).json()["message"]
    assert typed["content_type"] == "application/json"
    chosen = http.patch(path, json={"message": {"content_type": "application/xml"}})
    assert chosen.json()["message"]["text"] == '{"n":1}'
    kept = http.patch(path, json={"message": {"text": "<x/>"}}).json()["message"]
    assert (kept["text"], kept["content_type"]) == ("<x/>", "application/xml")
    whole = http.put(path, json={"message": {"text": "y"}}).json()["message"]
    assert (whole["properties"], whole["content_type"]) == ({}, "text/plain; charset=utf-8")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_conditions(http: httpx.Client, path: str, topic: str, method: str) -> None:
    made = http.put(path, json=first_body(path, topic), headers={"If-None-Match": "*"})
    assert made.status_code == 201
    tag, version = made.headers["etag"], made.json()["version"]
    assert http.get(path).headers["etag"] == tag
    for headers in (
        {"If-Match": '"999999999"'},
        {"If-Match": f"W/{tag}"},
        {"If-Match": '"other"'},
        {"If-None-Match": "*"},
        {"If-None-Match": f'"1000000", {tag}'},
        {"If-Match": tag, "If-None-Match": "*"},
    ):
        failed = http.request(method, path, headers=headers)
        assert (failed.status_code, failed.json()["version"]) == (412, version), headers
        assert failed.json()["code"] == "PRECONDITION_FAILED"
    for malformed in (str(version), "yesterday", '"1', f"{tag} {tag}", f"*, {tag}", "W/3", ""):
        refused = http.request(method, path, headers={"If-Match": malformed})
        assert (refused.status_code, refused.json()["code"]) == (400, "BAD_REQUEST"), malformed
    held = {"If-Match": f'"999999999" , {tag}', "If-None-Match": '"7"'}
    assert http.request(method, path, headers=held).is_success


def test_what_must_exist_does_not(http: httpx.Client, path: str, topic: str) -> None:
    body = first_body(path, topic)
    for condition in ("*", '"1"'):
        refused = http.put(path, json=body, headers={"If-Match": condition})
        assert (refused.status_code, refused.json()["version"]) == (412, 0)
    for method in ("PATCH", "DELETE"):
        missing = http.request(method, path, headers={"If-Match": "*"})
        assert missing.status_code == 404
    assert http.get(path).status_code == 404


def test_effects_are_counted(http: httpx.Client, name: str) -> None:
    topic, group = f"/v1/topics/{name}", f"/v1/groups/{name}"
    http.put(topic, json={"queues": 1}).raise_for_status()
    for _ in range(3):
        http.post(f"{topic}/messages", content=b"x").raise_for_status()
    received = http.post(f"{topic}/groups/{name}/messages:receive", json={"max_messages": 2})
    assert len(received.json()["messages"]) == 2
    order = http.patch(group, json={"order": "fifo"}, params={"dry_run": "true"}).json()
    assert {each["code"]: each["count"] for each in order["effects"]} == {
        "ORDER_CHANGES": 1,
        "LEASES_END": 2,
    }
    grown = http.put(topic, json={"queues": 4}).json()
    assert grown["changed"] == {"queues": [1, 4]}
    assert {each["code"]: each["count"] for each in grown["effects"]} == {
        "QUEUES_GROW_FOR_EVER": 3,
        "KEYS_MOVE": 3,
        "ORDER_CHANGES": 1,
    }
    ended = http.delete(group, params={"dry_run": "true"}).json()
    assert ended["effects"][0]["code"] == "LEASES_END"
    assert ended["effects"][0]["count"] == 2


@pytest.mark.parametrize(
    ("kind", "body", "pointer", "words"),
    [
        ("groups", {"start": "20131223171201"}, "/start", "earliest, latest, or a time"),
        ("groups", {"start": 1.5}, "/start", "earliest, latest, or a time"),
        ("groups", {"start": -1}, "/start", "start is -1"),
        ("topics", {"retention": "9999999d"}, "/retention", "retention is 9999999d"),
        ("topics", {"retention": "9999999d"}, "/retention", "from 1m to 3650d"),
        ("topics", {"retention_ms": 1}, "/retention_ms", "retention_ms is 1"),
        ("topics", {"retention": "1w"}, "/retention", "250ms"),
        ("topics", {"queues": "4"}, "/queues", "queues: it should be a valid integer"),
        ("topics", {"queues": 1024 * 10}, "/queues", "from 1 to 1024"),
        ("topics", {"typ": "fifo"}, "/typ", "unknown field 'typ'"),
        ("topics", {"a/b~c": 1}, "/a~1b~0c", "unknown field"),
        ("topics", {"type": "fifoo"}, "/type", "'fifo'"),
        ("groups", {"invisible": "13h"}, "/invisible", "from 1s to 12h"),
        ("groups", {"retry_policy": {"customised": ["1s"]}}, "/retry_policy/customised", "unknown"),
        ("groups", {"retry_policy": {"customized": [1]}}, "/retry_policy/customized/0", "string"),
        ("groups", {"retry_policy": {"customized": ["41d"]}}, "/retry_policy/customized/0", "40d"),
        ("groups", {"retry_policy": 5}, "/retry_policy", "retry_policy"),
        (
            "groups",
            {"retry_policy": {"exponential": {"initial": "9s", "max": "1s"}}},
            "/retry_policy/exponential/max",
            "from 9s to 40d",
        ),
        (
            "groups",
            {"retry_policy": {"exponential": {"initial": "9s"}}},
            "/retry_policy/exponential/max",
            "max",
        ),
        ("schedules", {"topic": "x", "message": {"text": "x"}}, "/cron", "cron is missing"),
        ("schedules", {"cron": "0 3 * * *", "topic": "x"}, "/message", "message is missing"),
    ],
)
def test_pointers_lead_into_the_body(
    http: httpx.Client, name: str, kind: str, body: dict[str, Any], pointer: str, words: str
) -> None:
    for params in ({}, {"dry_run": "true"}):
        answer = http.put(f"/v1/{kind}/{name}", json=body, params=params)
        assert answer.status_code == 400, answer.text
        [error] = answer.json()["errors"]
        assert error["pointer"] == pointer
        assert words in error["detail"], error
        assert answer.json()["detail"] == error["detail"]
    assert http.get(f"/v1/{kind}/{name}").status_code == 404


def test_a_strategy_that_is_none(http: httpx.Client, name: str, topic: str) -> None:
    body = {"subscriptions": [{"topic": topic}], "strategy": "best"}
    answer = http.put(f"/v1/groups/{name}/members/m", json=body)
    [error] = answer.json()["errors"]
    assert error["pointer"] == "/strategy"
    assert "'averagely'" in error["detail"]


def test_what_is_misspelt_within_a_setting_is_named(http: httpx.Client, name: str) -> None:
    body = {"retry_policy": {"exponential": {"initial": "1s", "max": "1h", "multiplyer": 2}}}
    answer = http.put(f"/v1/groups/{name}", json=body).json()
    assert answer["hint"] == "did you mean 'multiplier'?"


def test_head_tells_whether_it_is_there(http: httpx.Client, path: str, topic: str) -> None:
    missing = http.head(path)
    assert (missing.status_code, missing.content) == (404, b"")
    made = http.put(path, json=first_body(path, topic))
    head, got = http.head(path), http.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == got.headers["etag"] == made.headers["etag"]
    assert head.headers["cache-control"] == got.headers["cache-control"] == "no-store"


def test_the_two_names_of_a_duration(http: httpx.Client, name: str) -> None:
    path = f"/v1/topics/{name}"
    both = http.put(path, json={"retention": "1h", "retention_ms": 3_600_000})
    assert both.status_code == 400
    assert http.put(path, json={"retention_ms": 3_600_000}).json()["retention"] == "1h"
    same = http.patch(path, json={"retention": "60m"})
    assert rest_of(same) == ({}, [], False)
    assert http.patch(path, json={"retention": None}).json()["retention"] == "3d"

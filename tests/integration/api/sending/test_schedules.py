"""Schedules over HTTP."""

from typing import Any

import httpx
import pytest

SCHEDULE: dict[str, Any] = {
    "cron": "0 3 * * *",
    "timezone": "Europe/Berlin",
    "message": {"body": {"job": "report"}, "tag": "nightly", "keys": ["r1"]},
}


def test_a_schedule_is_made_shown_changed_and_deleted(http: httpx.Client, topic: str) -> None:
    path = "/v1/schedules/nightly"
    made = http.put(path, json=SCHEDULE | {"topic": topic})
    assert made.status_code == 201, made.text
    document = made.json()
    assert len(document["next_due_times_ms"]) == 5
    assert document["message"]["text"] == '{"job":"report"}'
    assert document["message"]["content_type"] == "application/json"
    tag = made.headers["etag"]
    assert tag == f'"{document["version"]}"'
    assert http.put(path, json=SCHEDULE | {"topic": topic}).status_code == 200
    assert http.get(path).json().items() <= document.items()
    paused = http.put(path, json={"paused": True}, headers={"If-Match": tag})
    assert (paused.status_code, paused.json()["next_due_times_ms"]) == (200, [])
    assert paused.json()["changed"] == {"paused": [False, True]}
    stale = http.put(path, json=SCHEDULE | {"topic": topic}, headers={"If-Match": tag})
    assert stale.status_code == 412
    listed = http.get("/v1/schedules?page_size=1").json()
    assert [each["name"] for each in listed["schedules"]] == ["nightly"]
    assert http.delete(path).status_code == 204
    for method in ("GET", "DELETE"):
        answer = http.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (404, "SCHEDULE_NOT_FOUND")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cron": "61 * * * *"}, "ILLEGAL_SETTING"),
        ({"timezone": "Mars/Olympus"}, "ILLEGAL_SETTING"),
        ({"topic": "no-such-topic"}, "TOPIC_NOT_FOUND"),
        ({"message": {}}, "MALFORMED_BODY"),
        ({"message": {"text": "x", "body": 1}}, "MALFORMED_BODY"),
        ({"message": {"body_base64": "?"}}, "MALFORMED_BODY"),
        ({"message": {"text": "x", "tag": "a|b"}}, "ILLEGAL_MESSAGE_TAG"),
        ({"missed": "twice"}, "MALFORMED_BODY"),
        ({"crn": "* * * * *"}, "MALFORMED_BODY"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    http: httpx.Client, topic: str, change: dict[str, Any], code: str
) -> None:
    answer = http.put("/v1/schedules/bad", json=SCHEDULE | {"topic": topic} | change)
    assert answer.json()["code"] == code, answer.text
    assert http.get("/v1/schedules/bad").status_code == 404

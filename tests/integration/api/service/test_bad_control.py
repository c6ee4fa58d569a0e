"""Requests to the control plane, or to nothing at all, that cannot be."""

import httpx
import pytest

from app.domain.limits import MIB
from tests.support.clients.bad_input import JSON, Bad, check_refusal

BATCH = "/v1/topics/{t}/messages:batch"

REFUSED = [
    Bad("nothing there", "GET", "/v1/nothing", 404, "NOT_FOUND"),
    Bad("wrong method", "POST", "/v1/topics", 405, "METHOD_NOT_ALLOWED", hint="allowed: GET"),
    Bad(
        "wrong method of a topic",
        "POST",
        "/v1/topics/{t}",
        405,
        "METHOD_NOT_ALLOWED",
        hint="allowed: DELETE, GET, HEAD, PATCH, PUT",
    ),
    Bad(
        "wrong method in the data plane",
        "GET",
        BATCH,
        405,
        "METHOD_NOT_ALLOWED",
        hint="allowed: POST",
    ),
    Bad(
        "unknown field",
        "PUT",
        "/v1/topics/new",
        400,
        "MALFORMED_BODY",
        b'{"queue":1}',
        JSON,
        "did you mean 'queues'?",
        "/queue",
    ),
    Bad(
        "wrong type",
        "PUT",
        "/v1/topics/new",
        400,
        "MALFORMED_BODY",
        b'{"queues":"1"}',
        JSON,
        pointer="/queues",
    ),
    Bad(
        "bad duration",
        "PUT",
        "/v1/topics/new",
        400,
        "MALFORMED_BODY",
        b'{"retention":"1w"}',
        JSON,
        pointer="/retention",
    ),
    Bad(
        "two durations",
        "PUT",
        "/v1/topics/new",
        400,
        "MALFORMED_BODY",
        b'{"retention":"1h","retention_ms":1}',
        JSON,
    ),
    Bad("malformed settings", "PUT", "/v1/topics/new", 400, "MALFORMED_BODY", b"{", JSON),
    Bad(
        "settings as text",
        "PUT",
        "/v1/topics/new",
        415,
        "UNSUPPORTED_MEDIA_TYPE",
        b"{}",
        {"Content-Type": "text/plain"},
    ),
    Bad(
        "large settings", "PUT", "/v1/topics/new", 413, "PAYLOAD_TOO_LARGE", b" " * (MIB + 1), JSON
    ),
    Bad(
        "no queues",
        "PUT",
        "/v1/topics/new",
        400,
        "ILLEGAL_SETTING",
        b'{"queues":0}',
        JSON,
        pointer="/queues",
    ),
    Bad("fewer queues", "PUT", "/v1/topics/{t}", 409, "CONFLICT", b'{"queues":1}', JSON),
    Bad("illegal topic", "PUT", "/v1/topics/a.b", 400, "ILLEGAL_TOPIC"),
    Bad("illegal group", "PUT", "/v1/groups/a.b", 400, "ILLEGAL_CONSUMER_GROUP"),
    Bad(
        "bad retry policy",
        "PUT",
        "/v1/groups/new",
        400,
        "MALFORMED_BODY",
        b'{"retry_policy":{"customised":["1s"]}}',
        JSON,
    ),
    Bad(
        "old version",
        "PUT",
        "/v1/topics/{t}",
        412,
        "PRECONDITION_FAILED",
        headers={"If-Match": '"999999"'},
    ),
    Bad(
        "bad condition",
        "PUT",
        "/v1/topics/{t}",
        400,
        "BAD_REQUEST",
        headers={"If-Match": "yesterday"},
    ),
    Bad(
        "unknown topic",
        "GET",
        "/v1/topics/{t}x",
        404,
        "TOPIC_NOT_FOUND",
        hint="did you mean '{t}'?",
    ),
    Bad("unknown topic deleted", "DELETE", "/v1/topics/nothing", 404, "TOPIC_NOT_FOUND"),
    Bad("unknown group", "GET", "/v1/groups/nothing", 404, "CONSUMER_GROUP_NOT_FOUND"),
    Bad("large page", "GET", "/v1/topics?page_size=1001", 400, "ILLEGAL_PAGE"),
    Bad("page that is no number", "GET", "/v1/topics?page_size=x", 400, "ILLEGAL_PAGE"),
    Bad(
        "unknown parameter",
        "GET",
        "/v1/topics?pagesize=1",
        400,
        "BAD_REQUEST",
        hint="did you mean 'page_size'?",
    ),
    Bad("no point", "GET", "/v1/topics/{t}/offsets", 400, "BAD_REQUEST"),
    Bad("bad point", "GET", "/v1/topics/{t}/offsets?at=noon", 400, "BAD_REQUEST"),
    Bad(
        "commit beyond the end",
        "PUT",
        "/v1/groups/g/offsets/{t}",
        416,
        "OFFSET_OUT_OF_RANGE",
        b'{"offsets":[{"queue_id":0,"offset":9}]}',
        JSON,
    ),
    Bad(
        "commit to no queue",
        "PUT",
        "/v1/groups/g/offsets/{t}",
        404,
        "QUEUE_NOT_FOUND",
        b'{"offsets":[{"queue_id":9,"offset":0}]}',
        JSON,
    ),
    Bad(
        "commit of nothing",
        "PUT",
        "/v1/groups/g/offsets/{t}",
        400,
        "MALFORMED_BODY",
        b'{"offsets":[]}',
        JSON,
        pointer="/offsets",
    ),
    Bad(
        "foreign origin",
        "GET",
        "/v1/topics",
        403,
        "FORBIDDEN",
        headers={"Origin": "http://evil.example"},
    ),
    Bad("foreign host", "GET", "/v1/topics", 403, "FORBIDDEN", headers={"Host": "evil.example"}),
    Bad(
        "large headers",
        "GET",
        "/v1/topics",
        431,
        "REQUEST_HEADER_FIELDS_TOO_LARGE",
        headers={"X": "y" * 17_000},
    ),
]


@pytest.mark.parametrize("bad", REFUSED, ids=str)
def test_it_is_refused_clearly(http: httpx.Client, topic: str, bad: Bad) -> None:
    check_refusal(http, topic, bad)


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/v1/groups/{t}/snapshots/a%20b", "snapshot", {}),
        (
            "/v1/schedules/a%20b",
            "schedule",
            {"topic": "{t}", "cron": "0 5 * * *", "message": {"text": "x"}},
        ),
    ],
)
def test_a_bad_name_is_called_what_it_is(
    http: httpx.Client, topic: str, path: str, kind: str, body: dict[str, object]
) -> None:
    http.put(f"/v1/groups/{topic}").raise_for_status()
    asked = {name: topic if value == "{t}" else value for name, value in body.items()}
    refused = http.put(path.replace("{t}", topic), json=asked)
    assert (refused.status_code, refused.json()["code"]) == (400, "BAD_REQUEST")
    assert refused.json()["detail"] == f"{kind} name 'a b' is not allowed"


def test_deep_json_is_called_so(http: httpx.Client) -> None:
    answer = http.put("/v1/topics/new", content=b'{"queues":' + b"[" * 100_000, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, "MALFORMED_BODY")
    assert answer.json()["detail"] == "the JSON is nested too deeply"


def test_more_queues_than_a_topic_may_have_are_refused_as_that_also_where_groups_read(
    http: httpx.Client, topic: str
) -> None:
    http.post(f"/v1/topics/{topic}/messages", content=b"x").raise_for_status()
    http.post(f"/v1/topics/{topic}/groups/readers/messages:receive").raise_for_status()
    for queues in (1_025, 2**31, 2**63):
        answer = http.patch(f"/v1/topics/{topic}", json={"queues": queues})
        assert (answer.status_code, answer.json()["code"]) == (400, "ILLEGAL_SETTING"), queues

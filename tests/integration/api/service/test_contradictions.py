"""Two values for one thing, in whatever two places: refused, and nothing is stored or leased."""

import re
from typing import Any

import httpx
import pytest

from app.api.control.operation_list import OPERATIONS
from app.api.operations.operation import Operation

NAME = re.compile(r"\{[a-z_]+\}")
DAMAGED = {
    "x=1&x=2": "query parameter 'x' is given twice",
    "x=%ff": "the query string cannot be read: 'utf-8' codec can't decode byte 0xff in position 0:"
    " invalid start byte",
}
ENVELOPE = {"Content-Type": "application/vnd.curlew+json"}


def refused(answer: httpx.Response, name: str) -> None:
    problem = answer.json()
    assert answer.status_code == 400, answer.text
    assert problem["detail"].startswith(f"{name} is given twice, as ")
    assert problem["parameter"] == name


OF_A_MESSAGE: list[tuple[dict[str, str], dict[str, Any], str]] = [
    ({"MQ-Queue-Id": "0"}, {"queue_id": 1}, "queue_id"),
    ({"MQ-Tag": "a"}, {"tag": "b"}, "tag"),
    ({"MQ-Keys": "a"}, {"keys": ["a", "b"]}, "keys"),
    ({"MQ-Sharding-Key": "a"}, {"sharding_key": "b"}, "sharding_key"),
    ({"MQ-Born-Time-Ms": "5"}, {"born_time_ms": 6}, "born_time_ms"),
    ({"MQ-Prop-x": "1"}, {"properties": {"x": "2"}}, "property 'x'"),
]
OF_A_SEND: list[tuple[dict[str, str], dict[str, Any], str]] = [
    ({"MQ-Delay": "1h"}, {"delay": "2h"}, "the time of delivery"),
    ({"MQ-Delay": "1h"}, {"deliver_at_ms": 1}, "the time of delivery"),
]


@pytest.mark.parametrize(
    ("operation", "headers", "envelope", "name"),
    [
        *[("messages", *each) for each in (*OF_A_MESSAGE, *OF_A_SEND)],
        *[("messages:request?wait=0", *each) for each in OF_A_MESSAGE],
    ],
)
def test_header_and_envelope(
    http: httpx.Client,
    topic: str,
    operation: str,
    headers: dict[str, str],
    envelope: dict[str, Any],
    name: str,
) -> None:
    url = f"/v1/topics/{topic}/{operation}"
    refused(http.post(url, json={"text": "x", **envelope}, headers=ENVELOPE | headers), name)
    assert http.get(f"/v1/topics/{topic}/stats").json()["depth"] == 0


def test_the_same_twice_is_no_contradiction(http: httpx.Client, topic: str) -> None:
    envelope = {"text": "x", "queue_id": 1, "tag": "t", "keys": ["a", "b"], "delay": "60s"}
    headers = {"MQ-Queue-Id": "1", "MQ-Tag": "t", "MQ-Keys": "a b", "MQ-Delay": "1m"}
    sent = http.post(f"/v1/topics/{topic}/messages", json=envelope, headers=ENVELOPE | headers)
    assert (sent.status_code, sent.json()["queue_id"]) == (201, 1)


def test_an_entry_of_a_batch_and_the_request(http: httpx.Client, topic: str) -> None:
    batch = {
        "messages": [{"text": "a"}, {"text": "b", "queue_id": 0}, {"text": "c", "queue_id": 1}]
    }
    url = f"/v1/topics/{topic}/messages:batch"
    answer = http.post(url, json=batch, headers={"MQ-Queue-Id": "1"}).json()
    assert [result["status"] for result in answer["results"]] == [201, 400, 201]
    assert "queue_id is given twice" in answer["results"][1]["error"]["detail"]
    spread = http.post(f"{url}?spread=true&queue_id=1", json=batch)
    assert (spread.status_code, spread.json()["code"]) == (400, "BAD_REQUEST")
    assert http.get(f"/v1/topics/{topic}/stats").json()["depth"] == 2


def test_attributes_of_an_event(http: httpx.Client, topic: str) -> None:
    event = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
    url = f"/v1/topics/{topic}/messages"
    other_id = http.post(url, content=b"x", headers=event | {"MQ-Prop-ce-id": "2"})
    refused(other_id, "property 'ce-id'")
    keyed = event | {"ce-partitionkey": "a"}
    refused(http.post(url, content=b"x", headers=keyed | {"MQ-Sharding-Key": "b"}), "sharding_key")
    assert http.post(url, content=b"x", headers=keyed | {"MQ-Sharding-Key": "a"}).is_success


def test_an_idempotency_key(http: httpx.Client, topic: str) -> None:
    url = f"/v1/topics/{topic}/messages?idempotency_key=a"
    refused(http.post(url, content=b"x", headers={"Idempotency-Key": "b"}), "idempotency_key")
    assert http.post(url, content=b"x", headers={"Idempotency-Key": '"a"'}).status_code == 201


@pytest.mark.parametrize(
    ("query", "body", "name"),
    [
        ("max_messages=2", {"max_messages": 1}, "max_messages"),
        ("max_bytes=2000", {"max_bytes": 1000}, "max_bytes"),
        ("min_messages=2", {"min_messages": 1}, "min_messages"),
        ("wait=0", {"wait": 1}, "wait"),
        ("invisible=30s", {"invisible": "31s"}, "invisible"),
        ("invisible_ms=30000", {"invisible": "31s"}, "invisible"),
        ("filter=a", {"filter": "b"}, "filter"),
        ("attempt_id=a", {"attempt_id": "b"}, "attempt_id"),
        ("client_id=a", {"client_id": "b"}, "client_id"),
    ],
)
def test_a_receive(
    http: httpx.Client, topic: str, query: str, body: dict[str, Any], name: str
) -> None:
    http.post(f"/v1/topics/{topic}/messages", content=b"x").raise_for_status()
    receive = f"/v1/topics/{topic}/groups/of-{topic}/messages:receive"
    refused(http.post(f"{receive}?{query}", json=body), name)
    assert http.get(f"/v1/groups/of-{topic}").status_code == 404


@pytest.mark.parametrize(
    ("query", "body", "name"),
    [
        ("action=extend", {"action": "nack"}, "action"),
        ("action=nack&delay=1s", {"delay_ms": 2000}, "delay"),
        ("action=nack&reason=a", {"reason": "b"}, "reason"),
        ("action=extend&invisible=30s", {"invisible": "31s"}, "invisible"),
    ],
)
def test_a_change_of_a_lease(
    http: httpx.Client, topic: str, query: str, body: dict[str, Any], name: str
) -> None:
    http.post(f"/v1/topics/{topic}/messages", content=b"x").raise_for_status()
    receive = f"/v1/topics/{topic}/groups/of-{topic}/messages:receive"
    (message,) = http.post(receive).json()["messages"]
    receipt = f"/v1/receipts/{message['receipt_handle']}"
    refused(http.patch(f"{receipt}?{query}", json=body), name)
    assert http.delete(receipt).status_code == 204


@pytest.mark.parametrize("where", ["header", "query", "envelope", "batch"])
def test_a_tag_that_stands_for_all_is_refused(http: httpx.Client, topic: str, where: str) -> None:
    url = f"/v1/topics/{topic}/messages"
    entry = {"text": "x", "tag": "*"}
    answer = {
        "header": lambda: http.post(url, content=b"x", headers={"MQ-Tag": "*"}),
        "query": lambda: http.post(f"{url}?tag=*", content=b"x"),
        "envelope": lambda: http.post(url, json=entry, headers=ENVELOPE),
        "batch": lambda: http.post(f"{url}:batch", json={"messages": [entry]}),
    }[where]()
    assert answer.status_code == 400
    problem = answer.json()["results"][0]["error"] if where == "batch" else answer.json()
    assert problem["code"] == "ILLEGAL_MESSAGE_TAG"
    assert "stands for every tag" in problem["detail"]


def test_a_form_is_not_taken_for_the_file_in_it(http: httpx.Client, topic: str) -> None:
    url = f"/v1/topics/{topic}/messages"
    for query in ("", ":batch?split=lines"):
        answer = http.post(url + query, files={"file": b"content"})
        assert (answer.status_code, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
        assert "--data-binary @file" in answer.json()["hint"]
    assert http.get(f"/v1/topics/{topic}/stats").json()["depth"] == 0


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.operation_id)
def test_a_query_that_says_a_thing_twice_or_is_no_text_is_refused_by_each_operation(
    http: httpx.Client, operation: Operation
) -> None:
    """What looks at a request first, as the quota of those that wait does, reads what the handler
    reads."""
    path = NAME.sub("1", operation.path)
    for query, words in DAMAGED.items():
        answer = http.request(operation.method, f"{path}?{query}")
        assert answer.status_code == 400, answer.text
        if operation.method != "HEAD":
            assert (answer.json()["code"], answer.json()["detail"]) == ("BAD_REQUEST", words)


def test_no_operation_has_a_parameter_that_is_repeated(http: httpx.Client) -> None:
    """One that is an array would be: it needs an exception from the rule."""
    document = http.get("/openapi.json").json()
    found = [
        (operation["operationId"], parameter["name"])
        for methods in document["paths"].values()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query" and "array" in str(parameter["schema"])
    ]
    assert not found

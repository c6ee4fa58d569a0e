"""Receives and settlements that cannot be."""

import httpx
import pytest

from tests.support.clients.bad_input import JSON, Bad, check_refusal

GROUP = "/v1/topics/{t}/groups/g/messages"

REFUSED = [
    Bad(
        "unknown topic",
        "POST",
        "/v1/topics/nothing/groups/g/messages:receive",
        404,
        "TOPIC_NOT_FOUND",
    ),
    Bad(
        "illegal group",
        "POST",
        "/v1/topics/{t}/groups/a.b/messages:receive",
        400,
        "ILLEGAL_CONSUMER_GROUP",
    ),
    Bad("malformed body", "POST", GROUP + ":receive", 400, "MALFORMED_BODY", b"{", JSON),
    Bad(
        "unknown field",
        "POST",
        GROUP + ":receive",
        400,
        "MALFORMED_BODY",
        b'{"waitt":1}',
        JSON,
        "did you mean 'wait'?",
        "/waitt",
    ),
    Bad(
        "wrong type",
        "POST",
        GROUP + ":receive",
        400,
        "MALFORMED_BODY",
        b'{"max_messages":"1"}',
        JSON,
        pointer="/max_messages",
    ),
    Bad(
        "text body",
        "POST",
        GROUP + ":receive",
        415,
        "UNSUPPORTED_MEDIA_TYPE",
        b"{}",
        {"Content-Type": "text/plain"},
    ),
    Bad(
        "long wait", "POST", GROUP + ":receive", 400, "ILLEGAL_POLLING_TIME", b'{"wait":"2m"}', JSON
    ),
    Bad(
        "short invisible time",
        "POST",
        GROUP + ":receive?invisible=1ms",
        400,
        "ILLEGAL_INVISIBLE_TIME",
    ),
    Bad(
        "two invisible times",
        "POST",
        GROUP + ":receive?invisible=5s&invisible_ms=5",
        400,
        "ILLEGAL_INVISIBLE_TIME",
    ),
    Bad("many messages", "POST", GROUP + ":receive?max_messages=1025", 400, "BAD_REQUEST"),
    Bad(
        "many messages raw",
        "POST",
        GROUP + ":receive?max_messages=2&format=raw",
        400,
        "BAD_REQUEST",
    ),
    Bad("bad filter", "POST", GROUP + ":receive?filter=%7C", 400, "ILLEGAL_FILTER_EXPRESSION"),
    Bad("forged handle", "DELETE", "/v1/receipts/AAAA", 400, "INVALID_RECEIPT_HANDLE"),
    Bad(
        "forged handles",
        "POST",
        GROUP + ":ack",
        400,
        "INVALID_RECEIPT_HANDLE",
        b'{"receipt_handles":["x"]}',
        JSON,
    ),
    Bad("nothing to settle", "POST", GROUP + ":settle", 400, "MALFORMED_BODY", b"{}", JSON),
    Bad("empty body", "POST", GROUP + ":ack", 400, "MALFORMED_BODY", b"", JSON),
    Bad(
        "no dead letters",
        "POST",
        GROUP + ":settle",
        400,
        "MALFORMED_BODY",
        b'{"dead_letters":[]}',
        JSON,
    ),
    Bad(
        "extend without a time",
        "POST",
        GROUP + ":extend",
        400,
        "ILLEGAL_INVISIBLE_TIME",
        b'{"receipt_handles":["x"]}',
        JSON,
    ),
    Bad(
        "bad delay",
        "POST",
        GROUP + ":nack",
        400,
        "BAD_REQUEST",
        b'{"receipt_handles":["x"],"delay":"soon"}',
        JSON,
    ),
    Bad(
        "release and send",
        "POST",
        GROUP + ":settle",
        400,
        "BAD_REQUEST",
        b'{"acks":["x"],"releases":["y"],"sends":[{"topic":"t","text":"m"}]}',
        JSON,
    ),
]


@pytest.fixture(autouse=True, scope="module")
def group(http: httpx.Client) -> None:
    """What is refused makes no group, and a handle is settled in one that there is."""
    http.put("/v1/groups/g").raise_for_status()


@pytest.mark.parametrize("bad", REFUSED, ids=str)
def test_it_is_refused_clearly(http: httpx.Client, topic: str, bad: Bad) -> None:
    check_refusal(http, topic, bad)


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("?action=release&delay=1s", "the message is visible at once"),
        ("", ""),
        ("?action=extend&invisible=9s&delay=1s", ""),
    ],
    ids=["release later", "no action", "mixed action"],
)
def test_a_receipt_is_not_changed_by_half_a_request(
    http: httpx.Client, topic: str, query: str, hint: str
) -> None:
    """The handle is looked at first: whose it is decides who may ask."""
    http.post(f"/v1/topics/{topic}/messages", content=b"m").raise_for_status()
    received = http.post(f"/v1/topics/{topic}/groups/g/messages:receive").json()
    handle = received["messages"][0]["receipt_handle"]
    answer = http.patch(f"/v1/receipts/{handle}{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST"), answer.text
    assert hint in answer.json().get("hint", "")
    assert http.delete(f"/v1/receipts/{handle}").status_code == 204
    forged = http.patch("/v1/receipts/AAAA").json()
    assert forged["code"] == "INVALID_RECEIPT_HANDLE"

"""What will not change says so, and is not sent twice."""

import httpx
import pytest


@pytest.fixture
def url(http: httpx.Client, topic: str) -> str:
    """Pulls of a queue with five messages."""
    messages = {"messages": [{"text": str(number), "tag": "t"} for number in range(5)]}
    sent = http.post(f"/v1/topics/{topic}/messages:batch?queue_id=0", json=messages)
    assert sent.status_code == 200
    return f"/v1/topics/{topic}/queues/0/messages"


FORMS = (
    "application/json",
    "application/x-ndjson",
    "application/vnd.curlew.batch",
    "application/cloudevents-batch+json",
)


@pytest.mark.parametrize("accept", FORMS)
def test_a_sealed_range_is_sent_once(http: httpx.Client, url: str, accept: str) -> None:
    sealed = f"{url}?offset=1&until_offset=4"
    answer = http.get(sealed, headers={"accept": accept})
    assert answer.headers["cache-control"] == "private, max-age=86400, immutable"
    assert answer.headers["vary"].startswith("accept")
    tag = answer.headers["etag"]
    topic = url.split("/")[3]
    http.post(f"/v1/topics/{topic}/messages?queue_id=0", content=b"more").raise_for_status()
    again = http.get(sealed, headers={"accept": accept, "if-none-match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert "content-length" not in again.headers
    assert again.headers["cache-control"] == answer.headers["cache-control"]
    assert http.get(sealed, headers={"accept": accept}).headers["etag"] == tag
    other = http.get(sealed, headers={"accept": accept, "if-none-match": '"else"'})
    assert other.status_code == 200


def test_forms_have_tags_of_their_own(http: httpx.Client, url: str) -> None:
    answers = [
        http.get(f"{url}?offset=1&until_offset=4", headers={"accept": each}) for each in FORMS
    ]
    assert len({answer.headers["etag"] for answer in answers}) == len(FORMS)


@pytest.mark.parametrize(
    "query",
    [
        "offset=0",
        "tail=2&until_offset=5",
        "timestamp_ms=0&until_offset=5",
        "offset=0&until_offset=6",
        "offset=9&until_offset=5&clamp=true",
        "offset=5",
    ],
)
def test_what_may_change_says_so(http: httpx.Client, url: str, query: str) -> None:
    answer = http.get(f"{url}?{query}", headers={"if-none-match": "*"})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert "etag" not in answer.headers


def test_a_sealed_range_that_expired_is_gone(http: httpx.Client, url: str) -> None:
    sealed = f"{url}?offset=1&until_offset=4"
    tag = http.get(sealed).headers["etag"]
    topic = url.split("/")[3]
    http.delete(f"/v1/topics/{topic}").raise_for_status()
    http.put(f"/v1/topics/{topic}", json={"queues": 2}).raise_for_status()
    http.post(f"/v1/topics/{topic}/messages?queue_id=0", content=b"new").raise_for_status()
    gone = http.get(sealed, headers={"if-none-match": tag})
    assert (gone.status_code, gone.json()["code"]) == (410, "OFFSET_EXPIRED")


def test_until_a_time(http: httpx.Client, url: str) -> None:
    *_, last = http.get(f"{url}?offset=0").json()["messages"]
    query = f"offset=0&until_timestamp_ms={last['store_time_ms'] + 1}&wait=20"
    answer = http.get(f"{url}?{query}&min_messages=9")
    assert len(answer.json()["messages"]) == 5
    both = http.get(f"{url}?offset=0&until_offset=1&until_timestamp_ms=1")
    assert (both.status_code, both.json()["code"]) == (400, "ILLEGAL_OFFSET")


def test_one_message_has_a_tag(http: httpx.Client, url: str) -> None:
    topic = url.split("/")[3]
    sent = http.post(f"/v1/topics/{topic}/messages", content=b"x").json()
    message = f"/v1/topics/{topic}/messages/{sent['message_id']}"
    tags = set()
    for form in ("", "?format=raw", "?body=base64"):
        answer = http.get(message + form)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "private, no-cache")
        tags.add(tag := answer.headers["etag"])
        again = http.get(message + form, headers={"if-none-match": tag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert len(tags) == 3

"""What shared caches may keep: nothing that is another thing in a moment, errors least of all."""

import httpx
import pytest

NOT_KEPT = "no-store"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/topics", 200),
        ("GET", "/v1/topics/{topic}", 200),
        ("GET", "/v1/topics/{topic}/stats", 200),
        ("GET", "/v1/limits", 200),
        ("GET", "/v1/groups", 200),
        ("GET", "/v1/nodes", 200),
        ("GET", "/v1/topics/{topic}/messages", 200),
        ("GET", "/v1/topics/{topic}/queues/0/messages?offset=0", 200),
        ("HEAD", "/v1/topics/{topic}/queues/0", 200),
        ("GET", "/readyz", 200),
        ("GET", "/healthz", 200),
        ("GET", "/metrics", 200),
        ("GET", "/v1/topics/nowhere", 404),
        ("GET", "/v1/topics/nowhere/queues/0/messages?offset=0", 404),
        ("GET", "/nowhere", 404),
        ("DELETE", "/v1/topics/{topic}/messages", 405),
        ("GET", "/v1/topics/{topic}/queues/0/messages?offset=9", 416),
        ("GET", "/v1/topics/{topic}/queues/0/messages?offset=x", 400),
        ("POST", "/v1/topics/nowhere/messages:batch", 400),
    ],
)
def test_it_is_not_kept(
    http: httpx.Client, topic: str, method: str, path: str, status: int
) -> None:
    answer = http.request(method, path.format(topic=topic))
    assert answer.status_code == status
    assert answer.headers.get_list("cache-control") == [NOT_KEPT]


def test_what_says_so_itself_may_be_kept(http: httpx.Client, topic: str) -> None:
    base = f"/v1/topics/{topic}"
    sent = [http.post(f"{base}/messages?queue_id=0", content=b"x").json() for _ in range(3)]
    message = http.get(f"{base}/messages/{sent[0]['message_id']}")
    assert message.headers.get_list("cache-control") == ["private, no-cache"]
    sealed = http.get(f"{base}/queues/0/messages?offset=0&until_offset=2")
    assert sealed.headers.get_list("cache-control") == ["private, max-age=86400, immutable"]
    for page in ("/ui/", "/docs", "/openapi.json"):
        assert http.get(page).status_code == 200

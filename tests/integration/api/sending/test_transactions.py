"""Transactions over real sockets, as a producer with curl would use them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

PREPARE = "prepare; group=pg1; check-after=30s"


def prepare(
    http: httpx.Client, topic: str, body: bytes = b"paid", transaction: str = PREPARE
) -> httpx.Response:
    return http.post(
        f"/v1/topics/{topic}/messages",
        content=body,
        headers={"MQ-Transaction": transaction},
    )


def bodies(http: httpx.Client, topic: str) -> list[str]:
    found: list[str] = []
    for queue_id in range(2):
        answer = http.get(f"/v1/topics/{topic}/queues/{queue_id}/messages", params={"offset": 0})
        found += [message["text"] for message in answer.json()["messages"]]
    return found


def test_a_transaction_is_prepared_and_committed(http: httpx.Client, topic: str) -> None:
    answer = prepare(http, topic)
    assert answer.status_code == 202
    prepared = answer.json()
    assert (prepared["status"], prepared["state"]) == ("SEND_OK", "PREPARED")
    assert answer.headers["location"] == f"/v1/transactions/{prepared['transaction_id']}"
    looked = http.get(answer.headers["location"]).json()
    assert looked["check_time_ms"] - looked["prepared_ms"] == 30_000
    assert looked["check_time_ms"] == prepared["check_time_ms"]
    assert bodies(http, topic) == []
    message_url = f"/v1/topics/{topic}/messages/{prepared['message_id']}"
    assert http.get(message_url).status_code == 404

    committed = http.post(f"{answer.headers['location']}:commit")
    assert committed.status_code == 200
    result = committed.json()
    assert (result["state"], result["topic"], result["queue_offset"]) == ("COMMITTED", topic, 0)
    assert http.post(f"{answer.headers['location']}:commit").json() == result
    opposite = http.post(f"{answer.headers['location']}:rollback")
    assert (opposite.status_code, opposite.json()["code"]) == (409, "TRANSACTION_CONFLICT")
    assert bodies(http, topic) == ["paid"]
    assert http.get(message_url).json()["text"] == "paid"


def test_a_transaction_is_rolled_back(http: httpx.Client, topic: str) -> None:
    location = prepare(http, topic).headers["location"]
    assert http.post(f"{location}:rollback").json()["state"] == "ROLLED_BACK"
    assert http.post(f"{location}:commit").status_code == 409
    assert bodies(http, topic) == []
    listed = http.get("/v1/transactions", params={"state": "ROLLED_BACK"}).json()["transactions"]
    assert location.rpartition("/")[2] in [each["transaction_id"] for each in listed]


def test_two_clients_race(http: httpx.Client, topic: str) -> None:
    wins = 0
    for number in range(10):
        location = prepare(http, topic, b"%d" % number).headers["location"]
        barrier = threading.Barrier(2)

        def decide(verb: str, url: str = location, barrier: threading.Barrier = barrier) -> int:
            barrier.wait(10)
            return http.post(f"{url}:{verb}").status_code

        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(decide, ("commit", "rollback")))
        assert sorted(results) == [200, 409]
        wins += results[0] == 200
    assert len(bodies(http, topic)) == wins


def test_a_producer_is_asked_for_the_decision(http: httpx.Client, topic: str) -> None:
    for check_after in ("30s", "1s"):
        http.post(
            f"/v1/topics/{topic}/messages",
            params={
                "transaction": f"prepare; check-after={check_after}",
                "producer_group": f"asked-after-{check_after}",
                "tag": "t",
            },
            content=b"well?",
        ).raise_for_status()
    url = "/v1/producer-groups/asked-after-{}/transactions:receive"
    assert http.post(url.format("30s")).json() == {"transactions": []}
    (check,) = http.post(url.format("1s"), params={"wait": "10"}).json()["transactions"]
    assert (check["checks"], check["message"]["text"], check["message"]["tag"]) == (1, "well?", "t")
    assert check["message"]["topic"] == topic
    decided = http.post(f"/v1/transactions/{check['transaction_id']}:commit")
    assert decided.json()["checks"] == 1
    assert bodies(http, topic) == ["well?"]


def test_pages_of_transactions(http: httpx.Client, topic: str) -> None:
    made = {
        prepare(http, topic, transaction="prepare; group=paged").json()["transaction_id"]
        for _ in range(3)
    }
    seen: list[str] = []
    token: str | None = None
    while True:
        params = {"producer_group": "paged", "page_size": "2"} | (
            {"page_token": token} if token else {}
        )
        page = http.get("/v1/transactions", params=params).json()
        seen += [each["transaction_id"] for each in page["transactions"]]
        token = page["next_page_token"]
        if token is None:
            break
    assert (len(seen), set(seen)) == (3, made)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"MQ-Transaction": "begin; group=g"}, "'prepare'"),
        ({"MQ-Transaction": "prepare"}, "producer group"),
        ({"MQ-Transaction": "prepare; groop=g"}, "did you mean"),
        ({"MQ-Transaction": "prepare; group=g; group=h"}, "cannot be read"),
        ({"MQ-Transaction": "prepare; group=g; check-after=soon"}, "not a duration"),
        ({"MQ-Transaction": "prepare; group=g; check-after=1ms"}, "1000"),
        ({"MQ-Transaction": "prepare; group=g", "MQ-Producer-Group": "h"}, "one producer group"),
        ({"MQ-Producer-Group": "g"}, "is none"),
        ({"MQ-Transaction": "prepare; group=g", "Idempotency-Key": "k"}, "stored once"),
    ],
)
def test_what_is_wrong_is_said(
    http: httpx.Client, topic: str, headers: dict[str, str], words: str
) -> None:
    answer = http.post(f"/v1/topics/{topic}/messages", content=b"", headers=headers)
    assert (answer.status_code, answer.json()["outcome"]) == (400, "not_stored")
    assert words in answer.text


def test_a_batch_is_no_transaction(http: httpx.Client, topic: str) -> None:
    answer = http.post(
        f"/v1/topics/{topic}/messages:batch",
        json={"messages": [{"text": "a"}]},
        headers={"MQ-Transaction": PREPARE},
    )
    assert answer.status_code == 400
    assert "single send" in answer.json()["hint"]


def test_a_transaction_that_is_not_there(http: httpx.Client) -> None:
    for method, path in (("GET", ""), ("POST", ":commit"), ("POST", ":rollback")):
        answer = http.request(method, f"/v1/transactions/nothing{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "TRANSACTION_NOT_FOUND")


def test_a_half_message_is_nowhere_to_be_found(http: httpx.Client, topic: str) -> None:
    half = http.post(
        f"/v1/topics/{topic}/messages",
        content=b"half",
        headers={"MQ-Transaction": PREPARE, "MQ-Keys": "the-key", "MQ-Tag": "t"},
    ).json()
    ways: dict[str, dict[str, str]] = {
        "browse": {},
        "by key": {"key": "the-key"},
        "by tag": {"tag": "t", "direction": "forward"},
    }
    for way, params in ways.items():
        answer = http.get(f"/v1/topics/{topic}/messages", params=params)
        assert (answer.status_code, answer.json()["messages"]) == (200, []), way
    received = http.post(f"/v1/topics/{topic}/groups/g-{topic}/messages:receive").json()
    assert received["messages"] == []
    stream = http.get(
        f"/v1/topics/{topic}/stream",
        params={"at": "earliest", "duration": "200ms"},
        headers={"Accept": "application/x-ndjson"},
    )
    assert stream.status_code == 200, stream.text
    assert "half" not in stream.text
    for system_topic in ("rmq_sys_trans_half", "rmq_sys_trans_op"):
        assert http.get(f"/v1/topics/{system_topic}/messages").status_code == 400
    http.post(f"/v1/transactions/{half['transaction_id']}:commit").raise_for_status()
    found = http.get(f"/v1/topics/{topic}/messages", params={"key": "the-key"}).json()
    assert [message["text"] for message in found["messages"]] == ["half"]

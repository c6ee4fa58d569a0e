"""The life of messages in a group, as an operator sees it: lag, delivery, trail, dead letters."""

import httpx
import pytest

from tests.support.nodes.waiting import wait_until


@pytest.fixture
def group(http: httpx.Client, topic: str) -> str:
    """A group that gives up after two deliveries."""
    name = f"group-of-{topic}"
    settings = {"max_attempts": 2, "retry_policy": {"customized": ["50ms"]}, "invisible": "30s"}
    http.put(f"/v1/groups/{name}", json=settings).raise_for_status()
    return name


def receive(http: httpx.Client, topic: str, group: str, count: int) -> list[dict[str, object]]:
    url = f"/v1/topics/{topic}/groups/{group}/messages:receive"
    messages: list[dict[str, object]] = []
    while len(messages) < count:
        answer = http.post(url, json={"max_messages": count - len(messages), "wait": 10})
        assert answer.json()["messages"], "the wait is over"
        messages += answer.json()["messages"]
    return messages


def test_failed_messages_are_counted_explained_and_redriven(
    http: httpx.Client, topic: str, group: str
) -> None:
    sent = [
        http.post(f"/v1/topics/{topic}/messages", content=body, params={"queue_id": 0}).json()
        for body in (b"good", b"bad")
    ]
    base = f"/v1/topics/{topic}/groups/{group}/messages"
    good, bad = receive(http, topic, group, 2)
    lag = http.get(f"/v1/groups/{group}/lag").json()
    assert (lag["ready"], lag["in_flight"], lag["dead"]) == (0, 2, 0)
    http.post(f"{base}:ack", json={"receipt_handles": [good["receipt_handle"]]})
    for attempt in (1, 2):
        assert bad["delivery_attempt"] == attempt
        nack = {"receipt_handles": [bad["receipt_handle"]], "reason": "no stock"}
        assert http.post(f"{base}:nack", json=nack).status_code == 200
        if attempt == 1:
            (bad,) = receive(http, topic, group, 1)

    lag = http.get(f"/v1/groups/{group}/lag", params={"topic": topic}).json()
    assert [lag[name] for name in ("ready", "in_flight", "retrying", "delayed", "dead")] == [
        *(0, 0, 0, 0, 1),
    ]
    whole = http.get(f"/v1/groups/{group}/lag").json()
    listed = http.get("/v1/groups", params={"prefix": group, "show": "lag"}).json()
    assert listed["lag"] == [{name: whole[name] for name in listed["lag"][0]}]
    listed = http.get("/v1/groups", params={"prefix": group, "show": "dead_letters"}).json()
    assert listed["dead_letters"] == [http.get(f"/v1/groups/{group}/dlq").json()]
    bad_url = f"/v1/topics/{topic}/messages/{sent[1]['message_id']}"
    delivery = http.get(f"{bad_url}/delivery", params={"group": group}).json()
    assert (delivery["standing"], delivery["attempt"]) == ("dead", 2)
    assert "no stock" in delivery["reason"]
    trail = http.get(f"{bad_url}/trace").json()
    assert [event["kind"] for event in trail["events"]] == [
        *("delivered", "nacked", "delivered", "dead_lettered"),
    ]
    assert trail["store_time_ms"] == sent[1]["store_time_ms"]

    (letter,) = http.get(f"/v1/groups/{group}/dlq/messages").json()["messages"]
    assert (letter["text"], letter["attempts"]) == ("bad", 2)
    assert letter["message_id"] == sent[1]["message_id"]
    redriven = http.post(f"/v1/groups/{group}/dlq/messages:redrive", json={"all": True})
    operation = redriven.headers["location"]
    wait_until(lambda: http.get(operation).json()["state"] == "succeeded")
    (again,) = receive(http, topic, group, 1)
    assert (again["text"], again["delivery_attempt"]) == ("bad", 1)
    assert again["message_id"] == sent[1]["message_id"]
    http.post(f"{base}:ack", json={"receipt_handles": [again["receipt_handle"]]})
    good_url = f"/v1/topics/{topic}/messages/{sent[0]['message_id']}/delivery"
    assert http.get(good_url, params={"group": group}).json()["standing"] == "acked"


def test_a_topic_without_trails(http: httpx.Client, topic: str, group: str) -> None:
    settings = {"queues": 2, "flush": "async", "trace": False}
    assert http.put(f"/v1/topics/{topic}", json=settings).json()["trace"] == "off"
    sent = http.post(f"/v1/topics/{topic}/messages", content=b"x").json()
    receive(http, topic, group, 1)
    trail = http.get(f"/v1/topics/{topic}/messages/{sent['message_id']}/trace").json()
    assert (trail["is_traced"], trail["events"]) == (False, [])


def test_questions_about_nothing(http: httpx.Client, topic: str) -> None:
    sent = http.post(f"/v1/topics/{topic}/messages", content=b"x").json()
    url = f"/v1/topics/{topic}/messages/{sent['message_id']}"
    for path, code in (
        ("/v1/groups/nobody/lag", "CONSUMER_GROUP_NOT_FOUND"),
        (f"{url}/delivery?group=nobody", "CONSUMER_GROUP_NOT_FOUND"),
        (f"/v1/topics/{topic}/messages/nothing/trace", "MESSAGE_NOT_FOUND"),
    ):
        answer = http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, code)

"""Acks and sends as one step, over real sockets."""

import httpx

G = "groups/billing/messages"


def receive(http: httpx.Client, topic: str, count: int) -> list[str]:
    for number in range(count):
        http.post(f"/v1/topics/{topic}/messages?queue_id=0", content=f"in {number}")
    answer = http.post(f"/v1/topics/{topic}/{G}:receive", json={"max_messages": count})
    return [message["receipt_handle"] for message in answer.json()["messages"]]


def settle(http: httpx.Client, topic: str, **body: object) -> httpx.Response:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    return http.post(f"/v1/topics/{topic}/{G}:settle", json=body, headers=trace)


def stored(http: httpx.Client, topic: str) -> list[dict[str, object]]:
    messages = http.get(f"/v1/topics/{topic}/messages?direction=forward").json()["messages"]
    return [message for message in messages if not message["text"].startswith("in ")]


def test_an_ack_and_its_results_are_one_step(http: httpx.Client, topic: str) -> None:
    handles = receive(http, topic, 2)
    sends = [
        {"topic": topic, "id": "a", "text": "one", "tag": "t", "keys": ["k"], "queue_id": 1},
        {"topic": topic, "text": "two", "queue_id": 1, "properties": {"p": "1"}},
        {"topic": topic, "text": "later", "delay": "1h"},
    ]
    answer = settle(http, topic, acks=handles, sends=sends)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["succeeded"], found["failed"]) == (2, 0)
    assert [each["status"] for each in found["results"]] == [200, 200]
    one, two, later = found["sends"]
    assert (one["id"], one["status"], one["queue_id"], one["queue_offset"]) == ("a", 201, 1, 0)
    assert (two["index"], two["queue_offset"]) == (1, 1)
    assert later["recall_handle"]
    assert "queue_offset" not in later
    first, second = stored(http, topic)
    assert (first["message_id"], first["tag"], first["keys"]) == (one["message_id"], "t", ["k"])
    assert first["properties"]["traceparent"].startswith("00-0af7")  # type: ignore[index]
    assert second["properties"]["p"] == "1"  # type: ignore[index]
    again = settle(http, topic, acks=handles, sends=sends)
    assert (again.status_code, again.json()["code"]) == (410, "RECEIPT_HANDLE_EXPIRED")
    assert len(stored(http, topic)) == 2


def test_the_answer_says_which_entry_was_wrong(http: httpx.Client, topic: str) -> None:
    handles = receive(http, topic, 2)
    good, bad = {"topic": topic, "text": "x"}, {"topic": topic, "text": "x", "queue_id": 7}
    answer = settle(http, topic, acks=handles, sends=[good, bad])
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (404, "QUEUE_NOT_FOUND")
    assert problem["outcome"] == "not_stored"
    assert (problem["succeeded"], problem["failed"]) == (0, 2)
    assert [each["status"] for each in problem["results"]] == [400, 400]
    assert [each["status"] for each in problem["sends"]] == [400, 404]
    assert "/sends/1" in problem["sends"][0]["error"]["detail"]
    http.delete(f"/v1/receipts/{handles[1]}")
    answer = settle(http, topic, acks=handles, sends=[good])
    problem = answer.json()
    assert answer.status_code == 410
    assert [each["status"] for each in problem["results"]] == [400, 410]
    assert stored(http, topic) == []
    assert settle(http, topic, acks=handles[:1], sends=[good]).status_code == 200


def test_what_is_refused(http: httpx.Client, topic: str) -> None:
    [handle] = receive(http, topic, 1)
    good = {"topic": topic, "text": "x"}
    mixed = settle(http, topic, acks=[handle], nacks=[{"receipt_handle": handle}], sends=[good])
    assert mixed.status_code == 400
    assert "acks only" in mixed.json()["detail"]
    assert mixed.json()["hint"]
    assert settle(http, topic, sends=[good]).status_code == 400
    misspelt = settle(http, topic, acks=[handle], sends=[{**good, "tga": "t"}])
    assert misspelt.json()["errors"][0]["pointer"] == "/sends/0/tga"
    nowhere = settle(http, topic, acks=[handle], sends=[{"text": "x"}])
    assert (nowhere.status_code, "topic" in nowhere.json()["detail"]) == (400, True)
    none = settle(http, topic, acks=[handle], sends=[{"topic": "no-such-topic", "text": "x"}])
    assert (none.status_code, none.json()["code"]) == (404, "TOPIC_NOT_FOUND")
    twice = settle(http, topic, acks=[handle], sends=[{**good, "body": 1}])
    assert twice.status_code == 400
    assert stored(http, topic) == []
    assert settle(http, topic, acks=[handle], sends=[good]).status_code == 200

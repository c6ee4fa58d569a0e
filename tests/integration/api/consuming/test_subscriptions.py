"""The filter of a group in a topic, and bounds of a group, over HTTP."""

import httpx


def send(http: httpx.Client, topic: str, *tags: str) -> None:
    for tag in tags:
        sent = http.post(f"/v1/topics/{topic}/messages?queue_id=0&tag={tag}", content=tag)
        sent.raise_for_status()


def tags(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["tag"] for each in answer.json()["messages"]]


def test_one_filter_for_receives_streams_members_and_polls(http: httpx.Client, topic: str) -> None:
    send(http, topic, "red", "blue", "red")
    group = f"one-{topic}"
    base = f"/v1/topics/{topic}/groups/{group}"
    receive = f"{base}/messages:receive"
    assert tags(http.post(f"{receive}?filter=red&client_id=w1")) == ["red"]
    assert tags(http.post(receive)) == ["red"]
    subscriptions = f"/v1/groups/{group}/subscriptions"
    (used,) = http.get(subscriptions).json()["subscriptions"]
    assert (used["topic"], used["filter"], used["source"]) == (topic, "red", "used")
    assert used["set_by"] == "w1"

    said = {"client_id": "m1", "subscriptions": [{"topic": topic, "filter": "blue"}]}
    for refused in (
        http.post(f"{receive}?filter=blue"),
        http.get(f"{base}/stream?filter=blue"),
        http.put(f"/v1/groups/{group}/members/m1", json={"subscriptions": said["subscriptions"]}),
        http.post(f"/v1/groups/{group}/members:poll", json=said),
    ):
        problem = refused.json()
        assert (refused.status_code, problem["code"]) == (409, "SUBSCRIPTION_CONFLICT")
        assert (problem["current"], problem["given"]) == ("red", "blue")
        assert problem["used_by"] == ["w1"]

    path = f"{subscriptions}/{topic}"
    tried = http.put(f"{path}?dry_run=true", json={"filter": "blue"})
    assert (tried.status_code, tried.json()["filter"]) == (200, "blue")
    assert http.get(path).json()["filter"] == "red"
    set_ = http.put(path, json={"filter": "blue"}).json()
    assert (set_["filter"], set_["source"]) == ("blue", "set")
    assert set_["version"] > used["version"]
    send(http, topic, "blue", "red")
    assert tags(http.post(receive)) == ["blue"]
    assert http.post(f"{receive}?filter=red&replace_subscription=true").status_code == 200
    assert http.get(path).json()["source"] == "used"
    assert http.delete(path).status_code == 204
    assert http.get(path).json()["code"] == "SUBSCRIPTION_NOT_FOUND"
    assert http.delete(path).status_code == 404


def test_a_free_group_has_none_and_says_so(http: httpx.Client, topic: str) -> None:
    group = f"free-{topic}"
    made = http.put(f"/v1/groups/{group}", json={"subscription": "free", "max_span": 2}).json()
    assert (made["subscription"], made["max_span"], made["max_in_flight_bytes"]) == (
        "free",
        2,
        None,
    )
    assert http.put(f"/v1/groups/new-{topic}").json()["subscription"] == "one"
    receive = f"/v1/topics/{topic}/groups/{group}/messages:receive"
    for tag in ("red", "blue"):
        assert tags(http.post(f"{receive}?filter={tag}")) == []
    assert http.get(f"/v1/groups/{group}/subscriptions").json()["subscriptions"] == []
    send(http, topic, "a", "b", "c")
    assert tags(http.post(f"{receive}?max_messages=9")) == ["a", "b"]
    for wrong in ({"subscription": "two"}, {"max_span": 0}, {"max_in_flight_bytes": -1}):
        assert http.put(f"/v1/groups/{group}", json=wrong).status_code == 400


def test_a_filter_that_is_none_and_a_topic_that_is_none(http: httpx.Client, topic: str) -> None:
    group = f"bad-{topic}"
    http.put(f"/v1/groups/{group}").raise_for_status()
    path = f"/v1/groups/{group}/subscriptions"
    for wrong, status, code in (
        (http.put(f"{path}/{topic}", json={"filter": "|"}), 400, "ILLEGAL_FILTER_EXPRESSION"),
        (http.put(f"{path}/{topic}", json={}), 400, "MALFORMED_BODY"),
        (http.put(f"{path}/nothing", json={"filter": "a"}), 404, "TOPIC_NOT_FOUND"),
        (http.get("/v1/groups/nobody/subscriptions"), 404, "CONSUMER_GROUP_NOT_FOUND"),
    ):
        assert (wrong.status_code, wrong.json()["code"]) == (status, code), wrong.text


def test_bytes_that_a_group_holds_are_bounded_and_shown(http: httpx.Client, topic: str) -> None:
    group = f"bytes-{topic}"
    http.put(f"/v1/groups/{group}", json={"max_in_flight_bytes": 100}).raise_for_status()
    send(http, topic, "a", "b")
    receive = f"/v1/topics/{topic}/groups/{group}/messages:receive?client_id=w1&max_messages=9"
    (only,) = http.post(receive).json()["messages"]
    assert tags(http.post(receive)) == []
    (client,) = http.get(f"/v1/groups/{group}/clients").json()["clients"]
    assert client["in_flight"] == 1
    assert client["in_flight_bytes"] > 100
    assert http.delete(f"/v1/receipts/{only['receipt_handle']}").status_code == 204
    assert tags(http.post(receive)) == ["b"]


def test_a_nack_in_order_may_count_no_attempt(http: httpx.Client, topic: str) -> None:
    group = f"order-{topic}"
    http.put(f"/v1/groups/{group}", json={"order": "fifo"}).raise_for_status()
    send(http, topic, "a")
    receive = f"/v1/topics/{topic}/groups/{group}/messages:receive?wait=5"
    for body in (None, {"action": "nack", "delay_ms": 0, "count_attempt": False}):
        (only,) = http.post(receive).json()["messages"]
        assert only["delivery_attempt"] == 1
        path = f"/v1/receipts/{only['receipt_handle']}"
        query = "?action=nack&delay=0s&count_attempt=false" if body is None else ""
        assert http.patch(path + query, json=body or {}).status_code == 200
    (only,) = http.post(receive).json()["messages"]
    nack = {"receipt_handle": only["receipt_handle"], "delay": "0s", "count_attempt": False}
    settle = f"/v1/topics/{topic}/groups/{group}/messages:settle"
    assert http.post(settle, json={"nacks": [nack]}).status_code == 200
    assert http.post(receive).json()["messages"][0]["delivery_attempt"] == 1


def test_a_producer_says_which_checks_count(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"type": "transaction"}).raise_for_status()
    prepare = f"/v1/topics/{topic}/messages"
    said = {"MQ-Transaction": "prepare; group=shop; checks=when_asked"}
    assert http.post(prepare, content=b"x", headers=said).status_code == 202
    wrong = {"MQ-Transaction": "prepare; group=shop; checks=never"}
    assert http.post(prepare, content=b"x", headers=wrong).status_code == 400


def test_its_version_keeps_two_operators_apart(http: httpx.Client, topic: str) -> None:
    group = f"versions-{topic}"
    http.put(f"/v1/groups/{group}", json={}).raise_for_status()
    path = f"/v1/groups/{group}/subscriptions/{topic}"
    none = {"If-None-Match": "*"}
    made = http.put(path, json={"filter": "red"}, headers=none)
    assert (made.status_code, made.headers["ETag"]) == (201, f'"{made.json()["version"]}"')
    assert http.get(path).headers["ETag"] == made.headers["ETag"]
    assert http.put(path, json={"filter": "blue"}, headers=none).status_code == 412
    mine = {"If-Match": made.headers["ETag"]}
    assert http.put(path, json={"filter": "blue"}, headers=mine).status_code == 200
    for refused in (
        http.put(path, json={"filter": "green"}, headers=mine),
        http.put(f"{path}?dry_run=true", json={"filter": "green"}, headers=mine),
        http.delete(path, headers=mine),
        http.delete(f"{path}?dry_run=true", headers=mine),
    ):
        assert (refused.status_code, refused.json()["code"]) == (412, "PRECONDITION_FAILED")
    assert http.get(path).json()["filter"] == "blue"
    now = {"If-Match": http.get(path).headers["ETag"]}
    assert http.delete(path, headers=now).status_code == 204
    again = http.put(path, json={"filter": "red"})
    assert again.headers["ETag"] not in {mine["If-Match"], now["If-Match"]}


def test_a_group_is_paused_at_the_version_that_was_read(http: httpx.Client, topic: str) -> None:
    path = f"/v1/groups/paused-{topic}"
    made = http.put(path, json={})
    paused = http.post(f"{path}:pause", headers={"If-Match": made.headers["ETag"]})
    assert (paused.status_code, paused.json()["paused"]) == (200, True)
    assert paused.headers["ETag"] == http.get(path).headers["ETag"] != made.headers["ETag"]
    for tries in ("false", "true"):
        refused = http.post(
            f"{path}:resume?dry_run={tries}", headers={"If-Match": made.headers["ETag"]}
        )
        assert (refused.status_code, refused.json()["code"]) == (412, "PRECONDITION_FAILED")
    assert http.get(path).json()["paused"] is True

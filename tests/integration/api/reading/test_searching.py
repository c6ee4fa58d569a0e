"""Browsing and filters against a real node: real log, real index, real sockets."""

import json
from typing import Any

import httpx

from app.domain.message import Message
from tests.support.clients.frames import request_frame


def send(http: httpx.Client, topic: str, body: str, **parameters: Any) -> dict[str, Any]:
    answer = http.post(f"/v1/topics/{topic}/messages", content=body, params=parameters)
    assert answer.status_code == 201, answer.text
    result: dict[str, Any] = answer.json()
    return result


def browse(http: httpx.Client, topic: str, **parameters: Any) -> dict[str, Any]:
    answer = http.get(f"/v1/topics/{topic}/messages", params=parameters)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def texts(page: dict[str, Any]) -> list[str]:
    return [message["text"] for message in page["messages"]]


def test_all_pages_in_both_directions(http: httpx.Client, topic: str) -> None:
    for number in range(50):
        send(http, topic, str(number), queue_id=number % 2)
    for direction in ("backward", "forward"):
        found: list[str] = []
        page = browse(http, topic, direction=direction, page_size=7)
        found += texts(page)
        while "next_cursor" in page:
            page = browse(http, topic, page_size=7, cursor=page["next_cursor"])
            found += texts(page)
        numbers = [str(number) for number in range(50)]
        assert found == (numbers if direction == "forward" else numbers[::-1])


def test_conditions(http: httpx.Client, topic: str) -> None:
    for number in range(30):
        properties = json.dumps({"n": str(number), "region": "eu" if number % 2 else "us"})
        keys = f"order-{number % 5} all"
        send(http, topic, f"<{number}>", tag="ab"[number % 2], keys=keys, properties=properties)
    assert texts(browse(http, topic, key="order-3")) == [
        "<28>",
        "<23>",
        "<18>",
        "<13>",
        "<8>",
        "<3>",
    ]
    assert texts(browse(http, topic, key="order-3", tag="b")) == ["<23>", "<13>", "<3>"]
    forward = browse(http, topic, key="order-3", direction="forward", page_size=2)
    assert texts(forward) == ["<3>", "<8>"]
    assert texts(browse(http, topic, text="<2", property="region=us")) == [
        "<28>",
        "<26>",
        "<24>",
        "<22>",
        "<20>",
        "<2>",
    ]
    condition = "sql: region = 'eu' AND n BETWEEN 10 AND 14"
    assert texts(browse(http, topic, filter=condition)) == ["<13>", "<11>"]
    assert texts(browse(http, topic, filter="a", page_size=2)) == ["<28>", "<26>"]
    assert browse(http, topic, key="order-9") == {"messages": [], "scanned": 0}


def test_a_time_range(http: httpx.Client, topic: str) -> None:
    clock = f"{topic}-clock"
    http.put(f"/v1/topics/{clock}", json={"flush": "async"}).raise_for_status()
    times: list[int] = []
    for number in range(6):
        times.append(send(http, topic, str(number), queue_id=number % 2)["store_time_ms"])
        while send(http, clock, "tick")["store_time_ms"] <= times[-1]:
            pass
    page = browse(http, topic, from_ms=times[1], until_ms=times[4])
    assert texts(page) == ["3", "2", "1"]
    page = browse(
        http, topic, from_ms=times[1], until_ms=times[4], direction="forward", page_size=2
    )
    assert texts(page) == ["1", "2"]
    assert texts(browse(http, topic, until_ms=times[4], cursor=page["next_cursor"])) == ["3"]


def test_lines(http: httpx.Client, topic: str) -> None:
    for number in range(3):
        send(http, topic, str(number))
    answer = http.get(
        f"/v1/topics/{topic}/messages",
        params={"page_size": 2},
        headers={"Accept": "application/x-ndjson"},
    )
    assert [json.loads(line)["text"] for line in answer.text.splitlines()] == ["2", "1"]
    assert answer.headers["mq-scanned"] == "2"
    again = browse(http, topic, cursor=answer.headers["mq-next-cursor"])
    assert texts(again) == ["0"]


def test_a_message_is_found_by_the_id_that_its_producer_gave(
    http: httpx.Client, topic: str
) -> None:
    message = Message(b"x", unique_id="order-17-1")
    frames = {"Content-Type": "application/vnd.curlew.batch"}
    url = f"/v1/topics/{topic}/messages"
    http.post(
        f"{url}:batch", content=request_frame([message], topic), headers=frames
    ).raise_for_status()
    found = http.get(f"{url}/order-17-1")
    assert found.json()["text"] == "x"
    assert texts(browse(http, topic, key="order-17-1")) == ["x"]
    assert http.get("/v1/topics/topic-1/messages/order-17-1").status_code == 404


def test_a_filtered_wait_tells_of_everything_it_passed(http: httpx.Client, topic: str) -> None:
    for number in range(5):
        send(http, topic, str(number), queue_id=0, tag="ab"[number == 3])
    url = f"/v1/topics/{topic}/queues/0/messages"
    nothing = http.get(url, params={"offset": 0, "filter": "z", "wait": "20ms"}).json()
    assert (nothing["status"], nothing["scanned"]) == ("NO_MATCHED_MSG", 5)
    assert nothing["next_offset"] == 5
    query = {"offset": "0", "filter": "sql: TAGS = 'b'", "wait": "20ms", "min_messages": "2"}
    some = http.get(url, params=query).json()
    assert (texts(some), some["scanned"], some["next_offset"]) == (["3"], 5, 5)


def test_a_condition_filters_a_stream(http: httpx.Client, topic: str) -> None:
    for number in range(30):
        send(http, topic, str(number), queue_id=number % 2, prop_n=number)
    answer = http.get(
        f"/v1/topics/{topic}/stream",
        params={
            "at": "earliest",
            "filter": "sql: n BETWEEN 10 AND 14 OR n >= 28",
            "max_messages": 7,  # the last ones of both queues are among them
            "duration": "60s",
        },
        headers={"Accept": "application/x-ndjson"},
    )
    lines = [json.loads(line) for line in answer.text.splitlines() if line]
    found = [line["text"] for line in lines if "text" in line]
    assert sorted(found) == ["10", "11", "12", "13", "14", "28", "29"]


def test_a_condition_filters_a_receive(http: httpx.Client, topic: str) -> None:
    for number in range(20):
        send(http, topic, str(number), queue_id=0, prop_n=number)
    url = f"/v1/topics/{topic}/groups/few/messages:receive"
    answer = http.post(url, json={"max_messages": 5, "filter": "sql: n > 4 AND n < 8"})
    assert texts(answer.json()) == ["5", "6", "7"]


def test_a_condition_filters_a_pull_in_every_form(http: httpx.Client, topic: str) -> None:
    for number in range(20):
        send(http, topic, str(number), queue_id=0, prop_n=number)
    url = f"/v1/topics/{topic}/queues/0/messages"
    query: dict[str, str | int] = {"offset": 0, "filter": "sql: n > 4 AND n < 8"}
    page = http.get(url, params=query).json()
    assert texts(page) == ["5", "6", "7"]
    assert (page["next_offset"], page["scanned"], page["status"]) == (20, 20, "FOUND")
    frames = http.get(url, params=query, headers={"Accept": "application/vnd.curlew.batch"})
    assert (frames.headers["mq-next-offset"], frames.headers["mq-scanned"]) == ("20", "20")
    assert int.from_bytes(frames.content[8:12]) == 3
    problem = http.get(url, params={"offset": 0, "filter": "sql: n >"})
    assert problem.status_code == 400
    assert problem.json()["code"] == "ILLEGAL_FILTER_EXPRESSION"
    assert problem.json()["position"] == 8

"""A trace context that comes with a send goes out again with every form of delivery."""

from typing import Any

import httpx
import pytest

TRACE = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "a=b",
}
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EVENT = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}


def typed(content_type: str) -> dict[str, str]:
    return {"content-type": content_type}


SENDS: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"content": b"x"}),
    ("messages", {"json": {"text": "x"}, "headers": typed("application/vnd.curlew+json")}),
    ("messages", {"json": EVENT, "headers": typed("application/cloudevents+json")}),
    ("messages:batch", {"json": {"messages": [{"text": "x"}]}}),
    ("messages:batch", {"content": b'{"text":"x"}', "headers": typed("application/x-ndjson")}),
    ("messages:batch?split=lines", {"content": b"x"}),
    ("messages:batch", {"json": [EVENT], "headers": typed("application/cloudevents-batch+json")}),
]


@pytest.mark.parametrize(("path", "request_"), SENDS)
def test_it_goes_in_with_every_send_and_out_with_every_delivery(
    http: httpx.Client, topic: str, path: str, request_: dict[str, Any]
) -> None:
    base = f"/v1/topics/{topic}"
    query = "&" if "?" in path else "?"
    headers = {**TRACE, **request_.get("headers", {})}
    sent = http.post(f"{base}/{path}{query}queue_id=0", **{**request_, "headers": headers})
    assert sent.status_code in {200, 201}, sent.text

    pull = f"{base}/queues/0/messages?offset=0"
    [message] = http.get(pull).json()["messages"]
    assert TRACE.items() <= message["properties"].items()
    lines = http.get(pull, headers={"accept": "application/x-ndjson"})
    assert TRACE["traceparent"] in lines.text
    frame = http.get(pull, headers={"accept": "application/vnd.curlew.batch"})
    assert TRACE["traceparent"].encode() in frame.content
    events = http.get(pull, headers={"accept": "application/cloudevents-batch+json"})
    assert TRACE.items() <= events.json()[0].items()
    stream = http.get(f"{base}/stream?at=earliest&max_messages=1")
    assert TRACE["traceparent"] in stream.text
    one = http.get(f"{base}/messages/{message['message_id']}?format=raw")
    assert TRACE.items() <= one.headers.items()
    leased = http.get(f"{base}/groups/s/stream?max_messages=1")
    assert TRACE["traceparent"] in leased.text
    [received] = http.post(f"{base}/groups/j/messages:receive").json()["messages"]
    assert TRACE.items() <= received["properties"].items()
    raw = http.post(f"{base}/groups/r/messages:receive?format=raw")
    assert TRACE.items() <= raw.headers.items()


def test_a_message_of_a_batch_may_have_its_own(http: httpx.Client, topic: str) -> None:
    entries = [{"text": "a", "properties": {"traceparent": OTHER}}, {"text": "b"}, {"nonsense": 1}]
    url = f"/v1/topics/{topic}/messages:batch?queue_id=0"
    answer = http.post(url, json={"messages": entries}, headers=TRACE)
    assert [result["status"] for result in answer.json()["results"]] == [201, 201, 400]
    page = http.get(f"/v1/topics/{topic}/queues/0/messages?offset=0").json()
    found = [message["properties"] for message in page["messages"]]
    assert found == [{"traceparent": OTHER}, TRACE]

"""204 and 304: no body, and no header that speaks of one."""

from collections.abc import Callable, Mapping

import httpx
import pytest

from tests.integration.api.service.test_open_node import DOCUMENT
from tests.support.whole_document import with_all_answers

JSON = {"Content-Type": "application/json"}


def _deleted_group(http: httpx.Client, topic: str) -> httpx.Response:
    http.put(f"/v1/groups/{topic}").raise_for_status()
    return http.delete(f"/v1/groups/{topic}")


def _member_that_left(http: httpx.Client, topic: str) -> httpx.Response:
    member = f"/v1/groups/{topic}/members/one"
    http.put(member, json={"subscriptions": [{"topic": topic}]}).raise_for_status()
    return http.delete(member)


def _forgotten_offsets(http: httpx.Client, topic: str) -> httpx.Response:
    _committed(http, topic)
    return http.delete(f"/v1/groups/{topic}/offsets/{topic}")


def _deleted_snapshot(http: httpx.Client, topic: str) -> httpx.Response:
    _committed(http, topic)
    http.put(f"/v1/groups/{topic}/snapshots/one").raise_for_status()
    return http.delete(f"/v1/groups/{topic}/snapshots/one")


def _committed(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/groups/{topic}").raise_for_status()
    offsets = {"offsets": [{"queue_id": 0, "offset": 0}]}
    http.put(f"/v1/groups/{topic}/offsets/{topic}", json=offsets).raise_for_status()


def _acked_receipt(http: httpx.Client, topic: str) -> httpx.Response:
    _sent(http, topic)
    received = http.post(f"/v1/topics/{topic}/groups/{topic}/messages:receive").json()
    return http.delete(f"/v1/receipts/{received['messages'][0]['receipt_handle']}")


def _deleted_schedule(http: httpx.Client, topic: str) -> httpx.Response:
    schedule = {"topic": topic, "cron": "0 5 * * *", "message": {"text": "x"}}
    http.put(f"/v1/schedules/{topic}", json=schedule).raise_for_status()
    return http.delete(f"/v1/schedules/{topic}")


def _deleted_topic(http: httpx.Client, topic: str) -> httpx.Response:
    return http.delete(f"/v1/topics/{topic}")


def _deleted_namespace(http: httpx.Client, topic: str) -> httpx.Response:
    http.put(f"/v1/namespaces/{topic}", json={}).raise_for_status()
    return http.delete(f"/v1/namespaces/{topic}")


def _deleted_producer(http: httpx.Client, topic: str) -> httpx.Response:
    number: dict[str, str | int] = {"producer_id": topic, "producer_epoch": 0, "producer_seq": 0}
    http.post(f"/v1/topics/{topic}/messages", params=number, content=b"m").raise_for_status()
    return http.delete(f"/v1/producers/{topic}")


def _nothing_received(http: httpx.Client, topic: str) -> httpx.Response:
    path = f"/v1/topics/{topic}/groups/{topic}/messages:receive?format=raw"
    return http.post(path, headers={"Prefer": "wait=0"})


def _known_message(http: httpx.Client, topic: str) -> httpx.Response:
    message = f"/v1/topics/{topic}/messages/{_sent(http, topic)['message_id']}"
    tag = http.get(message).headers["etag"]
    return http.get(message, headers={"If-None-Match": tag})


def _known_route(http: httpx.Client, topic: str) -> httpx.Response:
    route = f"/v1/topics/{topic}/route"
    tag = http.get(route).headers["etag"]
    return http.get(route, headers={"If-None-Match": tag})


def _known_routes(http: httpx.Client, topic: str) -> httpx.Response:
    routes = f"/v1/route?topics={topic}"
    tag = http.get(routes).headers["etag"]
    return http.get(routes, headers={"If-None-Match": tag})


def _known_range(http: httpx.Client, topic: str) -> httpx.Response:
    _sent(http, topic)
    path = f"/v1/topics/{topic}/queues/0/messages?offset=0&until_offset=1"
    tag = http.get(path).headers["etag"]
    return http.get(path, headers={"If-None-Match": tag})


def _recalled(http: httpx.Client, topic: str) -> httpx.Response:
    return http.delete(f"/v1/topics/{topic}/scheduled/{_later(http, topic)}")


def _delivered_early(http: httpx.Client, topic: str) -> httpx.Response:
    return http.post(f"/v1/topics/{topic}/scheduled/{_later(http, topic)}:deliver")


def _deleted_subscription(http: httpx.Client, topic: str) -> httpx.Response:
    http.put(f"/v1/groups/s-{topic}").raise_for_status()
    path = f"/v1/groups/s-{topic}/subscriptions/{topic}"
    http.put(path, json={"filter": "paid"}).raise_for_status()
    return http.delete(path)


def _later(http: httpx.Client, topic: str) -> str:
    sent = http.post(f"/v1/topics/{topic}/messages?delay=1h", content=b"x")
    return str(sent.raise_for_status().json()["recall_handle"])


def _sent(http: httpx.Client, topic: str) -> dict[str, str]:
    sent = http.post(f"/v1/topics/{topic}/messages?queue_id=0", content=b"x")
    answer: dict[str, str] = sent.raise_for_status().json()
    return answer


_GROUP = "/v1/groups/{group}"
_TOPIC = "/v1/topics/{topic}"

EMPTY: Mapping[tuple[str, str, int], Callable[[httpx.Client, str], httpx.Response]] = {
    ("delete", _GROUP, 204): _deleted_group,
    ("delete", _GROUP + "/members/{client_id}", 204): _member_that_left,
    ("delete", _GROUP + "/offsets/{topic}", 204): _forgotten_offsets,
    ("delete", _GROUP + "/snapshots/{name}", 204): _deleted_snapshot,
    ("delete", _GROUP + "/subscriptions/{topic}", 204): _deleted_subscription,
    ("delete", "/v1/receipts/{handle}", 204): _acked_receipt,
    ("delete", "/v1/schedules/{name}", 204): _deleted_schedule,
    ("delete", _TOPIC, 204): _deleted_topic,
    ("delete", "/v1/namespaces/{namespace}", 204): _deleted_namespace,
    ("delete", "/v1/producers/{producer}", 204): _deleted_producer,
    ("post", _TOPIC + "/groups/{group}/messages:receive", 204): _nothing_received,
    ("get", _TOPIC + "/messages/{message_id}", 304): _known_message,
    ("get", _TOPIC + "/queues/{queue}/messages", 304): _known_range,
    ("get", _TOPIC + "/route", 304): _known_route,
    ("get", "/v1/route", 304): _known_routes,
    ("delete", _TOPIC + "/scheduled/{recall_handle}", 204): _recalled,
    ("post", _TOPIC + "/scheduled/{recall_handle}:deliver", 204): _delivered_early,
}
"""How to get each empty answer that an open node gives."""

OF_CLOSED_NODES = {
    ("delete", "/v1/policies/{name}", 204),
    ("delete", "/v1/principals/{name}", 204),
    ("delete", "/v1/principals/{name}/keys/{key_id}", 204),
}
"""An open node makes none of these over HTTP; `tests/integration/secure/test_audit.py` does."""


def test_all_that_the_document_knows_are_here() -> None:
    documented = {
        (method, path, int(status))
        for path, methods in with_all_answers(DOCUMENT)["paths"].items()
        for method, operation in methods.items()
        if isinstance(operation, dict)
        for status in operation.get("responses", ())
        if status in {"204", "304"}
    }
    assert documented == set(EMPTY) | OF_CLOSED_NODES


@pytest.mark.parametrize("case", EMPTY, ids=lambda case: f"{case[0]} {case[1]}")
def test_it_speaks_of_no_body(http: httpx.Client, topic: str, case: tuple[str, str, int]) -> None:
    answer = EMPTY[case](http, topic)
    assert answer.status_code == case[2], answer.text
    assert answer.content == b""
    spoken = {"content-type", "content-length", "content-encoding", "transfer-encoding"}
    assert spoken.isdisjoint(answer.headers)
    assert answer.headers["mq-request-id"]

"""Delayed messages over real sockets: sending, looking, cancelling, moving, delivering now."""

import itertools
import threading
import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from app.api.formats.media import ENVELOPE, NDJSON
from app.domain.delays import DELAY_LEVELS_MS
from app.domain.limits import Limits
from tests.support.nodes.waiting import wait_until

DAY = 86_400_000


def send(
    http: httpx.Client, topic: str, text: str = "x", query: str = "", **headers: str
) -> dict[str, Any]:
    answer = http.post(f"/v1/topics/{topic}/messages{query}", content=text, headers=headers)
    assert answer.status_code == 201, answer.text
    result: dict[str, Any] = answer.json()
    return result


def texts(http: httpx.Client, topic: str) -> list[str]:
    found: list[str] = []
    for queue in range(2):
        answer = http.get(f"/v1/topics/{topic}/queues/{queue}/messages?offset=0&max_messages=1000")
        found += [message["text"] for message in answer.json()["messages"]]
    return sorted(found)


def scheduled(http: httpx.Client, topic: str, **parameters: Any) -> dict[str, Any]:
    answer = http.get(f"/v1/topics/{topic}/scheduled", params=parameters)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_delayed_message_is_nowhere_until_it_is_due(http: httpx.Client, topic: str) -> None:
    far = send(http, topic, "far", **{"MQ-Delay": "1h"})
    assert texts(http, topic) == []
    by_id = http.get(f"/v1/topics/{topic}/messages/{far['message_id']}")
    assert by_id.status_code == 404
    before_ms = now_ms()
    sent = send(http, topic, "later", **{"MQ-Delay": "500ms", "MQ-Keys": "k1", "MQ-Tag": "t"})
    assert "queue_offset" not in sent
    assert before_ms <= sent["deliver_time_ms"] - 500 <= sent["store_time_ms"]
    wait_until(lambda: texts(http, topic) == ["later"])
    message = delivered(http, topic, sent)
    assert (message["message_id"], message["tag"], message["keys"]) == (
        sent["message_id"],
        "t",
        ["k1"],
    )


def test_it_is_delivered_in_time(http: httpx.Client, topic: str) -> None:
    """Never too early. A machine that stands still makes one of them late, not all."""
    late_ms = []
    for number in range(9):
        sent = send(http, topic, str(number), **{"MQ-Delay": "50ms"})
        wait_until(lambda number=number: len(texts(http, topic)) > number)  # type: ignore[misc]
        late_ms.append(delivered(http, topic, sent)["store_time_ms"] - sent["deliver_time_ms"])
        if late_ms[-1] < 1_000:
            break
    assert min(late_ms) >= 0
    assert late_ms[-1] < 1_000, late_ms


def delivered(http: httpx.Client, topic: str, sent: dict[str, Any]) -> dict[str, Any]:
    """The last message of the queue that this one was for."""
    path = f"/v1/topics/{topic}/queues/{sent['queue_id']}/messages?offset=0"
    found: dict[str, Any] = http.get(path).json()["messages"][-1]
    return found


def test_every_way_to_say_when(http: httpx.Client, topic: str) -> None:
    at = now_ms() + DAY
    moment = datetime.fromtimestamp(at / 1_000, UTC).isoformat()
    for headers in ({"MQ-Deliver-At": str(at)}, {"MQ-Deliver-At": moment}):
        assert send(http, topic, **headers)["deliver_time_ms"] == at
    for number, level_ms in enumerate(DELAY_LEVELS_MS[6:], 7):
        before = now_ms()
        sent = send(http, topic, **{"MQ-Delay": f"level:{number}"})
        assert before <= sent["deliver_time_ms"] - level_ms <= now_ms()
    path = f"/v1/topics/{topic}/messages"
    assert http.post(f"{path}?delay=2h").json()["recall_handle"]
    assert http.post(f"{path}?deliver_at_ms={at}").json()["deliver_time_ms"] == at
    envelope = {"text": "x", "deliver_at_ms": at}
    answer = http.post(path, json=envelope, headers={"Content-Type": ENVELOPE})
    assert answer.json()["deliver_time_ms"] == at
    minimal = http.post(f"{path}?delay=2h", headers={"Prefer": "return=minimal"})
    assert minimal.headers["mq-recall-handle"]
    assert int(minimal.headers["mq-deliver-time-ms"]) > at - DAY
    assert "mq-queue-offset" not in minimal.headers


def test_a_time_in_the_past_is_now(http: httpx.Client, topic: str) -> None:
    sent = send(http, topic, "now", **{"MQ-Deliver-At": str(now_ms() - 5_000)})
    assert sent["queue_offset"] == 0
    assert "recall_handle" not in sent
    assert texts(http, topic) == ["now"]


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"MQ-Delay": "41d"}, ""),
        ({"MQ-Delay": "soon"}, ""),
        ({"MQ-Delay": "level:19"}, ""),
        ({"MQ-Delay": "level:x"}, ""),
        ({"MQ-Delay": "-5s"}, ""),
        ({"MQ-Deliver-At": "2026-12-24T18:00:00"}, ""),
        ({"MQ-Deliver-At": "tomorrow"}, ""),
        ({"MQ-Deliver-At": "99999999999999"}, ""),
        ({"MQ-Deliver-At": "1"}, "?delay=1s"),
    ],
)
def test_what_cannot_be_a_time_is_refused_with_a_hint(
    http: httpx.Client, topic: str, headers: dict[str, str], query: str
) -> None:
    answer = http.post(f"/v1/topics/{topic}/messages{query}", content=b"x", headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "ILLEGAL_DELIVERY_TIME")
    assert problem["hint"]
    assert problem["outcome"] == "not_stored"


def test_batches_mix_messages_for_now_and_later(http: httpx.Client, topic: str) -> None:
    entries = [
        {"text": "now", "id": "a"},
        {"text": "soon", "delay": "300ms", "sharding_key": "s"},
        {"text": "far", "delay": "1h"},
        {"text": "never", "delay": "41d"},
    ]
    answer = http.post(f"/v1/topics/{topic}/messages:batch", json={"messages": entries})
    assert answer.status_code == 207
    results = answer.json()["results"]
    assert [each["status"] for each in results] == [201, 201, 201, 400]
    assert "recall_handle" not in results[0]
    assert "queue_offset" not in results[1]
    assert results[3]["error"]["code"] == "ILLEGAL_DELIVERY_TIME"
    wait_until(lambda: texts(http, topic) == ["now", "soon"])
    lines = b'{"text":"b1","delay":"1h"}\n{"text":"b2"}\n'
    answer = http.post(
        f"/v1/topics/{topic}/messages:batch", content=lines, headers={"Content-Type": NDJSON}
    )
    assert [("recall_handle" in each) for each in answer.json()["results"]] == [True, False]
    waiting = scheduled(http, topic)["messages"]
    handles = {each["recall_handle"] for each in waiting}
    assert handles == {results[2]["recall_handle"], answer.json()["results"][0]["recall_handle"]}


def test_lists_by_delivery_time_in_pages(http: httpx.Client, topic: str) -> None:
    sent = [send(http, topic, str(n), **{"MQ-Delay": f"{90 - n}m"}) for n in range(7)]
    found: list[dict[str, Any]] = []
    token = None
    while True:
        page = scheduled(http, topic, page_size=3, **({"page_token": token} if token else {}))
        found += page["messages"]
        token = page["next_page_token"]
        if token is None:
            break
    assert [each["recall_handle"] for each in found] == [
        each["recall_handle"] for each in reversed(sent)
    ]
    assert found[0]["body_bytes"] == 1
    bad = http.get(f"/v1/topics/{topic}/scheduled?page_token=zzz")
    assert (bad.status_code, bad.json()["code"]) == (400, "ILLEGAL_PAGE")


def cancelled(http: httpx.Client, topic: str, delay_s: int) -> bool:
    """Send and cancel at once; False if the machine stood still until it was delivered."""
    path = f"/v1/topics/{topic}/scheduled"
    sent = send(http, topic, f"of {delay_s}", query="?queue_id=0", **{"MQ-Delay": f"{delay_s}s"})
    handle = sent["recall_handle"]
    looked = http.get(f"{path}/{handle}")
    answer = http.delete(f"{path}/{handle}")
    if answer.status_code == 409:
        assert now_ms() >= sent["deliver_time_ms"]
        return False
    assert looked.json()["message_id"] == sent["message_id"]
    assert answer.status_code == 204
    again = http.delete(f"{path}/{handle}")
    assert (again.status_code, again.json()["code"]) == (404, "MESSAGE_NOT_FOUND")
    return True


def test_cancels_before_and_not_after(http: httpx.Client, topic: str) -> None:
    path = f"/v1/topics/{topic}/scheduled"
    delays_s = [1, 5, 60]
    too_late = list(itertools.takewhile(lambda s: not cancelled(http, topic, s), delays_s))
    assert too_late != delays_s
    delay_s = delays_s[len(too_late)]
    late = send(http, topic, "delivered", query="?queue_id=1", **{"MQ-Delay": f"{delay_s}s"})
    expected = ["delivered", *(f"of {each}" for each in too_late)]
    wait_until(lambda: texts(http, topic) == expected)
    for method in ("GET", "DELETE"):
        answer = http.request(method, f"{path}/{late['recall_handle']}")
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (409, "ALREADY_DELIVERED")
        assert (problem["queue_id"], problem["queue_offset"]) == (1, 0)


def test_delivers_now_and_moves_under_the_same_handle(http: httpx.Client, topic: str) -> None:
    path = f"/v1/topics/{topic}/scheduled"
    handle = send(http, topic, "moved", **{"MQ-Delay": "1h"})["recall_handle"]
    moved = http.patch(f"{path}/{handle}", json={"delay": "2h"})
    assert moved.status_code == 200, moved.text
    assert moved.json()["recall_handle"] == handle
    again = http.patch(f"{path}/{handle}", json={"deliver_at_ms": now_ms() + DAY}).json()
    assert again.pop("dry_run") is False
    assert http.get(f"{path}/{handle}").json() == again | {
        "store_time_ms": http.get(f"{path}/{handle}").json()["store_time_ms"]
    }
    assert [each["recall_handle"] for each in scheduled(http, topic)["messages"]] == [handle]
    assert texts(http, topic) == []
    assert http.post(f"{path}/{handle}:deliver").status_code == 204
    assert texts(http, topic) == ["moved"]
    assert http.post(f"{path}/{handle}:deliver").status_code == 409
    assert http.patch(f"{path}/{handle}", json={"delay": "2h"}).status_code == 409
    third = send(http, topic, "soon", **{"MQ-Delay": "1h"})["recall_handle"]
    assert http.patch(f"{path}/{third}", json={"delay": "10ms"}).status_code == 200
    wait_until(lambda: texts(http, topic) == ["moved", "soon"])


def test_refuses_handles_that_are_not_its_own(http: httpx.Client, topic: str) -> None:
    handle = send(http, topic, **{"MQ-Delay": "1h"})["recall_handle"]
    http.put("/v1/topics/other", json={})
    changed = handle[:-2] + ("A" if handle[-2] != "A" else "B") + handle[-1]
    for path in (
        f"{topic}/scheduled/{changed}",
        f"{topic}/scheduled/x",
        f"other/scheduled/{handle}",
    ):
        answer = http.delete(f"/v1/topics/{path}")
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_RECALL_HANDLE")
    empty = http.patch(f"/v1/topics/{topic}/scheduled/{handle}", json={})
    assert (empty.status_code, empty.json()["code"]) == (400, "ILLEGAL_DELIVERY_TIME")


def test_topic_types_are_checked(http: httpx.Client) -> None:
    http.put("/v1/topics/only-delay", json={"type": "delay"}).raise_for_status()
    http.put("/v1/topics/only-fifo", json={"type": "fifo"}).raise_for_status()
    send(http, "only-delay", **{"MQ-Delay": "1h"})
    for name, headers in (("only-delay", {}), ("only-fifo", {"MQ-Delay": "1h"})):
        answer = http.post(f"/v1/topics/{name}/messages", content=b"x", headers=headers)
        problem = answer.json()
        code = "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
        assert (answer.status_code, problem["code"]) == (409, code)
        assert problem["outcome"] == "not_stored"


def test_cancelling_races_with_delivery_and_exactly_one_wins(
    http: httpx.Client, topic: str
) -> None:
    count = 60
    at = now_ms() + 1_200
    sent = [send(http, topic, str(n), **{"MQ-Deliver-At": str(at)}) for n in range(count)]
    # On a machine that stood still the last ones were sent when their time had come already.
    statuses = {n: 409 for n, each in enumerate(sent) if "recall_handle" not in each}

    def cancel(numbers: range) -> None:
        with httpx.Client(base_url=http.base_url, timeout=60) as client:
            for n in [n for n in numbers if n not in statuses]:
                path = f"/v1/topics/{topic}/scheduled/{sent[n]['recall_handle']}"
                statuses[n] = client.delete(path).status_code

    wait_until(lambda: now_ms() >= at - 60)
    threads = [threading.Thread(target=cancel, args=(range(n, count, 4),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses.values()) <= {204, 409}
    expected = sorted(str(n) for n in range(count) if statuses[n] == 409)
    wait_until(lambda: texts(http, topic) == expected)
    assert scheduled(http, topic)["messages"] == []


def test_the_limit_is_told(http: httpx.Client) -> None:
    assert http.get("/v1/limits").json()["delay_ms_max"] == Limits().delay_ms_max

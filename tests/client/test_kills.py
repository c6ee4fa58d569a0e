"""The Python client while its node is killed: nothing lost, nothing doubled (G10, G21).

Control: the judge sees what is lost, doubled, or stored though it was said not to be.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.client.load_worker import POLLED, WORKED
from tests.history.checker import Rules, check
from tests.history.events import Event, Seen, Sent
from tests.history.load import MAX_ATTEMPTS, QUEUES, Load, running_load
from tests.history.worker import TOPIC
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.crash

MODULE = "tests.client.load_worker"
PRODUCERS = ("send", "gather", "batch")
STEP_EVENTS = 300


def stored(url: str) -> Counter[str]:
    """How often each body is in the topic."""
    found: Counter[str] = Counter()
    with httpx.Client(base_url=url) as http:
        for queue_id in range(QUEUES):
            offset, end = 0, 1
            while offset < end:
                path = f"/v1/topics/{TOPIC}/queues/{queue_id}/messages"
                answer: dict[str, Any] = http.get(
                    path, params={"offset": offset, "max_messages": 1_000}
                ).json()
                found.update(str(each["text"]) for each in answer["messages"])
                offset, end = answer["next_offset"], answer["max_offset"]
    return found


def violations(events: Iterable[Event], bodies: Counter[str]) -> list[str]:
    """What the client said of its messages against what the topic has."""
    found = [f"{body} is stored {count} times" for body, count in bodies.items() if count > 1]
    for event in events:
        if isinstance(event, Sent):
            if event.outcome == "ok" and not bodies[event.body]:
                found.append(f"{event.body} is lost")
            if event.outcome == "refused" and bodies[event.body]:
                found.append(f"{event.body} is stored, though it was said not to be")
    return found


def go_on(load: Load, events: int = STEP_EVENTS) -> None:
    wanted = load.recorded() + events
    wait_until(lambda: load.recorded() >= wanted, within_s=60)


def test_kills_of_the_node_lose_and_double_nothing(tmp_path: Path) -> None:
    with running_load(tmp_path, order="concurrent") as load:
        for role in PRODUCERS:
            load.work(role, f"p-{role}", MODULE)
        load.work("work", "worker", MODULE)
        load.work("poll", "poller", MODULE)
        load.work("consume", "c0")
        for _ in range(2):
            go_on(load)
            load.kill_node()
        go_on(load)
        load.end_workers(*[f"p-{role}" for role in PRODUCERS])
        bodies = stored(load.url)
        for consumer in ("worker", "poller"):
            wait_until(lambda: handled(load, consumer) >= bodies.keys(), within_s=60)  # noqa: B023
        load.end_workers()
        load.drain()
        events = load.events()
        lags = [httpx.get(f"{load.url}/v1/groups/{each}/lag").json() for each in (WORKED, POLLED)]
    sent = Counter(event.outcome for event in events if isinstance(event, Sent))
    print(f"sent {dict(sent)}, stored {bodies.total()}")
    assert sent["ok"] > STEP_EVENTS
    assert violations(events, bodies) == []
    judged = [event for event in events if not isinstance(event, Seen)]
    assert check(judged, Rules(max_attempts=MAX_ATTEMPTS)) == {}
    for lag in lags:
        assert (lag["ready"], lag["in_flight"]) == (0, 0), "all is settled at the end"


def handled(load: Load, name: str) -> set[str]:
    """What the handler of a worker has seen."""
    found = load.so_far(name)
    return {body for event in found if isinstance(event, Seen) for body in event.bodies}


def test_the_judge_sees_what_is_lost_and_doubled() -> None:
    events = [
        Sent(0.0, 1.0, outcome, body, "", 0, 0)
        for outcome, body in (("ok", "a"), ("ok", "b"), ("refused", "c"), ("unknown", "d"))
    ]
    assert violations(events, Counter(a=1, b=1)) == []
    assert len(violations(events, Counter(a=2, c=1))) == 3

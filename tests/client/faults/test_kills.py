"""The Python client while its node is killed, ended, frozen, without room or at another time, and
while handlers fail: nothing lost, nothing doubled (G10, G21).

Control: the judge sees what is lost, doubled, or stored though it was said not to be.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.limits import MIB
from tests.client.faults.load_worker import POLLED, WORKED
from tests.crash.sweeps.disks import mounted_tmpfs, need
from tests.history.checker import Rules, check
from tests.history.events import Event, Seen, Sent
from tests.history.load import MAX_ATTEMPTS, QUEUES, Load, running_load
from tests.history.worker import TOPIC
from tests.history.workers import INVISIBLE_MS
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.crash

MODULE = "tests.client.faults.load_worker"
PRODUCERS = ("send", "gather", "batch")
STEP_EVENTS = 300


def stored(load: Load) -> Counter[str]:
    """How often each body is in the topic."""
    found: Counter[str] = Counter()
    with load.http() as http:
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


Fault = Callable[[Load], None]


def killed(load: Load) -> None:
    load.kill_node()
    go_on(load)
    load.kill_node()


def terminated(load: Load) -> None:
    """Of the node and of the worker, in the middle of what they do."""
    load.restart_node()
    go_on(load)
    load.end_workers("worker")
    load.work("work", "worker-2", MODULE)


def frozen(load: Load) -> None:
    """As slow as can be: longer than the leases of `GROUP`, and nobody loses patience."""
    load.freeze_node(2 * INVISIBLE_MS / 1_000)


def clock_stepped(load: Load) -> None:
    for offset in ("+3600", "-3600", "+0"):
        load.step_clock(offset)
        go_on(load)


def without_room(load: Load) -> None:
    with load.full_disk():
        pass


FAULTS: list[Fault] = [killed, terminated, frozen, clock_stepped, without_room]


def begin(
    load: Load,
    *workers: str,
    producers: Sequence[str] = PRODUCERS,
    module: str = MODULE,
    port: int | None = None,
) -> None:
    """Producers of each kind, a worker, a poller, and a consumer that the judge looks at.

    `port`: of what stands between all but the last one and the node.
    """
    for role in producers:
        load.work(role, f"p-{role}", module, port=port)
    load.work("poll", "poller", module, port=port)
    load.work("consume", "c0")
    for role in workers:
        load.work(role, {"work": "worker"}.get(role, role), module, port=port)


@pytest.mark.parametrize("fault", FAULTS, ids=[each.__name__ for each in FAULTS])
def test_faults_of_a_node_lose_and_double_nothing(fault: Fault, tmp_path: Path) -> None:
    with ExitStack() as stack:
        disk: Path | None = None
        if fault is without_room:
            need()
            disk = stack.enter_context(mounted_tmpfs(96 * MIB, tmp_path / "disk"))
        is_stepped = fault is clock_stepped
        load = stack.enter_context(
            running_load(tmp_path, order="concurrent", stepped_clock=is_stepped, disk=disk)
        )
        begin(load, "work")
        go_on(load)
        fault(load)
        go_on(load)
        come_to_rest_and_judge(load, "worker", "worker-2")


def test_handlers_that_raise_hang_and_block_lose_nothing(tmp_path: Path) -> None:
    """What a handler keeps beyond its lease, others are given."""
    with running_load(tmp_path, order="concurrent") as load:
        group = {"max_attempts": 1_000, "retry_policy": {"customized": ["50ms"]}}
        httpx.put(f"{load.url}/v1/groups/{WORKED}", json=group).raise_for_status()
        begin(load, "work", "fail", "block")
        for _ in range(4):
            go_on(load)
        come_to_rest_and_judge(load, "worker", "fail", "block")
        assert handled(load, "fail")
        assert handled(load, "block")


def come_to_rest_and_judge(
    load: Load, *workers: str, producers: Sequence[str] = PRODUCERS
) -> list[Sent]:
    """Everything is handled by one of the workers and by the poller, and no promise is broken.

    Returns what was sent without an answer and is stored.
    """
    load.end_workers(*[f"p-{role}" for role in producers])
    bodies = stored(load)
    for names in (workers, ("poller",)):
        wait_until(lambda: handled(load, *names) >= bodies.keys(), within_s=60)  # noqa: B023
    load.end_workers()
    load.drain()
    events = load.events()
    with load.http() as http:
        lags = [http.get(f"/v1/groups/{each}/lag").json() for each in (WORKED, POLLED)]
    sent = Counter(event.outcome for event in events if isinstance(event, Sent))
    print(f"sent {dict(sent)}, stored {bodies.total()}")
    assert sent["ok"] > STEP_EVENTS // 2
    assert violations(events, bodies) == []
    judged = [event for event in events if not isinstance(event, Seen)]
    assert check(judged, Rules(max_attempts=MAX_ATTEMPTS)) == {}
    for lag in lags:
        assert (lag["ready"], lag["in_flight"]) == (0, 0), "all is settled at the end"
    sends = [event for event in events if isinstance(event, Sent)]
    return [event for event in sends if event.outcome == "unknown" and bodies[event.body]]


def handled(load: Load, *names: str) -> set[str]:
    """What the handlers of these workers have seen."""
    found = load.so_far(*names)
    return {body for event in found if isinstance(event, Seen) for body in event.bodies}


def test_the_judge_sees_what_is_lost_and_doubled() -> None:
    events = [
        Sent(0.0, 1.0, outcome, body, "", 0, 0)
        for outcome, body in (("ok", "a"), ("ok", "b"), ("refused", "c"), ("unknown", "d"))
    ]
    assert violations(events, Counter(a=1, b=1)) == []
    assert len(violations(events, Counter(a=2, c=1))) == 3

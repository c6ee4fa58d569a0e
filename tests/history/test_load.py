"""Histories of a real node under faults break no promise of its groups (G9 to G14, G17).

Controls: each rule fires on a broken history (test_checker); and a load whose nacks are
recorded as acks fails.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.history.checker import Rules, check
from tests.history.events import Event, Received, Sent, Settled
from tests.history.load import MAX_ATTEMPTS, Load, running_load
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.crash

PRODUCERS = 3
CONSUMERS = 4
STEP_EVENTS = 300
"""Events between one fault and the next."""


def go_on(load: Load) -> None:
    """Wait until the clients have done some more."""
    wanted = load.recorded() + STEP_EVENTS
    wait_until(lambda: load.recorded() >= wanted, within_s=60)


def start_workers(load: Load) -> None:
    """Start all, and wait until each is at work: one that still starts cannot be ended well."""
    workers = {f"p{number}": "produce" for number in range(PRODUCERS)}
    workers |= {f"c{number}": "consume" for number in range(CONSUMERS)}
    workers["w"] = "watch"
    for name, work in workers.items():
        load.work(work, name)
    wait_until(lambda: all(load.so_far(name) for name in workers), within_s=60)


def settled(load: Load) -> int:
    """How many acks and the like were answered so far."""
    return sum(isinstance(event, Settled) and event.outcome == "ok" for event in load.so_far())


def asked_for_again(events: list[Event]) -> int:
    """How many deliveries of nacked messages were asked for after the nack was answered.

    A long poll that waited already may get the message too; it proves nothing.
    """
    received = [event for event in events if isinstance(event, Received)]
    bodies = {each.handle: each.body for event in received for each in event.messages}
    nacked_s = {
        bodies[event.handle]: event.ended_s
        for event in events
        if isinstance(event, Settled) and event.action == "nack" and event.outcome == "ok"
        if event.handle in bodies
    }
    return sum(
        event.began_s > nacked_s.get(each.body, float("inf"))
        for event in received
        for each in event.messages
    )


def come_to_rest(load: Load) -> list[Event]:
    load.end_workers(*[f"p{number}" for number in range(PRODUCERS)])
    go_on_quietly = load.recorded() + 20
    wait_until(lambda: load.recorded() >= go_on_quietly, within_s=60)
    load.end_workers()
    load.drain()
    return load.events()


def summary(events: list[Event]) -> str:
    sent = Counter(event.outcome for event in events if isinstance(event, Sent))
    settled = Counter(
        f"{event.action} {event.outcome}" for event in events if isinstance(event, Settled)
    )
    delivered = sum(len(event.messages) for event in events if isinstance(event, Received))
    return f"sent {dict(sent)}, delivered {delivered}, settled {dict(settled)}"


@pytest.mark.parametrize("order", ["concurrent", "fifo"])
def test_kills_and_frozen_consumers_break_no_promise(tmp_path: Path, order: str) -> None:
    with running_load(tmp_path, order=order) as load:
        start_workers(load)
        go_on(load)
        load.kill_node()
        go_on(load)
        load.stop_past_lease("c1")
        go_on(load)
        load.kill_node()
        go_on(load)
        wait_until(lambda: settled(load) >= STEP_EVENTS)
        events = come_to_rest(load)
    rules = Rules(max_attempts=MAX_ATTEMPTS, is_ordered=order == "fifo")
    print(summary(events))
    assert check(events, rules) == {}


def test_steps_of_the_clock_break_no_promise(tmp_path: Path) -> None:
    with running_load(tmp_path, order="concurrent", stepped_clock=True) as load:
        start_workers(load)
        for offset in ("+3600", "+0", "-3600", "+3600"):
            go_on(load)
            load.step_clock(offset)
        load.kill_node()
        go_on(load)
        events = come_to_rest(load)
    print(summary(events))
    assert check(events, Rules(max_attempts=MAX_ATTEMPTS)) == {}


def test_the_load_sees_a_broken_promise(tmp_path: Path) -> None:
    """Positive control: nacks that are recorded as acks look like acks that were forgotten."""
    with running_load(tmp_path, order="concurrent") as load:
        start_workers(load)
        wait_until(lambda: asked_for_again(load.so_far()) > 0, within_s=60)
        events = come_to_rest(load)
    nacks = [
        e for e in events if isinstance(e, Settled) and e.action == "nack" and e.outcome == "ok"
    ]
    forged = [
        Settled(e.began_s, e.ended_s, "ok", "ack", e.handle) if e in nacks else e for e in events
    ]
    assert "came back" in check(forged, Rules(max_attempts=MAX_ATTEMPTS))

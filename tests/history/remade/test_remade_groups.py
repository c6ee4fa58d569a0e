"""A group that is deleted and made again under load, by a node that is killed, starts anew: its
topic's messages all come again, and nothing of the old life shows.

Controls: each of `BREAKS` changes a recorded history as a node would that keeps something of the
old group; each must be noticed.
"""

from collections.abc import Callable
from itertools import pairwise
from math import inf

import msgspec
import pytest

from tests.history.events import (
    Committed,
    DeadLetters,
    Deleted,
    Delivered,
    Drained,
    Event,
    Made,
    Received,
    Sent,
    Settled,
)
from tests.history.load import Load, running_load
from tests.history.remade.group_generations import (
    GroupLife,
    check_group_generations,
    demanded_of,
    group_lives_of,
    may_be_dead,
)
from tests.history.remade.remaking_groups import MAX_ATTEMPTS, PASSED_AT_LEAST
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.crash
WORKERS = {"m": "remake", "s1": "send", "s2": "send", "t1": "take", "t2": "take"}
RECEIVERS = ("m", "t1", "t2")
KILLS = 2
PAIRS_BETWEEN_FAULTS = 1
EVENTS_BETWEEN_LOOKS = 100
GO_ON_SECONDS = 60


def full_pairs(events: list[Event]) -> list[tuple[GroupLife, GroupLife]]:
    """A life and its successor, which had to deliver some of what that had acked, and in which a
    handle of that was tried, and the dead letters without one of that were read."""
    lives = group_lives_of(events)
    return [
        (old, new)
        for old, new in pairwise(lives)
        if len(acked_again(old, new, events)) >= PASSED_AT_LEAST // 2
        and old_tries(old, new)
        and foreign_letters(old, new)
    ]


def acked_again(old: GroupLife, new: GroupLife, events: list[Event]) -> list[str]:
    """Bodies that were acked in the old life, and that the new one had to deliver for certain."""
    acked = {e.handle for e in old.events if isinstance(e, Settled) and e.action == "ack"}
    demanded = demanded_of(new, events)
    return [
        body
        for body, deliveries in old.deliveries.items()
        if body in demanded.keys() - letters_of(new)
        and any(each.handle in acked for each in deliveries)
    ]


def old_tries(old: GroupLife, new: GroupLife) -> list[Settled]:
    """Settles of the new life with handles of the old one."""
    handles = {each.handle for of_body in old.deliveries.values() for each in of_body}
    return [e for e in new.events if isinstance(e, Settled) and e.handle in handles]


def letters_of(life: GroupLife) -> set[str]:
    """Bodies that were shown as dead letters in the life."""
    read = [event for event in life.events if isinstance(event, DeadLetters)]
    return {body for event in read for body, _ in event.letters}


def foreign_letters(old: GroupLife, new: GroupLife) -> list[tuple[DeadLetters, str]]:
    """Readings of the new life, and dead letters of the old one that they must not show."""
    return [
        (event, body)
        for event in new.events
        if isinstance(event, DeadLetters)
        for body in sorted(letters_of(old))
        if not may_be_dead(new, body, event.ended_s, MAX_ATTEMPTS)
    ]


def over_and_full(events: list[Event]) -> int:
    """How many full pairs are over for everybody, so that nothing becomes known of them later."""
    latest: dict[str, float] = {}
    for event in events:
        if isinstance(event, Received):
            latest[event.client] = max(event.began_s, latest.get(event.client, 0.0))
    known_to_s = min(latest.get(name, 0.0) for name in RECEIVERS)
    return sum(new.to_s < known_to_s for _, new in full_pairs(events))


def go_on(load: Load) -> None:
    """Until there are some more full pairs."""
    wanted = over_and_full(load.so_far()) + PAIRS_BETWEEN_FAULTS
    looked_at = 0

    def is_enough() -> bool:
        nonlocal looked_at
        if load.recorded() < looked_at + EVENTS_BETWEEN_LOOKS:
            return False
        looked_at = load.recorded()
        return over_and_full(load.so_far()) >= wanted

    try:
        wait_until(is_enough, within_s=GO_ON_SECONDS)
    except AssertionError as late:
        found = check_group_generations(load.so_far(), MAX_ATTEMPTS)
        raise AssertionError(f"no more full pairs; violations so far: {found}") from late


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """Of a load with kills, whose last life, mostly with the last kill in it, comes to rest."""
    directory = tmp_path_factory.mktemp("remade")
    with running_load(directory, order="concurrent", auto_create_groups=False) as load:
        for name, role in WORKERS.items():
            load.work(role, name, "tests.history.remade.remaking_groups")
        for _ in range(KILLS):
            go_on(load)
            load.kill_node()
        load.end_workers()
        load.drain()
        return load.events()


def test_a_group_that_is_made_again_starts_anew(history: list[Event]) -> None:
    lives, full = group_lives_of(history), full_pairs(history)
    count = sum(isinstance(event, Sent) for event in history)
    print(f"{count} sent, {len(lives)} lives, {len(full)} full pairs")
    assert len(full) >= KILLS * PAIRS_BETWEEN_FAULTS
    assert lives[-1].to_s == inf
    assert any(isinstance(event, Drained) for event in lives[-1].events)
    assert check_group_generations(history, MAX_ATTEMPTS) == {}


def keep_an_ack(history: list[Event]) -> list[Event]:
    """What the old group had acked never comes in its successor."""
    old, new = full_pairs(history)[-1]
    return without(history, new, acked_again(old, new, history)[0])


def keep_a_lease(history: list[Event]) -> list[Event]:
    """A message stays hidden in the last life, until it is at rest."""
    last = group_lives_of(history)[-1]
    hidden = demanded_of(last, history).keys() & last.deliveries.keys() - letters_of(last)
    return without(history, last, min(hidden))


def without(history: list[Event], life: GroupLife, body: str) -> list[Event]:
    """With no delivery of the message in the life."""

    def rest_of(event: Received) -> Received:
        rest = [each for each in event.messages if each.body != body]
        return msgspec.structs.replace(event, messages=rest)

    return [
        rest_of(event) if isinstance(event, Received) and life.holds(event) else event
        for event in history
    ]


def keep_attempts(history: list[Event]) -> list[Event]:
    """A message comes as if the old group's attempts had counted."""
    old, new = full_pairs(history)[-1]
    body = acked_again(old, new, history)[0]
    first = new.deliveries[body][0]
    more = [
        msgspec.structs.replace(each, attempt=1 + MAX_ATTEMPTS + len(new.lost_answers))
        if each.handle == first.handle
        else each
        for each in first.received.messages
    ]
    return replaced(history, first.received, msgspec.structs.replace(first.received, messages=more))


def keep_a_dead_letter(history: list[Event]) -> list[Event]:
    """The successor lists a dead letter of the old group, right after it was made."""
    old, new = full_pairs(history)[-1]
    read, body = foreign_letters(old, new)[0]
    letters = [*read.letters, (body, 1)]
    return replaced(history, read, msgspec.structs.replace(read, letters=letters))


def take_an_old_handle(history: list[Event]) -> list[Event]:
    """A handle of the old group settles a message in its successor."""
    old, new = full_pairs(history)[-1]
    tried = old_tries(old, new)[0]
    return replaced(history, tried, msgspec.structs.replace(tried, outcome="ok"))


def replaced(history: list[Event], event: Event, by: Event) -> list[Event]:
    assert event != by
    return [by if each is event else each for each in history]


BREAKS = [
    (keep_an_ack, "missing"),
    (keep_a_lease, "missing"),
    (keep_attempts, "attempts"),
    (keep_a_dead_letter, "dead letters"),
    (take_an_old_handle, "old handle"),
]


@pytest.mark.parametrize(("breaks", "kind"), BREAKS)
def test_a_broken_promise_is_seen(
    history: list[Event], breaks: Callable[[list[Event]], list[Event]], kind: str
) -> None:
    assert set(check_group_generations(breaks(history), MAX_ATTEMPTS)) == {kind}


def sent(body: str, offset: int) -> Sent:
    return Sent(0.1, 0.2, "ok", body, "", 0, offset)


def received(
    at_s: float, body: str, attempt: int = 1, outcome: str = "ok", to_s: float = 0.0
) -> Received:
    messages = [Delivered(body, "", 0, 0, attempt, f"{body}@{at_s}")] if outcome == "ok" else []
    return Received(at_s, to_s or at_s + 0.1, outcome, "c", 1.0, messages)


def told(*events: Event) -> list[Event]:
    """Two lives; `a` is received and acked in the first, and these are of the second, from 4 s."""
    return [
        sent("a", 0),
        sent("b", 1),
        Made(1, 1.1, 1),
        received(1.2, "a"),
        Settled(1.4, 1.5, "ok", "ack", "a@1.2"),
        Deleted(2, 2.1, 1),
        Made(3, 3.1, 2),
        *events,
    ]


def old_handle(outcome: str, at_s: float = 4.0) -> Settled:
    return Settled(at_s, at_s + 0.1, outcome, "ack", "a@1.2")


def committed(offset: int, at_s: float = 6.0) -> Committed:
    return Committed(at_s, at_s + 0.1, {0: offset})


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        (told(), set()),
        (told(received(4, "a"), committed(1)), set()),
        (told(committed(0)), set()),
        (told(committed(1)), {"missing"}),
        (told(received(6.2, "a"), committed(1)), {"missing"}),
        (told(received(4, "a"), committed(2)), {"missing"}),
        (told(received(2.05, "a", to_s=3.05), committed(1)), set()),
        (told(received(4, "", outcome="unknown"), committed(1)), set()),
        (told(received(4, "a"), received(4.5, "b"), Drained(8, 8)), set()),
        (told(received(4, "", outcome="unknown"), received(5, "a"), Drained(8, 8)), {"missing"}),
        (told(received(4, "a", 2)), {"attempts"}),
        (told(received(4, "a"), received(5, "a", 2)), set()),
        (told(received(3.5, "", outcome="unknown"), received(4, "a", 2)), set()),
        (told(DeadLetters(5, 5.1, [("a", 1)])), {"dead letters"}),
        (
            told(
                received(4, "a"),
                Settled(4.2, 4.3, "ok", "dead-letter", "a@4"),
                DeadLetters(5, 5.1, [("a", 1)]),
            ),
            set(),
        ),
        (told(old_handle("ok")), {"old handle"}),
        (told(old_handle("refused")), set()),
        (told(old_handle("ok", at_s=2.05)), set()),
    ],
)
def test_what_is_a_violation(events: list[Event], kinds: set[str]) -> None:
    assert set(check_group_generations(events, MAX_ATTEMPTS)) == kinds

"""A topic that is deleted and made again under load, by a node that is killed, shows each message
in its own generation alone, and all that was acknowledged there.

Controls: `show_an_old_one` and `lose_one` change a recorded history as a node would that breaks the
promise; both must be noticed.
"""

from collections.abc import Callable
from math import inf

import msgspec
import pytest

from tests.history.events import Deleted, Event, Made, Seen, SentTo
from tests.history.load import Load, running_load
from tests.history.remade.generations import (
    Life,
    check_generations,
    lives_of,
    readings_of,
    stored_in,
)
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.crash
WORKERS = {"m": "remake", "s1": "send", "s2": "send", "r": "read", "t": "take"}
LIVES_BETWEEN_FAULTS = 4
SENDS_A_LIFE = 5
"""Of those lives: sends that are certain, and seen by a later reading of all."""


EVENTS_BETWEEN_LOOKS = 50
GO_ON_SECONDS = 120


def full_lives(events: list[Event]) -> list[Life]:
    """Those in which readings certainly had to show `SENDS_A_LIFE` messages."""
    found = []
    for life in lives_of(events):
        stored = stored_in(life, events)
        whole = readings_of(life, events)
        if whole and sum(each.ended_s < whole[-1].began_s for each in stored) >= SENDS_A_LIFE:
            found.append(life)
    return found


def go_on(load: Load, *, is_last: bool = False) -> None:
    """Until there are some more full lives; or until the last one, which has no end, is full."""
    wanted = len(full_lives(load.so_far())) + LIVES_BETWEEN_FAULTS

    looked_at = load.recorded()

    def is_enough() -> bool:
        nonlocal looked_at
        if load.recorded() < looked_at + EVENTS_BETWEEN_LOOKS:
            return False
        looked_at = load.recorded()
        full = full_lives(load.so_far())
        return full[-1].to_s == inf if is_last else len(full) >= wanted

    wait_until(is_enough, within_s=GO_ON_SECONDS)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """Of a load with two kills, and a reading of all after its end."""
    with running_load(tmp_path_factory.mktemp("remade"), order="concurrent") as load:
        for name, role in WORKERS.items():
            load.work(role, name, "tests.history.remade.remaking")
        go_on(load)
        for _ in range(2):
            load.kill_node()
            go_on(load)
        load.end_workers("m")
        go_on(load, is_last=True)
        load.end_workers()
        return load.events()


def test_each_message_is_in_its_own_generation_alone(history: list[Event]) -> None:
    full = full_lives(history)
    print(f"{len(lives_of(history))} lives, {len(full)} of them full")
    assert check_generations(history) == {}


def show_an_old_one(history: list[Event]) -> list[Event]:
    """The last reading of all shows a message that an earlier life has lost."""
    earlier, *_, later = full_lives(history)
    old = stored_in(earlier, history)[0]
    reading = readings_of(later, history)[-1]
    return replaced(history, reading, [old.body, *reading.bodies])


def lose_one(history: list[Event]) -> list[Event]:
    """A reading of all lacks a message that was acknowledged in its life before."""
    life = full_lives(history)[-1]
    lost = stored_in(life, history)[0].body
    reading = readings_of(life, history)[-1]
    return replaced(history, reading, [body for body in reading.bodies if body != lost])


def replaced(history: list[Event], reading: Seen, bodies: list[str]) -> list[Event]:
    """With other bodies in a reading."""
    assert bodies != reading.bodies
    changed = msgspec.structs.replace(reading, bodies=bodies)
    return [changed if event is reading else event for event in history]


@pytest.mark.parametrize(("breaks", "kind"), [(show_an_old_one, "foreign"), (lose_one, "missing")])
def test_a_broken_promise_is_seen(
    history: list[Event], breaks: Callable[[list[Event]], list[Event]], kind: str
) -> None:
    assert set(check_generations(breaks(history))) == {kind}


def told(*bodies: str, at_s: float = 5.0) -> list[Event]:
    """Two lives; `old` is sent in the first, `new` in the second, which is read `at_s`."""
    return [
        Made(0, 1, 1),
        SentTo(1.2, 1.4, "ok", "old"),
        SentTo(1.9, 2.1, "unknown", "between"),
        Deleted(2, 2.5, 1),
        SentTo(2.6, 2.7, "refused", "refused"),
        Made(3, 3.5, 2),
        SentTo(3.6, 3.7, "ok", "new"),
        Seen(at_s, at_s + 0.1, list(bodies), is_whole=True),
    ]


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        (told("new"), set()),
        (told("between", "new"), set()),
        (told("old", at_s=1.5), set()),
        (told(at_s=2.2), set()),
        (told("new", "old"), {"foreign"}),
        (told(), {"missing"}),
        (told(at_s=1.5), {"missing"}),
        (told("new", "refused"), {"refused"}),
    ],
)
def test_what_is_a_violation(events: list[Event], kinds: set[str]) -> None:
    assert set(check_generations(events)) == kinds

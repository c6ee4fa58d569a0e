"""A topic that is deleted and made again under load, by a node that is killed, shows each message
in its own generation alone, and all that was acknowledged there.

Controls: `show_an_old_one` and `lose_one` change a recorded history as a node would that breaks the
promise; both must be noticed.
"""

from collections.abc import Callable

import msgspec
import pytest

from tests.history.events import Deleted, Event, Made, Seen, SentTo
from tests.history.generations import check_generations, lives_of
from tests.history.load import Load, running_load
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash
WORKERS = {"m": "remake", "s1": "send", "s2": "send", "r": "read", "t": "take"}
STEP_EVENTS = 400
"""Events between one fault and the next."""


def go_on(load: Load) -> None:
    wanted = load.recorded() + STEP_EVENTS
    wait_until(lambda: load.recorded() >= wanted, within_s=60)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """Of a load with two kills, and a reading of all after its end."""
    with running_load(tmp_path_factory.mktemp("remade"), order="concurrent") as load:
        for name, role in WORKERS.items():
            load.work(role, name, "tests.history.remaking")
        go_on(load)
        for _ in range(2):
            load.kill_node()
            go_on(load)
        load.end_workers("m")
        go_on(load)
        load.end_workers()
        return load.events()


def test_each_message_is_in_its_own_generation_alone(history: list[Event]) -> None:
    lives = lives_of(history)
    assert check_generations(history) == {}
    certain = [
        event
        for event in history
        if isinstance(event, SentTo) and any(life.holds(event) for life in lives)
    ]
    print(f"{len(lives)} lives, {len(certain)} of them sent in one for certain")
    assert len(lives) > 3
    assert len(certain) > STEP_EVENTS


def show_an_old_one(history: list[Event]) -> list[Event]:
    """The second life's first reading of all shows a message of the first as well."""
    first, second = lives_of(history)[:2]
    old = next(event for event in history if isinstance(event, SentTo) and first.holds(event))
    return changed(history, second.holds, lambda bodies: [old.body, *bodies])


def lose_one(history: list[Event]) -> list[Event]:
    """A reading of all of a successor lacks its first message."""
    second = lives_of(history)[1]
    return changed(history, second.holds, lambda bodies: bodies[1:])


def changed(
    history: list[Event],
    is_meant: Callable[[Seen], bool],
    change: Callable[[list[str]], list[str]],
) -> list[Event]:
    """With the last reading of all that is meant, and is not empty, changed."""
    found = list(history)
    for index in reversed(range(len(found))):
        event = found[index]
        if isinstance(event, Seen) and event.is_whole and event.bodies and is_meant(event):
            found[index] = msgspec.structs.replace(event, bodies=change(event.bodies))
            return found
    raise AssertionError("there is no such reading")


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

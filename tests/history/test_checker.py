"""Each rule of the checker fires on a history that breaks it, and on no other."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.history.checker import RULE_NAMES, Rules, check
from tests.history.events import (
    Committed,
    DeadLetters,
    Delivered,
    Drained,
    Event,
    NodeDied,
    Received,
    Sent,
    Settled,
    decode_events,
    encode_event,
)

RULES = Rules(max_attempts=3, is_ordered=True)
INVISIBLE_S = 10.0


@dataclass
class Tale:
    """A history, told one event a second."""

    events: list[Event] = field(default_factory=list)
    now_s: float = 0.0

    def _tick(self) -> tuple[float, float]:
        began_s = self.now_s
        self.now_s += 1.0
        return began_s, began_s + 0.5

    def send(self, body: str, offset: int, outcome: str = "ok", key: str = "k") -> None:
        place = (0, offset) if outcome == "ok" else (-1, -1)
        self.events.append(Sent(*self._tick(), outcome, body, key, *place))

    def receive(self, body: str, offset: int, attempt: int = 1, handle: str = "") -> str:
        handle = handle or f"{body}#{attempt}"
        message = Delivered(body, "k", 0, offset, attempt, handle)
        self.events.append(Received(*self._tick(), "ok", "c", INVISIBLE_S, [message]))
        return handle

    def lose_answer(self) -> None:
        self.events.append(Received(*self._tick(), "unknown", "c", INVISIBLE_S, []))

    def settle(
        self, action: str, handle: str, outcome: str = "ok", new: str = "", invisible_s: float = 0
    ) -> None:
        self.events.append(Settled(*self._tick(), outcome, action, handle, new, invisible_s))

    def commit(self, offset: int) -> None:
        self.events.append(Committed(*self._tick(), {0: offset}))

    def die(self) -> None:
        self.events.append(NodeDied(*self._tick()))

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def end(self, *dead: tuple[str, int]) -> None:
        self.events.append(DeadLetters(*self._tick(), list(dead)))
        self.events.append(Drained(*self._tick()))


def a_good_life(tale: Tale) -> None:
    """Everything that is allowed: failures, expiry, a death, a lost answer, a dead letter."""
    for number in range(5):
        tale.send(f"m{number}", number)
    tale.send("gone", -1, "unknown")
    tale.settle("ack", tale.receive("m0", 0))
    tale.commit(1)
    tale.settle("nack", tale.receive("m1", 1))
    handle = tale.receive("m1", 1, 2)
    tale.settle("extend", handle, new="m1+", invisible_s=INVISIBLE_S)
    tale.settle("ack", "m1+")
    tale.settle("ack", "m1+")  # twice is fine
    late = tale.receive("m2", 2)
    tale.wait(INVISIBLE_S + 1)
    tale.settle("ack", late, "refused")
    tale.receive("m2", 2, 2)
    tale.die()
    tale.settle("ack", tale.receive("m2", 2, 3), "unknown")
    tale.lose_answer()
    for attempt in (1, 2, 3):
        tale.settle("nack", tale.receive("m3", 3, attempt))
    tale.settle("ack", tale.receive("m4", 4))
    tale.commit(5)
    tale.end(("m3", 3))


def lost(tale: Tale) -> None:
    tale.send("a", 0)
    tale.receive("a", 0)
    tale.end()


def invented(tale: Tale) -> None:
    tale.send("a", 0, "refused")
    tale.settle("ack", tale.receive("a", 0))
    tale.end()


def delivered_elsewhere(tale: Tale) -> None:
    tale.send("a", 0)
    tale.settle("ack", tale.receive("a", 1))
    tale.end()


def came_back(tale: Tale) -> None:
    tale.send("a", 0)
    tale.settle("ack", tale.receive("a", 0))
    tale.die()
    tale.wait(INVISIBLE_S)
    tale.settle("ack", tale.receive("a", 0, 2))
    tale.end()


def repeated(tale: Tale) -> None:
    """Granted before the first lease was over, though the answer came later."""
    tale.send("a", 0)
    first = tale.now_s
    tale.receive("a", 0)
    message = Delivered("a", "k", 0, 0, 2, "a#2")
    tale.events.append(Received(first, tale.now_s, "ok", "c2", INVISIBLE_S, [message]))
    tale.settle("ack", "a#2")
    tale.end()


def two_holders(tale: Tale) -> None:
    tale.send("a", 0)
    tale.receive("a", 0)
    tale.settle("ack", tale.receive("a", 0, 2))
    tale.end()


def stale_after_expiry(tale: Tale) -> None:
    tale.send("a", 0)
    handle = tale.receive("a", 0)
    tale.wait(INVISIBLE_S + 2)
    tale.settle("ack", handle)
    tale.end()


def stale_after_replacement(tale: Tale) -> None:
    tale.send("a", 0)
    handle = tale.receive("a", 0)
    tale.die()
    tale.receive("a", 0, 2)
    tale.settle("ack", handle)
    tale.end()


def stale_after_nack(tale: Tale) -> None:
    tale.send("a", 0)
    handle = tale.receive("a", 0)
    tale.settle("nack", handle)
    tale.settle("ack", handle)
    tale.end()


def reordered(tale: Tale) -> None:
    tale.send("a", 0)
    tale.send("b", 1)
    tale.settle("ack", tale.receive("b", 1))
    tale.settle("ack", tale.receive("a", 0))
    tale.end()


def ahead(tale: Tale) -> None:
    tale.send("a", 0)
    tale.send("b", 1)
    handle = tale.receive("a", 0)
    tale.settle("ack", tale.receive("b", 1))
    tale.settle("ack", handle)
    tale.end()


def went_back(tale: Tale) -> None:
    tale.commit(5)
    tale.commit(4)


def too_high_an_attempt(tale: Tale) -> None:
    tale.send("a", 0)
    tale.settle("ack", tale.receive("a", 0, 4))
    tale.end()


def too_many_deliveries(tale: Tale) -> None:
    tale.send("a", 0)
    for number in range(4):
        tale.settle("nack", tale.receive("a", 0, 1, f"h{number}"))
    tale.end(("a", 3))


def dead_twice(tale: Tale) -> None:
    tale.send("a", 0)
    for attempt in (1, 2, 3):
        tale.settle("nack", tale.receive("a", 0, attempt))
    tale.end(("a", 3), ("a", 3))


def dead_and_acked(tale: Tale) -> None:
    tale.send("a", 0)
    tale.settle("ack", tale.receive("a", 0, 3))
    tale.end(("a", 3))


def dead_too_soon(tale: Tale) -> None:
    tale.send("a", 0)
    tale.settle("nack", tale.receive("a", 0))
    tale.end(("a", 1))


BROKEN: list[tuple[Callable[[Tale], None], set[str]]] = [
    (lost, {"lost"}),
    (invented, {"invented"}),
    (delivered_elsewhere, {"invented"}),
    (came_back, {"came back"}),
    (repeated, {"repeated"}),
    (two_holders, {"two holders", "repeated"}),
    (stale_after_expiry, {"stale handle"}),
    (stale_after_replacement, {"stale handle"}),
    (stale_after_nack, {"stale handle"}),
    (reordered, {"reordered", "ahead"}),
    (ahead, {"ahead"}),
    (went_back, {"went back"}),
    (too_high_an_attempt, {"too often"}),
    (too_many_deliveries, {"too often"}),
    (dead_twice, {"dead letters"}),
    (dead_and_acked, {"dead letters"}),
    (dead_too_soon, {"dead letters"}),
]


def test_a_good_life_breaks_no_rule() -> None:
    tale = Tale()
    a_good_life(tale)
    assert check(tale.events, RULES) == {}


@pytest.mark.parametrize(("tell", "rules"), BROKEN)
def test_a_broken_promise_is_seen(tell: Callable[[Tale], None], rules: set[str]) -> None:
    tale = Tale()
    tell(tale)
    assert set(check(tale.events, RULES)) == rules


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert {rule for _, rules in BROKEN for rule in rules} == set(RULE_NAMES)


def test_an_exhausted_message_that_vanished_is_seen() -> None:
    tale = Tale()
    tale.send("a", 0)
    for attempt in (1, 2, 3):
        tale.settle("nack", tale.receive("a", 0, attempt))
    tale.end()
    assert set(check(tale.events, RULES)) == {"lost", "dead letters"}


def test_unordered_groups_have_no_order() -> None:
    tale = Tale()
    ahead(tale)
    assert check(tale.events, Rules(max_attempts=3)) == {}


def test_events_survive_their_lines() -> None:
    tale = Tale()
    a_good_life(tale)
    text = b"".join(map(encode_event, tale.events))
    assert decode_events(text + b'{"type":"Se') == tale.events

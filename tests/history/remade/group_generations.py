"""Judges a history of a group that is deleted and made again while its topic goes on, with
start=earliest. Pure; only what is certain counts.

A life of the group is a generation, and only its making begins it: no use of the group does. So
what was answered as done was done in a life, and in one for certain when it began after the
deletion of the life before was answered, and ended before the making of the next was asked for.

    missing       committed past, or at rest, and never delivered in that life
    attempts      an attempt higher than the deliveries of that life can have made it
    dead letters  of a message that was not given up in that life
    old handle    one of an earlier life settled something

A receive without an answer may have held anything, so that in the rest of its life only what is at
rest is missing; and what may have been delivered in either of two lives is judged in none.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf

from tests.history.events import (
    Committed,
    DeadLetters,
    Deleted,
    Drained,
    Event,
    Made,
    Received,
    Sent,
    Settled,
)


@dataclass(frozen=True, slots=True)
class GroupDelivery:
    """One delivery of a message."""

    body: str
    handle: str
    attempt: int
    received: Received


class GroupLife:
    """One generation and what happened in it."""

    def __init__(self, number: int, from_s: float, to_s: float, events: Iterable[Event]) -> None:
        self.number = number
        self.from_s = from_s
        self.to_s = to_s
        self.events = [event for event in events if self.holds(event)]
        """What happened in it for certain."""
        self._perhaps = [event for event in events if self._may_hold(event)]

    def holds(self, event: Event) -> bool:
        return event.began_s > self.from_s and event.ended_s < self.to_s

    def _may_hold(self, event: Event) -> bool:
        return event.ended_s >= self.from_s and event.began_s <= self.to_s

    @cached_property
    def deliveries(self) -> dict[str, list[GroupDelivery]]:
        """Those that were certain, by body, in the order of their answers."""
        found: dict[str, list[GroupDelivery]] = defaultdict(list)
        received = [event for event in self.events if isinstance(event, Received)]
        for event in sorted(received, key=lambda event: event.ended_s):
            for each in event.messages:
                found[each.body].append(GroupDelivery(each.body, each.handle, each.attempt, event))
        return dict(found)

    @cached_property
    def uncertain(self) -> set[str]:
        """Bodies that were delivered in this life or one beside it, nobody knows in which."""
        return {
            message.body
            for event in self._perhaps
            if isinstance(event, Received) and not self.holds(event)
            for message in event.messages
        }

    @cached_property
    def lost_answers(self) -> list[Received]:
        """Receives that may have leased messages in it, though nobody knows which."""
        found = (event for event in self._perhaps if isinstance(event, Received))
        return [event for event in found if event.outcome == "unknown"]

    @cached_property
    def given_up(self) -> set[str]:
        """Bodies that a client made dead letters, or may have made."""
        handles = {
            event.handle
            for event in self._perhaps
            if isinstance(event, Settled)
            and event.action == "dead-letter"
            and event.outcome != "refused"
        }
        known = (each for of_body in self.deliveries.values() for each in of_body)
        return {each.body for each in known if each.handle in handles}

    def answers_lost_before(self, until_s: float) -> int:
        return sum(event.began_s < until_s for event in self.lost_answers)


def group_lives_of(events: Iterable[Event]) -> list[GroupLife]:
    """The lives, in order."""
    events = list(events)
    made = {event.life: event.began_s for event in events if isinstance(event, Made)}
    deleted = {event.life: event.ended_s for event in events if isinstance(event, Deleted)}
    return [
        GroupLife(life, deleted.get(life - 1, began_s), made.get(life + 1, inf), events)
        for life, began_s in sorted(made.items())
    ]


def demanded_of(life: GroupLife, events: Iterable[Event]) -> dict[str, float]:
    """Bodies that this life must have delivered → until when it had to begin with that.

    Those below an offset that it had committed; and at rest, all that was acknowledged.
    """
    sent = [e for e in events if isinstance(e, Sent) and e.outcome == "ok"]
    demanded: dict[str, float] = {}
    for event in life.events:
        if isinstance(event, Committed):
            passed = {
                each.body
                for each in sent
                if each.queue_offset < event.offsets.get(each.queue_id, 0)
            }
            if life.answers_lost_before(event.ended_s):
                continue
        elif isinstance(event, Drained):
            passed = {each.body for each in sent if each.ended_s < event.began_s}
        else:
            continue
        for body in passed - life.uncertain:
            demanded[body] = min(demanded.get(body, inf), event.ended_s)
    return demanded


def check_group_generations(events: Iterable[Event], max_attempts: int) -> dict[str, list[str]]:
    """The violations of each kind; kinds without any are left out."""
    events = list(events)
    lives = group_lives_of(events)
    found = {
        "missing": [each for life in lives for each in _missing(life, events)],
        "attempts": [each for life in lives for each in _attempts(life)],
        "dead letters": [each for life in lives for each in _letters(life, max_attempts)],
        "old handle": _old_handles(lives),
    }
    return {kind: violations for kind, violations in found.items() if violations}


def _missing(life: GroupLife, events: list[Event]) -> list[str]:
    return [
        f"{body} in life {life.number}"
        for body, until_s in demanded_of(life, events).items()
        if not any(each.received.began_s < until_s for each in life.deliveries.get(body, ()))
    ]


def _attempts(life: GroupLife) -> list[str]:
    found = []
    for body, deliveries in life.deliveries.items():
        if body in life.uncertain:
            continue
        for count, each in enumerate(deliveries):
            if each.attempt > 1 + count + life.answers_lost_before(each.received.ended_s):
                found.append(f"{body} had attempt {each.attempt} in life {life.number}")
    return found


def _letters(life: GroupLife, max_attempts: int) -> list[str]:
    return [
        f"{body} is a dead letter in life {life.number}"
        for event in life.events
        if isinstance(event, DeadLetters)
        for body, _ in event.letters
        if not may_be_dead(life, body, event.ended_s, max_attempts)
    ]


def may_be_dead(life: GroupLife, body: str, until_s: float, max_attempts: int) -> bool:
    """Whether a client may have given the message up, or deliveries exhausted it, until then."""
    if body in life.given_up or body in life.uncertain:
        return True
    known = len(life.deliveries.get(body, ()))
    return known + life.answers_lost_before(until_s) >= max_attempts


def _old_handles(lives: list[GroupLife]) -> list[str]:
    from_life = {
        each.handle: life.number
        for life in lives
        for of_body in life.deliveries.values()
        for each in of_body
    }
    return [
        f"{event.action} in life {life.number} with a handle of {from_life[event.handle]}"
        for life in lives
        for event in life.events
        if isinstance(event, Settled)
        and event.outcome == "ok"
        and from_life.get(event.handle, life.number) < life.number
    ]

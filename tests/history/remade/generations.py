"""Judges a history of a topic that is deleted and made again. Pure; only what is certain counts.

A life of the topic is a generation. It is there for certain from the answer of its making to the
first request of its deletion, and perhaps from the first request of the deletion before it (who
sends may make a topic) to the answer of its own.

    foreign     seen in a life in which it cannot have been sent
    missing     acknowledged in a life, and not in a later reading of all of that life
    refused     refused as not stored, and seen

A send whose life is not certain, since it was under way at a deletion or making, may be in either
or gone; but it is never seen in a life that had not begun, or was over, while it was under way.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from tests.history.events import Deleted, Event, Made, Seen, SentTo


@dataclass(slots=True)
class Life:
    """When a generation was there, in seconds: perhaps, and for certain."""

    number: int
    perhaps_from_s: float
    from_s: float
    to_s: float = inf
    perhaps_to_s: float = inf

    def may_hold(self, event: SentTo | Seen) -> bool:
        """Whether what the event tells of can have happened in this life."""
        return event.ended_s >= self.perhaps_from_s and event.began_s <= self.perhaps_to_s

    def holds(self, event: SentTo | Seen) -> bool:
        """Whether it has happened in this life for certain."""
        return event.began_s > self.from_s and event.ended_s < self.to_s


def lives_of(events: Iterable[Event]) -> list[Life]:
    """The lives, in order."""
    changes = [event for event in events if isinstance(event, Made | Deleted)]
    lives: list[Life] = []
    for change in sorted(changes, key=lambda change: change.ended_s):
        if isinstance(change, Made):
            perhaps_from_s = lives[-1].to_s if lives else change.began_s
            lives.append(Life(change.life, perhaps_from_s, change.ended_s))
        else:
            assert lives[-1].number == change.life
            lives[-1].to_s, lives[-1].perhaps_to_s = change.began_s, change.ended_s
    return lives


def stored_in(life: Life, events: Iterable[Event]) -> list[SentTo]:
    """The sends that were acknowledged in the life for certain, in the order of their answers."""
    sent = (event for event in events if isinstance(event, SentTo))
    return sorted(
        (each for each in sent if each.outcome == "ok" and life.holds(each)),
        key=lambda each: each.ended_s,
    )


def readings_of(life: Life, events: Iterable[Event]) -> list[Seen]:
    """The readings of all that were made in the life for certain, in order."""
    seen = (event for event in events if isinstance(event, Seen))
    return sorted(
        (each for each in seen if each.is_whole and life.holds(each)),
        key=lambda each: each.began_s,
    )


def check_generations(events: Iterable[Event]) -> dict[str, list[str]]:
    """The violations of each kind; kinds without any are left out."""
    events = list(events)
    lives = lives_of(events)
    sent = {event.body: event for event in events if isinstance(event, SentTo)}
    seen = [event for event in events if isinstance(event, Seen)]
    found = {
        "foreign": _foreign(lives, sent, seen),
        "missing": [body for life in lives for body in _missing(life, sent.values(), seen)],
        "refused": _refused(sent, seen),
    }
    return {kind: violations for kind, violations in found.items() if violations}


def _foreign(lives: list[Life], sent: dict[str, SentTo], seen: list[Seen]) -> list[str]:
    return [
        f"{body} at {reading.began_s:.3f}"
        for reading in seen
        for body in reading.bodies
        if body in sent
        and not any(life.may_hold(sent[body]) and life.may_hold(reading) for life in lives)
    ]


def _missing(life: Life, sent: Iterable[SentTo], seen: list[Seen]) -> list[str]:
    stored = stored_in(life, sent)
    return [
        f"{each.body} at {reading.began_s:.3f}"
        for reading in readings_of(life, seen)
        for each in stored
        if each.ended_s < reading.began_s and each.body not in reading.bodies
    ]


def _refused(sent: dict[str, SentTo], seen: list[Seen]) -> list[str]:
    bodies = {body for reading in seen for body in reading.bodies}
    return [body for body in bodies if body in sent and sent[body].outcome == "refused"]

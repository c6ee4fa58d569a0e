"""Judges a history of one topic and group: which promises did the server break? Pure.

Every rule uses only what is certain: a request took effect somewhere between its beginning and its
end, and one without an answer perhaps never. So a violation is one in every possible order.

    lost            acknowledged, and at rest neither acked nor a dead letter              (G10)
    invented        delivered, but never sent                                              (G5)
    came back       delivered after its ack was answered                                   (G12)
    repeated        delivered again without nack, expiry, lost answer or death of the node
    two holders     delivered while the lease of another delivery certainly held           (G11)
    stale handle    settled with a handle that had certainly expired or been replaced      (G11)
    reordered       ordered group: a first delivery before one with a lower offset         (G9)
    ahead           ordered group: delivered while the message before it was unsettled     (G9)
    went back       a committed offset fell                                                (G14)
    too often       more deliveries, or a higher attempt, than max_attempts                (G17)
    dead letters    twice, or also acked, or not exhausted                                 (G17)
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

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
)

SLACK_S = 0.05
"""Clients and server read the same clock; this covers rounding of times to milliseconds."""

FOREVER_S = float("inf")


@dataclass(frozen=True, slots=True)
class Rules:
    """What the group was told to do."""

    max_attempts: int
    is_ordered: bool = False


@dataclass(slots=True)
class Delivery:
    """One delivery of a message and what its client did with the handle."""

    message: Delivered
    client: str
    began_s: float
    ended_s: float
    invisible_s: float
    settles: list[Settled] = field(default_factory=list)

    def held_until_s(self) -> float:
        """Until when its lease certainly held, had nothing else ended it.

        It was granted no sooner than the receive began, and a settle may end it as soon as that
        begins.
        """
        until_s = self.began_s + self.invisible_s
        for settle in self.settles:
            if settle.action == "extend" and settle.outcome == "ok":
                until_s = max(until_s, settle.began_s + settle.invisible_s)
            elif settle.action in ("ack", "nack", "dead_letter"):
                until_s = min(until_s, settle.began_s)
        return until_s - SLACK_S

    def expired_at_s(self) -> float:
        """From when on its lease had certainly ended."""
        until_s = self.ended_s + self.invisible_s
        for settle in self.settles:
            if settle.action == "extend" and settle.outcome != "refused":
                until_s = max(until_s, settle.ended_s + settle.invisible_s)
        return until_s + SLACK_S

    def first(self, *actions: str, answered: bool = False) -> Settled | None:
        """The first settle of that kind that was done, or may have been."""
        done = ("ok",) if answered else ("ok", "unknown")
        found = [each for each in self.settles if each.action in actions and each.outcome in done]
        return min(found, key=lambda settle: settle.began_s, default=None)


class History:
    """The events, sorted out by message."""

    def __init__(self, events: Iterable[Event], rules: Rules) -> None:
        self.rules = rules
        self.sent: dict[str, Sent] = {}
        self.deliveries: dict[str, list[Delivery]] = defaultdict(list)
        self.commits: list[Committed] = []
        self.deaths: list[NodeDied] = []
        self.lost_answers: list[Received] = []
        self.dead: Counter[str] = Counter()
        self.dead_attempts: dict[str, int] = {}
        self.is_drained = False
        self._handles: dict[str, Delivery] = {}
        self.strays: list[Settled] = []
        for event in sorted(events, key=_order):
            self._take(event)
        for delivered in self.deliveries.values():
            delivered.sort(key=lambda delivery: delivery.ended_s)

    def _take(self, event: Event) -> None:
        if isinstance(event, Sent):
            self.sent[event.body] = event
        elif isinstance(event, Received):
            self._take_receive(event)
        elif isinstance(event, Settled):
            self._take_settle(event)
        elif isinstance(event, Committed):
            self.commits.append(event)
        elif isinstance(event, NodeDied):
            self.deaths.append(event)
        elif isinstance(event, DeadLetters):
            self.dead = Counter(body for body, _ in event.letters)
            self.dead_attempts = dict(event.letters)
        else:
            assert isinstance(event, Drained)
            self.is_drained = True

    def _take_receive(self, event: Received) -> None:
        if event.outcome == "unknown":
            self.lost_answers.append(event)
        for message in event.messages:
            delivery = Delivery(
                message, event.client, event.began_s, event.ended_s, event.invisible_s
            )
            self.deliveries[message.body].append(delivery)
            self._handles[message.handle] = delivery

    def _take_settle(self, event: Settled) -> None:
        delivery = self._handles.get(event.handle)
        if delivery is None:
            self.strays.append(event)
            return
        delivery.settles.append(event)
        if event.new_handle:
            self._handles[event.new_handle] = delivery

    def died_between(self, from_s: float, to_s: float) -> bool:
        """Whether the node may have died in that time."""
        return any(death.began_s <= to_s and death.ended_s >= from_s for death in self.deaths)

    def answer_lost_between(self, from_s: float, to_s: float) -> bool:
        """Whether a receive whose answer was lost may have held messages in that time."""
        return any(
            lost.began_s <= to_s and lost.ended_s + lost.invisible_s >= from_s
            for lost in self.lost_answers
        )


def _order(event: Event) -> tuple[float, int]:
    return event.ended_s, 1 if isinstance(event, Settled) else 0


Violations = list[str]


def check(events: Iterable[Event], rules: Rules) -> dict[str, Violations]:
    """The violations of each kind; kinds without any are left out."""
    history = History(events, rules)
    found = {name: rule(history) for name, rule in _RULES.items()}
    return {name: violations for name, violations in found.items() if violations}


# --- nothing lost, nothing invented


def _lost(history: History) -> Violations:
    if not history.is_drained:
        return []
    return [
        f"{body} was acknowledged, and is neither acked nor a dead letter"
        for body, sent in history.sent.items()
        if sent.outcome == "ok" and not _is_done(history, body)
    ]


def _is_done(history: History, body: str) -> bool:
    if body in history.dead:
        return True
    return any(each.first("ack", "dead_letter") for each in history.deliveries.get(body, ()))


def _invented(history: History) -> Violations:
    strange = [f"{body} was never sent" for body in history.deliveries if body not in history.sent]
    for body, deliveries in history.deliveries.items():
        sent = history.sent.get(body)
        for each in deliveries:
            place = (each.message.queue_id, each.message.queue_offset, each.message.key)
            if sent and sent.outcome == "ok":
                if place != (sent.queue_id, sent.queue_offset, sent.key):
                    strange.append(f"{body} was delivered as {place}")
            elif sent and sent.outcome == "refused":
                strange.append(f"{body} was refused, and delivered")
    return strange


# --- leases


def _came_back(history: History) -> Violations:
    found: Violations = []
    for body, deliveries in history.deliveries.items():
        acks = [ack for each in deliveries if (ack := each.first("ack", answered=True))]
        if acks:
            acked_s = min(ack.ended_s for ack in acks)
            found += [
                f"{body} was delivered again after its ack"
                for each in deliveries
                if each.began_s > acked_s
            ]
    return found


def _repeated(history: History) -> Violations:
    found: Violations = []
    for body, deliveries in history.deliveries.items():
        for before, after in pairwise(deliveries):
            has_cause = (
                before.first("nack") is not None
                or after.ended_s >= before.held_until_s()
                or history.died_between(before.began_s, after.ended_s)
                or history.answer_lost_between(before.began_s, after.ended_s)
            )
            if not has_cause:
                found.append(f"{body} was delivered again without a cause")
    return found


def _two_holders(history: History) -> Violations:
    found: Violations = []
    for body, deliveries in history.deliveries.items():
        for before, after in pairwise(deliveries):
            both = after.began_s > before.ended_s and after.ended_s < before.held_until_s()
            if both and not history.died_between(before.began_s, after.ended_s):
                found.append(f"{body} was held by {before.client} and {after.client}")
    return found


def _stale_handle(history: History) -> Violations:
    found: Violations = []
    for body, deliveries in history.deliveries.items():
        for index, each in enumerate(deliveries):
            replaced_s = min(
                (later.ended_s for later in deliveries[index + 1 :]), default=FOREVER_S
            )
            done = each.first("ack", "nack", "dead_letter", answered=True)
            done_s = done.ended_s if done else FOREVER_S
            end_s = min(each.expired_at_s(), replaced_s, done_s)
            ack = each.first("ack")
            for settle in each.settles:
                # Repeating an ack is fine.
                is_repeated = settle.action == "ack" and ack is not None and settle is not ack
                if settle.outcome == "ok" and settle.began_s > end_s and not is_repeated:
                    found.append(f"{settle.action} of {body} with a handle that had ended")
    return found


# --- order


def _by_key(history: History) -> dict[str, list[tuple[int, list[Delivery]]]]:
    """Key → deliveries of each message, by queue offset."""
    keys: dict[str, dict[int, list[Delivery]]] = defaultdict(dict)
    for deliveries in history.deliveries.values():
        message = deliveries[0].message
        keys[message.key][message.queue_offset] = deliveries
    return {key: sorted(of_key.items()) for key, of_key in keys.items()}


def _reordered(history: History) -> Violations:
    if not history.rules.is_ordered:
        return []
    return [
        f"key {key}: offset {after} came before {before}"
        for key, messages in _by_key(history).items()
        for (before, first), (after, second) in pairwise(messages)
        if second[0].ended_s < first[0].began_s
    ]


def _ahead(history: History) -> Violations:
    if not history.rules.is_ordered:
        return []
    found: Violations = []
    for key, messages in _by_key(history).items():
        for (before, first), (after, second) in pairwise(messages):
            settles = [ack for each in first if (ack := each.first("ack", "dead_letter"))]
            exhausted = first[-1].message.attempt >= history.rules.max_attempts
            done_s = min([ack.began_s for ack in settles], default=FOREVER_S)
            if exhausted:
                ends = [each.began_s for each in first[-1].settles if each.action == "nack"]
                done_s = min([done_s, first[-1].held_until_s(), *ends])
            if second[0].ended_s < done_s:
                found.append(f"key {key}: offset {after} while {before} was unsettled")
    return found


# --- offsets, attempts, dead letters


def _went_back(history: History) -> Violations:
    found: Violations = []
    highest: dict[int, tuple[float, int]] = {}
    for commit in sorted(history.commits, key=lambda each: each.began_s):
        for queue_id, offset in commit.offsets.items():
            read_s, before = highest.get(queue_id, (0.0, 0))
            if commit.began_s > read_s and offset < before:
                found.append(f"queue {queue_id} fell from {before} to {offset}")
            if offset >= before:
                highest[queue_id] = commit.ended_s, offset
    return found


def _too_often(history: History) -> Violations:
    most = history.rules.max_attempts
    found = [
        f"{body} had attempt {each.message.attempt}"
        for body, deliveries in history.deliveries.items()
        for each in deliveries
        if each.message.attempt > most
    ]
    return found + [
        f"{body} was delivered {len(deliveries)} times"
        for body, deliveries in history.deliveries.items()
        if len(deliveries) > most
    ]


def _dead_letters(history: History) -> Violations:
    found = [
        f"{body} is a dead letter {count} times"
        for body, count in history.dead.items()
        if count > 1
    ]
    for body in history.dead:
        deliveries = history.deliveries.get(body, [])
        if any(each.first("ack", answered=True) for each in deliveries):
            found.append(f"{body} is acked and a dead letter")
        asked = any(each.first("dead_letter") for each in deliveries)
        attempts = history.dead_attempts[body]
        if not asked and attempts != history.rules.max_attempts:
            found.append(f"{body} died after {attempts} attempts")
    if history.is_drained:
        for body, deliveries in history.deliveries.items():
            last = deliveries[-1]
            is_exhausted = last.message.attempt >= history.rules.max_attempts
            if is_exhausted and not last.first("ack") and body not in history.dead:
                found.append(f"{body} was given up and is no dead letter")
    return found


_RULES: dict[str, Callable[[History], Violations]] = {
    "lost": _lost,
    "invented": _invented,
    "came back": _came_back,
    "repeated": _repeated,
    "two holders": _two_holders,
    "stale handle": _stale_handle,
    "reordered": _reordered,
    "ahead": _ahead,
    "went back": _went_back,
    "too often": _too_often,
    "dead letters": _dead_letters,
}

RULE_NAMES: Sequence[str] = tuple(_RULES)

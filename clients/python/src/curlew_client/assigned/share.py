"""What a member of a group knows and says: its queues, its place in them, and the polls. Pure.

A poll says what has become of messages and where to read on; its answer says which queues are the
member's, and what was read. A poll without an answer is repeated with all that it said: whatever
the node has done already it does not do again.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from curlew_client.assigned.options import MemberOptions, Rebalance
from curlew_client.assigned.queues import OwnedQueue
from curlew_client.assigned.records import LEAVING, Polled, QueueName
from curlew_client.consuming.decisions import REASON_CHARS_MAX, Decision
from curlew_client.errors import OffsetExpired

Document = dict[str, Any]

POLL_BYTES: Final = 8 * 1024 * 1024
HAND_BACKS_MAX: Final = 500
"""Of one poll."""
_UNREADABLE: Final = frozenset({"OFFSET_EXPIRED", "OFFSET_OUT_OF_RANGE"})
_PERHAPS: Final = frozenset({"RELAY_INTERRUPTED", "SHARD_UNAVAILABLE"})
"""Of a shard that was asked and has not answered."""
_LOST: Final = frozenset({"STALE_GENERATION", "QUEUE_NOT_OWNED", "CONSUMER_GROUP_NOT_FOUND"})
"""Codes of entries for queues that are not the member's: another reads from what is committed."""


@dataclass(slots=True)
class Said:
    """What one poll said. `life` counts how often the member had lost its queues before."""

    life: int
    commits: dict[QueueName, int] = field(default_factory=dict)
    hand_backs: dict[QueueName, dict[int, Polled]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.commits or self.hand_backs)


@dataclass(slots=True)
class News:
    """What an answer brought."""

    messages: list[tuple[OwnedQueue, list[Polled]]] = field(default_factory=list)
    refused: list[Polled] = field(default_factory=list)
    """Messages that the node did not take back: they are tried again here."""
    rebalance: Rebalance | None = None
    warnings: list[str] = field(default_factory=list)


class Share:
    """Of one member. One event loop only."""

    def __init__(
        self, options: MemberOptions, client_id: str, places: Mapping[QueueName, int] | None = None
    ) -> None:
        """`places`: where a member of a broadcast group goes on."""
        self.options = options
        self.client_id = client_id
        self.queues: dict[QueueName, OwnedQueue] = {}
        self.generation = 0
        self.assignment_id: str | None = None
        self.paused: set[QueueName] = set()
        self.is_paused = False
        self._told = 0
        """The generation of the last answer, in effect or not yet."""
        self._places = dict(places or {})
        self._turns: list[QueueName] = []
        self._leaving: dict[QueueName, dict[int, Decision]] = {}
        """Hand-backs that the node has not taken, by offset."""
        self._unsure: set[tuple[QueueName, int]] = set()
        """Those that it may have taken, in a poll whose answer was lost."""
        self._life = 0
        self._conflicts: Any = []
        self._left: Collection[QueueName] = frozenset()
        """Queues whose leaving was told of."""

    # --- saying

    @property
    def has_to_say(self) -> bool:
        """Whether there is something to commit or to hand back."""
        if self._leaving:
            return True
        return any(queue.commit_offset() > queue.committed for queue in self._reported())

    @property
    def held(self) -> tuple[int, int]:
        """Messages that are not done, and their bytes."""
        queues = self.queues.values()
        return sum(queue.count for queue in queues), sum(queue.bytes for queue in queues)

    def hand_back(self, decision: Decision) -> None:
        """Let the node take a message back, with the next poll."""
        message = decision.message
        assert isinstance(message, Polled)
        message.state = LEAVING
        message.has_begun = False
        self._leaving.setdefault(message.queue, {})[message.offset] = decision

    def _reported(self) -> Iterable[OwnedQueue]:
        return () if self.options.is_broadcast else self.queues.values()

    def poll(
        self, count: int, wait_s: float, unread: Collection[QueueName] = ()
    ) -> tuple[bytes, Said]:
        """The body of the next poll. `unread`: queues that are not read now."""
        said = Said(self._life)
        hand_backs = self._hand_backs(said)
        commits = []
        for queue in self._reported():
            offset = queue.commit_offset(said.hand_backs.get(queue.name, ()))
            if offset > queue.committed:
                said.commits[queue.name] = offset
                since = queue.since_generation
                commits.append({**_name(queue.name), "offset": offset, "since_generation": since})
        body: Document = {
            "client_id": self.client_id,
            "subscriptions": [_subscription(*each) for each in self.options.topics.items()],
            "generation": self.generation,
            "wait": round(wait_s, 3),
            "max_messages": count,
            "max_bytes": POLL_BYTES,
            "positions": self._positions(),
        }
        if self.assignment_id is not None:
            body["assignment_id"] = self.assignment_id
        if self.options.strategy is not None:
            body["strategy"] = self.options.strategy
        for name, entries in (("commits", commits), ("hand_backs", hand_backs)):
            if entries:
                body[name] = entries
        if unread:
            body["paused"] = [_name(queue) for queue in unread]
        return json.dumps(body).encode(), said

    def _hand_backs(self, said: Said) -> list[Document]:
        entries: list[Document] = []
        for name, decisions in self._leaving.items():
            for offset, decision in list(decisions.items())[: HAND_BACKS_MAX - len(entries)]:
                entry: Document = {**_name(name), "queue_offset": offset}
                if decision.reason:
                    entry["reason"] = decision.reason[:REASON_CHARS_MAX]
                if decision.delay_ms is not None:
                    entry["delay_ms"] = decision.delay_ms
                if decision.kind == "dead_letter":
                    entry["dead_letter"] = True
                entries.append(entry)
                said.hand_backs.setdefault(name, {})[offset] = decision.message  # type: ignore[assignment]
        return entries

    def _positions(self) -> list[Document]:
        found = [
            {**_name(name), "offset": offset}
            for name, offset in self._places.items()
            if name not in self.queues and name.topic in self.options.topics
        ]
        for name in self._turns:
            queue = self.queues.get(name)
            if queue is not None and not queue.is_leaving:
                found.append({**_name(name), "offset": queue.next_offset})
        return found

    def unread(self, max_span: int) -> list[QueueName]:
        """Queues that are not read now: paused, too far ahead, or not locked yet."""
        return [
            queue.name
            for queue in self.queues.values()
            if self.is_paused
            or queue.name in self.paused
            or queue.is_leaving
            or (self.options.in_order and not queue.is_locked)
            or queue.span > max_span
        ]

    def unanswered(self, said: Said) -> None:
        """A poll has no answer: what it said is said again."""
        for name, messages in said.hand_backs.items():
            self._unsure.update((name, offset) for offset in messages)

    # --- hearing

    def hear(
        self, shown: Document, found: Sequence[tuple[QueueName, list[Polled]]], said: Said
    ) -> News:
        """Take an answer. Raises `ValueError` for a group of another mode, and `OffsetExpired`
        where `offset_reset` is `fail`."""
        self._check_mode(shown)
        news = News()
        if said.life == self._life:
            self._settled(shown, said, news)
            self._follow(shown, news)
            self._read(shown, dict(found), news)
        # Else all was lost meanwhile: what came was read behind what begins anew.
        self.put_into_effect()
        if shown["conflicts"] != self._conflicts:
            self._conflicts = shown["conflicts"]
            news.warnings += [f"{each['kind']}: {each['detail']}" for each in self._conflicts]
        return news

    def _check_mode(self, shown: Document) -> None:
        is_broadcast = shown["mode"] == "broadcast"
        if is_broadcast != self.options.is_broadcast:
            raise ValueError(
                f"group {self.options.group!r} has mode {shown['mode']!r}; "
                + ("use broadcast=True" if is_broadcast else "use another group to broadcast")
            )

    def _settled(self, shown: Document, said: Said, news: News) -> None:
        committed = {_of(each): each["offset"] for each in shown["committed"]}
        refused = {(_of(each), each["offset"]): each for each in shown["refused"]}
        for name, offset in committed.items():
            queue = self.queues.get(name)
            if queue is not None:
                queue.committed = max(queue.committed, offset)
        for name, messages in said.hand_backs.items():
            left = self._leaving.get(name, {})
            for offset, message in messages.items():
                if left.pop(offset, None) is None:
                    continue
                entry = refused.pop((name, offset), None)
                was_unsure = (name, offset) in self._unsure
                self._unsure.discard((name, offset))
                is_over = entry is not None and (
                    committed.get(name, 0) > offset
                    or entry["code"] == "OFFSET_EXPIRED"
                    or (was_unsure and "is done" in entry["detail"])
                )
                if entry is None or is_over:
                    message.owner.done(message)
                elif entry["code"] not in _LOST:
                    news.refused.append(message)
                    if entry["code"] in _PERHAPS:
                        self._unsure.add((name, offset))
                    news.warnings.append(f"{message!r} is not taken back: {entry['detail']}")
            if not left:
                self._leaving.pop(name, None)
        news.warnings += [
            f"the commit of {name.topic}/{name.queue_id}@{offset} is refused: {entry['detail']}"
            for (name, offset), entry in refused.items()
            if entry["code"] not in _LOST
        ]

    def _follow(self, shown: Document, news: News) -> None:
        """Which queues are the member's."""
        before = set(self.queues)
        assigned = {_of(each): each for each in shown["assigned"]}
        revoked = {_of(each) for each in shown["revoked"]}
        for name, entry in assigned.items():
            queue = self.queues.get(name)
            since = entry["since_generation"]
            if queue is not None and queue.since_generation == since and not queue.is_leaving:
                continue
            if queue is not None and self.options.is_broadcast:
                queue.since_generation = since  # its place is its own affair
                continue
            if queue is not None:
                self._drop(queue)
            offset = entry["offset"]
            if self.options.is_broadcast:
                offset = self._places.get(name, offset)
            self.queues[name] = OwnedQueue(name, since, offset)
        for name in before - assigned.keys():
            queue = self.queues[name]
            if name in revoked:
                queue.is_leaving = True
            elif queue.is_leaving or not shown.get("partial"):
                self._drop(queue)
            # Else its node does not answer now, and tells of it when it does.
        self._told = shown["generation"]
        self.assignment_id = shown["assignment_id"]
        after = {name for name, queue in self.queues.items() if not queue.is_leaving}
        left = {name for name in before if name not in after}
        lost = left.difference(self._left)
        if after - before or lost:
            news.rebalance = Rebalance(
                self._told, sorted(after), sorted(after - before), sorted(lost)
            )
        self._left = left & self.queues.keys()

    def _drop(self, queue: OwnedQueue) -> None:
        queue.is_dropped = True
        self._leaving.pop(queue.name, None)
        if self.options.is_broadcast:
            self._places[queue.name] = queue.commit_offset()
        if self.queues.get(queue.name) is queue:
            del self.queues[queue.name]

    def put_into_effect(self) -> None:
        """Confirm the newest generation once no handler has a message of a queue that leaves."""
        leaving = [queue for queue in self.queues.values() if queue.is_leaving]
        if not any(queue.busy for queue in leaving):
            self.generation = self._told

    def let_go(self) -> None:
        """Wait no longer for handlers of queues that leave: their messages come again elsewhere."""
        for queue in [each for each in self.queues.values() if each.is_leaving and each.busy]:
            self._drop(queue)
        self.generation = self._told

    @property
    def is_letting_go(self) -> bool:
        """Whether a generation is not in effect yet."""
        return self.generation != self._told

    def lose(self) -> Rebalance | None:
        """Not a member any more: all queues are lost."""
        lost = sorted(self.queues)
        for queue in list(self.queues.values()):
            self._drop(queue)
        self._life += 1
        self._leaving.clear()
        self._unsure.clear()
        self.generation = self._told = 0
        self.assignment_id = None
        return Rebalance(0, [], [], lost) if lost else None

    # --- reading

    def _read(self, shown: Document, found: Mapping[QueueName, list[Polled]], news: News) -> None:
        self._turns = []
        for entry in shown["queues"]:
            name = _of(entry)
            queue = self.queues.get(name)
            if queue is None or queue.is_leaving:
                continue
            self._turns.append(name)
            if entry["status"] in _UNREADABLE:
                self._reset(queue, entry, news)
                continue
            if self.options.in_order and not queue.is_locked:
                continue
            if self.is_paused or name in self.paused:
                continue
            messages = found.get(name, [])
            if messages and messages[0].offset < queue.next_offset:
                messages = [each for each in messages if each.offset >= queue.next_offset]
            if entry["next_offset"] > queue.next_offset:
                queue.next_offset = entry["next_offset"]
            if messages:
                queue.add(messages)
                news.messages.append((queue, messages))
        self._turns += [name for name in self.queues if name not in set(self._turns)]

    def _reset(self, queue: OwnedQueue, entry: Document, news: News) -> None:
        """The position cannot be read: go on where `offset_reset` says."""
        how, before = self.options.offset_reset, queue.next_offset
        low, high, nearest = entry["min_offset"], entry["max_offset"], entry["next_offset"]
        place = f"{queue.name.topic}/{queue.name.queue_id}"
        what = f"offset {before} of {place} cannot be read, which has {low} to {high}"
        if how == "fail":
            raise OffsetExpired(
                what,
                code=entry["status"],
                status=410,
                hint="choose another offset_reset, or reset the group's offsets",
            )
        after = {"nearest": nearest, "earliest": low, "latest": high}[how]
        skipped = f"{after - before} messages are left out" if after > before else "it goes back"
        news.warnings.append(f"{what}; it goes on at {after} ({how}): {skipped}")
        if after < before:
            # Nothing that was read lies behind the end, so nothing is at work.
            self.queues[queue.name] = fresh = OwnedQueue(queue.name, queue.since_generation, after)
            fresh.is_locked, queue.is_dropped = queue.is_locked, True
        else:
            queue.next_offset = after

    # --- broadcast

    def places(self) -> dict[QueueName, int]:
        """How far each queue is done: what a member of a broadcast group keeps for itself."""
        found = {name: queue.commit_offset() for name, queue in self.queues.items()}
        return {**self._places, **found}


def _name(name: QueueName) -> Document:
    return {"topic": name.topic, "queue_id": name.queue_id}


def _of(entry: Document) -> QueueName:
    return QueueName(entry["topic"], entry["queue_id"])


def _subscription(topic: str, filter_text: str | None) -> Document:
    return {"topic": topic} if filter_text is None else {"topic": topic, "filter": filter_text}

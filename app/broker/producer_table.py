"""What producers have sent already: sequences, seals, idempotency keys. Pure; kept by a journal.

A request is looked up, and if it is new its entry is written and taken here in the same turn. The
entry says where the messages go, so that a repetition gets the first result after a restart, too.

An entry stands in the log right before its messages. After a crash the last one may have lost some
or all of them; `repair` asks where the queues end and takes back what is not there. That is written
down before anything else: later, what others have sent stands in its place.

A topic is named by `topic_key`, name and generation, throughout.

Bounds: `producers_max` producers and seals for `producer_window_ms` after their last use, with the
last `producer_results_max` results of each sequence; `idempotency_keys_max` keys for
`idempotency_window_ms`. Over a bound, new ones are refused: to forget one early would break the
promise silently.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, NamedTuple

from app.broker.claims import (
    Claim,
    KeyClaim,
    Placed,
    ProducerClaim,
    family_of,
    read_topic_key,
    with_generation,
)
from app.broker.epoch_plans import EpochPlans, Plan
from app.broker.producer_refusals import closed, full, in_progress, stored_before
from app.domain.errors import (
    IdempotencyKeyReused,
    ProducerFenced,
    SequenceOutOfOrder,
)
from app.domain.limits import KIB, Limits

_CHUNK_BYTES: Final = 128 * KIB
_PRODUCER, _KEY, _SEAL, _SEQUENCE, _PLAN, _DELETED, _EPOCH = "p", "k", "s", "q", "n", "d", "e"

EndOf = Callable[[str, int], int]
"""Topic and queue to one past the last readable offset."""


class Fresh(NamedTuple):
    """To be stored, but for the first `skip` messages, which a crash has left of it in a queue."""

    skip: int = 0
    queue_id: int | None = None


@dataclass(slots=True)
class _Sequence:
    next_seq: int = 0
    confirmed: int = 0
    """Below this the messages are safe; between it and `next_seq` they are being written."""
    results: deque[tuple[int, Placed]] = field(default_factory=deque)


@dataclass(slots=True)
class _Producer:
    epoch: int
    used_ms: int
    sequences: dict[tuple[str, int], _Sequence] = field(default_factory=dict)


class SequenceState(NamedTuple):
    """One sequence of a producer, for whoever asks. `queue_id` None: of the whole topic."""

    topic: str
    queue_id: int | None
    next_seq: int


class ProducerState(NamedTuple):
    """What is known of a producer. None: never used, or sealed and forgotten."""

    epoch: int | None
    sealed_epoch: int | None
    sequences: list[SequenceState]


class ProducerTable:
    """Implements `JournaledState`. Event loop only."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._producers: dict[str, _Producer] = {}
        """In the order of their last use, as far as `taken` has moved them."""
        self._families: dict[str, set[str]] = {}
        self._sequence_count = 0
        """Of all producers."""
        self._seals: dict[str, tuple[int, int]] = {}
        """Family → sealed epoch and when."""
        self._unsafe_seals: dict[str, int] = {}
        """Family → epoch of a seal that holds already and is not in the log, perhaps never will."""
        self._plans = EpochPlans()
        self._keys: dict[bytes, bytes] = {}
        """Digest of topic and key → the entry as it was written, oldest first."""
        self._unsafe_keys: set[bytes] = set()
        self._last: tuple[Claim, str, int, Placed] | None = None
        """The entry that was applied last, which a crash may have cut short."""

    # --- asking

    def look(self, claim: Claim, topic: str, scope: int, count: int, now_ms: int) -> Fresh | Placed:
        """What is to be done with a request of `count` messages: store, or answer as before.

        Raises `ProducerFenced`, `ProducerSealed`, `SequenceOutOfOrder`, `AlreadyStored`,
        `IdempotencyKeyReused`, `RequestInProgress` or `TooManyRequests`.
        """
        if isinstance(claim, KeyClaim):
            return self._look_for_key(claim, topic, count, now_ms)
        self._check_epoch(claim, now_ms)
        producer = self._producers.get(claim.producer_id)
        sequence = None
        if producer is not None and producer.epoch == claim.epoch:
            sequence = producer.sequences.get((topic, scope))
        expected = 0 if sequence is None else sequence.next_seq
        if claim.seq > expected:
            raise SequenceOutOfOrder(
                f"producer {claim.producer_id!r} sends {claim.seq}; the next one is {expected}",
                hint=f"send on from {expected}, or begin a new epoch at 0",
                fields={"expected_seq": expected},
                outcome="not_stored",
            )
        if sequence is None:
            if producer is None or producer.epoch == claim.epoch or not producer.sequences:
                self._check_room_for_sequence(now_ms)  # a new epoch ends those of the one before
            return Fresh()
        if claim.seq == expected:
            return Fresh()
        if claim.seq + count > expected:
            return Fresh(expected - claim.seq)
        return _first_result(claim, sequence, count)

    def _check_epoch(self, claim: ProducerClaim, now_ms: int) -> None:
        self._check_open(family_of(claim.producer_id), claim.epoch, claim.producer_id)
        producer = self._producers.get(claim.producer_id)
        if producer is None:
            self._expire_producers(now_ms)
            if len(self._producers) >= self._limits.producers_max:
                raise full("producers", self._limits.producers_max)
        elif claim.epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {claim.producer_id!r} has epoch {producer.epoch}; {claim.epoch} is over",
                hint="another instance of this producer has taken over",
                fields={"epoch": producer.epoch},
                outcome="not_stored",
            )

    def _check_room_for_sequence(self, now_ms: int) -> None:
        most = self._limits.producer_sequences_max
        if self._sequence_count >= most:
            self._expire_producers(now_ms)
            if self._sequence_count >= most:
                raise full("sequences of producers", most)

    def check_room_for_seal(self, family: str, now_ms: int) -> None:
        """Raise `TooManyRequests` when one more family cannot be sealed."""
        if family not in self._seals and len(self._seals) >= self._limits.producers_max:
            self._expire_producers(now_ms)
            if len(self._seals) >= self._limits.producers_max:
                raise full("producers with closed epochs", self._limits.producers_max)

    def _check_open(self, family: str, epoch: int, producer_id: str) -> None:
        sealed = self._seals.get(family)
        if sealed is not None and epoch <= sealed[0]:
            raise closed(epoch, producer_id, sealed[0])

    def plan(self, family: str, epoch: int, topic: str, now_ms: int) -> Plan | None:
        """What the epoch has planned for the topic; None when it has to be planned now.

        Raises `ProducerFenced`, `ProducerSealed` or `TooManyRequests`.
        """
        self._check_open(family, epoch, family)
        found = self._plans.find(family, epoch, topic)
        if found is None and not self._plans.has_any(family, topic):
            self._plans.expire(now_ms - self._limits.producer_window_ms)
            if len(self._plans) >= self._limits.producers_max:
                raise full("plans of producers", self._limits.producers_max)
        return found

    def _look_for_key(self, claim: KeyClaim, topic: str, count: int, now_ms: int) -> Fresh | Placed:
        self._expire_keys(now_ms)
        digest = _digest(topic, claim.key)
        entry = self._keys.get(digest)
        if entry is None:
            if len(self._keys) >= self._limits.idempotency_keys_max:
                raise full("idempotency keys", self._limits.idempotency_keys_max)
            return Fresh()
        _, _, _, fingerprint, _, placed = json.loads(entry)
        if fingerprint != claim.fingerprint:
            raise IdempotencyKeyReused(
                f"idempotency key {claim.key!r} came with another request before",
                hint="use a new key for each message, and the same one only to repeat a request",
                outcome="not_stored",
            )
        if digest in self._unsafe_keys:
            raise in_progress()
        found = _placed(placed)
        if found.size < count:
            return Fresh(found.size, found.queues[0])
        return found

    def state(self, producer_id: str) -> ProducerState:
        """What is known of a producer."""
        sealed = self._seals.get(family_of(producer_id)) or self._seals.get(producer_id)
        producer = self._producers.get(producer_id)
        sequences = [] if producer is None else sorted(producer.sequences.items())
        return ProducerState(
            None if producer is None else producer.epoch,
            None if sealed is None else sealed[0],
            [
                SequenceState(
                    read_topic_key(topic)[0], queue if queue >= 0 else None, each.next_seq
                )
                for (topic, queue), each in sequences
            ],
        )

    def sealed_epoch(self, family: str) -> int:
        """The highest closed epoch; -1 when none is."""
        return self._seals.get(family, (-1, 0))[0]

    def is_seal_safe(self, family: str) -> bool:
        """Whether the log has it: not while it is being written, nor when that has failed."""
        return family not in self._unsafe_seals

    def check_complete(self, family: str, epoch: int, messages: int) -> None:
        """Raise `SequenceOutOfOrder` unless the family has stored so many in this epoch."""
        members = [self._producers[each] for each in self._families.get(family, ())]
        stored = sum(
            sequence.confirmed
            for producer in members
            if producer.epoch == epoch
            for sequence in producer.sequences.values()
        )
        if stored < messages:
            raise SequenceOutOfOrder(
                f"of {messages} messages of epoch {epoch} of producer {family!r} {stored} are"
                " stored; a crash may have taken the others before they were synced",
                hint="send the epoch again from its beginning; what is stored is passed over",
                fields={"stored": stored},
            )

    # --- changing: the entry is appended in the same turn

    def entry(self, claim: Claim, topic: str, scope: int, placed: Placed, now_ms: int) -> bytes:
        """The entry of a request that is being stored."""
        if isinstance(claim, KeyClaim):
            return _encode(_KEY, topic, claim.key, claim.fingerprint, now_ms, placed)
        return _encode(_PRODUCER, *claim, topic, scope, now_ms, placed)

    def seal_entry(self, family: str, epoch: int, now_ms: int) -> bytes:
        """The entry of a seal."""
        return _encode(_SEAL, family, epoch, now_ms)

    def plan_entry(self, plan: Plan) -> bytes:
        """The entry of a plan."""
        return _encode(_PLAN, *plan)

    def deleted_entry(self, topic: str) -> bytes:
        """The entry of a topic's deletion."""
        return _encode(_DELETED, topic)

    def taken(self, entry: bytes) -> Callable[[bool], None]:
        """Take an entry that has just been appended.

        Call what is returned once: with True when it is safe, with False when it is not stored.
        """
        return self._apply(json.loads(entry), entry)

    def _apply(self, fields: list[Any], entry: bytes) -> Callable[[bool], None]:
        kind = fields[0]
        if kind == _PRODUCER:
            _, producer_id, epoch, seq, topic, scope, now_ms, placed = fields
            claim = ProducerClaim(producer_id, epoch, seq)
            return self._apply_claim(claim, topic, scope, now_ms, _placed(placed))
        if kind == _KEY:
            return self._apply_key(fields, entry)
        if kind == _SEAL:
            return self._apply_seal(*fields[1:])
        if kind == _PLAN:
            return self._apply_plan(Plan(*fields[1:]))
        self._last = None
        if kind == _DELETED:
            self._forget_topic(fields[1])
        elif kind == _EPOCH:
            self._use(*fields[1:])
        else:
            self._apply_sequence(*fields[1:])
        return lambda _: None

    def _apply_claim(
        self, claim: ProducerClaim, topic: str, scope: int, now_ms: int, placed: Placed
    ) -> Callable[[bool], None]:
        self._last = claim, topic, scope, placed
        sequence = self._sequence(claim.producer_id, claim.epoch, topic, scope, now_ms)
        _drop_results(sequence, claim.seq)  # a snapshot may hold them, and those behind, already
        sequence.results.append((claim.seq, placed))
        if len(sequence.results) > self._limits.producer_results_max:
            sequence.results.popleft()
        end = sequence.next_seq = claim.seq + placed.size

        def settle(is_safe: bool) -> None:
            if is_safe:
                sequence.confirmed = max(sequence.confirmed, end)
            else:
                _take_back(sequence, claim.seq)

        return settle

    def _sequence(
        self, producer_id: str, epoch: int, topic: str, scope: int, now_ms: int
    ) -> _Sequence:
        producer = self._use(producer_id, epoch, now_ms)
        sequence = producer.sequences.get((topic, scope))
        if sequence is None:
            sequence = producer.sequences[topic, scope] = _Sequence()
            self._sequence_count += 1
        return sequence

    def _use(self, producer_id: str, epoch: int, now_ms: int) -> _Producer:
        """The producer, in this epoch and as of now the last that was used."""
        producer = self._producers.pop(producer_id, None)
        if producer is None or producer.epoch != epoch:
            self._sequence_count -= len(producer.sequences) if producer is not None else 0
            producer = _Producer(epoch, now_ms)
            self._families.setdefault(family_of(producer_id), set()).add(producer_id)
        producer.used_ms = now_ms
        self._producers[producer_id] = producer
        return producer

    def _apply_key(self, fields: list[Any], entry: bytes) -> Callable[[bool], None]:
        _, topic, key, fingerprint, now_ms, placed = fields
        digest = _digest(topic, key)
        where = _placed(placed)
        self._last = KeyClaim(key, fingerprint), topic, now_ms, where
        if not where.size:  # a crash has left nothing of it
            self._keys.pop(digest, None)
            return lambda _: None
        before = self._keys.get(digest)  # what a crash has left of the same request
        self._keys[digest] = entry
        self._unsafe_keys.add(digest)

        def settle(is_safe: bool) -> None:
            self._unsafe_keys.discard(digest)
            if is_safe or self._keys.get(digest) is not entry:
                return
            if before is None:
                del self._keys[digest]
            else:
                self._keys[digest] = before

        return settle

    def _apply_plan(self, plan: Plan) -> Callable[[bool], None]:
        self._last = None
        self._plans.add(plan)
        return lambda is_safe: None if is_safe else self._plans.take_back(plan)

    def _apply_seal(self, family: str, epoch: int, now_ms: int) -> Callable[[bool], None]:
        """What it forgets cannot come back; so it holds also when it is not written."""
        self._last = None
        self._unsafe_seals[family] = max(epoch, self._unsafe_seals.get(family, epoch))

        def settle(is_safe: bool) -> None:
            if is_safe and self._unsafe_seals.get(family, epoch + 1) <= epoch:
                del self._unsafe_seals[family]

        if epoch >= self.sealed_epoch(family):
            self._seals.pop(family, None)
            self._seals[family] = epoch, now_ms
        self._plans.drop_sealed(family, epoch)
        for producer_id in list(self._families.get(family, ())):
            if self._producers[producer_id].epoch <= epoch:
                self._forget(producer_id)
        return settle

    def _apply_sequence(
        self,
        producer_id: str,
        epoch: int,
        topic: str,
        scope: int,
        now_ms: int,
        next_seq: int,
        results: list[Any],
    ) -> None:
        sequence = self._sequence(producer_id, epoch, topic, scope, now_ms)
        sequence.next_seq = sequence.confirmed = next_seq
        sequence.results = deque((seq, _placed(placed)) for seq, placed in results)

    def _forget_topic(self, topic: str) -> None:
        """Its messages do not count any more for who asks how many are stored. Its keys can meet
        no request; they go when their time is over. A producer without a sequence keeps its epoch,
        which fences older instances in every topic."""
        for producer in self._producers.values():
            for key in [key for key in producer.sequences if key[0] == topic]:
                del producer.sequences[key]
                self._sequence_count -= 1
        self._plans.drop_topic(topic)

    def _forget(self, producer_id: str) -> None:
        self._sequence_count -= len(self._producers.pop(producer_id).sequences)
        family = family_of(producer_id)
        members = self._families[family]
        members.discard(producer_id)
        if not members:
            del self._families[family]

    def topics(self) -> set[str]:
        """Those that sequences count in."""
        return {
            topic for producer in self._producers.values() for topic, _ in producer.sequences
        } | {plan.topic for plan in self._plans}

    def adopt(self, generation_of: Callable[[str], int]) -> bool:
        """Give what an earlier version has kept by names alone to the topics of those names;
        whether there was any. It is to be written down as a snapshot then."""
        lines = [line for chunk in self.dump() for line in chunk.splitlines()]
        adopted = [_adopted(line, generation_of) for line in lines]
        if adopted == lines:
            return False
        last, unsafe = self._last, dict(self._unsafe_seals)
        self.clear()
        for line in adopted:
            self.apply(line)
        if last is not None:  # what `repair` asks about has the same name as the rest
            last = last[0], with_generation(last[1], generation_of), *last[2:]
        self._last, self._unsafe_seals = last, unsafe
        return True

    # --- expiring

    def _expire_producers(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._limits.producer_window_ms
        while self._producers:
            producer_id, producer = next(iter(self._producers.items()))
            if producer.used_ms >= oldest_ms:
                break
            self._forget(producer_id)
        while self._seals:
            family, (_, sealed_ms) = next(iter(self._seals.items()))
            if sealed_ms >= oldest_ms:
                break
            del self._seals[family]
            self._unsafe_seals.pop(family, None)

    def _expire_keys(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._limits.idempotency_window_ms
        while self._keys:
            digest, entry = next(iter(self._keys.items()))
            if json.loads(entry)[4] >= oldest_ms or digest in self._unsafe_keys:
                break
            del self._keys[digest]

    # --- as a journaled state

    def clear(self) -> None:
        self._producers.clear()
        self._sequence_count = 0
        self._families.clear()
        self._seals.clear()
        self._unsafe_seals.clear()
        self._plans.clear()
        self._keys.clear()
        self._unsafe_keys.clear()
        self._last = None

    def load(self, chunk: bytes) -> None:
        for line in chunk.splitlines():
            self.apply(line)
        self._last = None

    def apply(self, entry: bytes) -> None:
        self._apply(json.loads(entry), entry)(True)

    def dump(self) -> Iterable[bytes]:
        lines: list[bytes] = []
        size = 0
        for line in chain(self._dump_keys(), self._dump_seals(), self._dump_sequences()):
            if size + len(line) > _CHUNK_BYTES:
                yield b"\n".join(lines)
                lines, size = [], 0
            lines.append(line)
            size += len(line) + 1
        if lines:
            yield b"\n".join(lines)

    def _dump_keys(self) -> Iterator[bytes]:
        yield from list(self._keys.values())

    def _dump_seals(self) -> Iterator[bytes]:
        for family in list(self._seals):
            if family in self._seals:
                yield _encode(_SEAL, family, *self._seals[family])
        for plan in self._plans:
            yield _encode(_PLAN, *plan)

    def _dump_sequences(self) -> Iterator[bytes]:
        for producer_id in list(self._producers):
            producer = self._producers.get(producer_id)
            if producer is not None:  # else forgotten meanwhile
                if not producer.sequences:
                    yield _encode(_EPOCH, producer_id, producer.epoch, producer.used_ms)
                for where, sequence in list(producer.sequences.items()):
                    yield _sequence_entry(producer_id, producer, where, sequence)

    def repair(self, end_of: EndOf) -> bytes | None:
        """After a replay: take back what the last entry promises and the queues do not have.

        Returns the entry that says so, when there is something; it is to be written at once. Only a
        frame is cut short, and it lies in one queue; other requests are whole or not there.
        """
        if self._last is None:
            return None
        claim, topic, scope, placed = self._last
        kept = min(
            [
                min(max(end_of(read_topic_key(topic)[0], queue) - first, 0), placed.size)
                for queue, first in placed.firsts
            ]
            if len(placed.firsts) == 1
            else [placed.size]
        )
        if kept == placed.size:
            return None
        short = placed._replace(size=kept)
        if isinstance(claim, ProducerClaim):
            sequence = self._producers[claim.producer_id].sequences[topic, scope]
            _take_back(sequence, claim.seq)
            if kept:
                sequence.results.append((claim.seq, short))
            sequence.next_seq = sequence.confirmed = claim.seq + kept
            producer = self._producers[claim.producer_id]
            return _sequence_entry(claim.producer_id, producer, (topic, scope), sequence)
        entry = self.entry(claim, topic, scope, short, scope)  # `scope` is the time of a key
        self.apply(entry)
        return entry


def _sequence_entry(
    producer_id: str, producer: _Producer, where: tuple[str, int], sequence: _Sequence
) -> bytes:
    row = *where, producer.used_ms, sequence.next_seq, list(sequence.results)
    return _encode(_SEQUENCE, producer_id, producer.epoch, *row)


def _first_result(claim: ProducerClaim, sequence: _Sequence, count: int) -> Placed:
    if claim.seq + count > sequence.confirmed:
        raise in_progress()
    for seq, placed in sequence.results:
        if seq == claim.seq and placed.size == count:
            return placed
    raise stored_before(claim.producer_id, claim.seq, count, sequence.next_seq)


def _take_back(sequence: _Sequence, seq: int) -> None:
    """Forget `seq` and what came after it; it is not stored."""
    sequence.next_seq = min(sequence.next_seq, seq)
    _drop_results(sequence, seq)


def _drop_results(sequence: _Sequence, seq: int) -> None:
    while sequence.results and sequence.results[-1][0] >= seq:
        sequence.results.pop()


def _digest(topic: str, key: str) -> bytes:
    return blake2b(f"{topic}\n{key}".encode(), digest_size=16).digest()


def _adopted(line: bytes, generation_of: Callable[[str], int]) -> bytes:
    """An entry of a snapshot whose topic has a generation, if one is known for its name."""
    fields = json.loads(line)
    place = {_KEY: 1, _SEQUENCE: 3, _PLAN: 3}.get(fields[0])
    if place is None:
        return line
    named = with_generation(fields[place], generation_of)
    if named == fields[place]:
        return line
    fields[place] = named
    return _encode(*fields)


def _encode(*fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _placed(fields: list[Any]) -> Placed:
    count, queues, firsts = fields
    return Placed(count, tuple(queues), tuple((queue, first) for queue, first in firsts))

"""What producers have sent already: sequences, seals, idempotency keys. Pure; kept by a journal.

A request is looked up, and if it is new its entry is written and taken here in the same turn. The
entry says where the messages go, so that a repetition gets the first result after a restart, too.

An entry stands in the log right before its messages. After a crash the last one may have lost some
or all of them; `repair` asks where the queues end and takes back what is not there. That is written
down before anything else: later, what others have sent stands in its place.

A topic is named by `topic_key`, name and generation, throughout.

Bounds: `producers_max` producers and seals for `producer_window_ms` after their last use, with the
last `producer_results_max` results of each sequence; `idempotency_keys_max` keys for
`idempotency_window_ms`. Over a bound the least recently used is forgotten that is idle for
`producer_idle_ms_min`, with one sequence or sealed; else new ones are refused. What a seal, a
deletion or time ends is forgotten in slices of `FORGOTTEN_AT_ONCE`, and counts from then on.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from operator import length_hint
from typing import Any, Final

from app.broker.dedup.dedup_entries import (
    DELETED,
    EPOCH,
    FORGOTTEN,
    KEY,
    PLAN,
    PRODUCER,
    SEAL,
    Fresh,
    KnownProducer,
    ProducerState,
    SequenceNumbers,
    adopted,
    chunks_of,
    decode,
    drop_results,
    encode,
    expire_seals,
    first_result,
    idle_producer,
    kept_count,
    placed_of,
    sequence_entry,
    state_of,
    take_back,
)
from app.broker.dedup.dedup_refusals import closed, fenced, full, too_far
from app.broker.dedup.key_table import KeyTable
from app.broker.dedup.producer_plans import Plan, ProducerPlans
from app.broker.dedup.tokens import (
    Claim,
    KeyToken,
    Placed,
    ProducerToken,
    family_of,
    read_topic_key,
    with_generation,
)
from app.domain.limits import KIB, STORE_TIME_LEAD_MS_MAX, Limits

FORGOTTEN_AT_ONCE: Final = 1_000
"""Producers, seals or keys that one call looks at to forget them; some milliseconds."""

COUNTED_AT_ONCE: Final = 10_000
"""Producers whose messages are counted in one turn."""

_CHUNK_BYTES: Final = 128 * KIB
_FRESH: Final = Fresh()

EndOf = Callable[[str, int], int]
"""Topic and queue to one past the last readable offset."""


class DedupTable:
    """Implements `JournaledState`. Event loop only."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._producers: dict[str, KnownProducer] = {}
        """In the order of their last use, as far as `taken` has moved them."""
        self._closed: dict[str, tuple[int, Iterator[str]]] = {}
        """Families whose closed producers are still to be forgotten → epoch, ids left to look at.
        Nobody may take one of them for known: ask by `_find`."""
        self._gone: dict[str, bool] = {}
        """Deleted topics whose sequences are still to be forgotten → whether `_sweep` looks for
        them from its beginning on."""
        self._sweep: Iterator[str] = iter(())
        """Producers left to look at, for all of the topics."""
        self._families: dict[str, set[str]] = {}
        self._sequence_count = 0
        """Of all producers, with those that are still to be forgotten."""
        self._seals: dict[str, tuple[int, int]] = {}
        """Family → sealed epoch and when."""
        self._unsafe_seals: dict[str, int] = {}
        """Family → epoch of a seal that holds already and is not in the log, perhaps never will."""
        self._plans = ProducerPlans()
        self._keys = KeyTable(limits)
        self._last: tuple[Claim, str, int, Placed] | None = None
        """The entry that was applied last, which a crash may have cut short."""

    # --- asking

    def look(self, claim: Claim, topic: str, scope: int, count: int, now_ms: int) -> Fresh | Placed:
        """What is to be done with a request of `count` messages: store, or answer as before.

        Raises `ProducerFenced`, `ProducerSealed`, `SequenceOutOfOrder`, `AlreadyStored`,
        `IdempotencyKeyReused`, `RequestInProgress` or `TooManyRequests`.
        """
        if isinstance(claim, KeyToken):
            return self._keys.look(claim, topic, count, now_ms)
        producer = self._producer_of(claim, now_ms)
        sequence = None
        if producer is not None and producer.epoch == claim.epoch:
            sequence = producer.sequences.get((topic, scope))
        expected = 0 if sequence is None else sequence.next_seq
        if claim.seq > expected:
            raise too_far(claim.producer_id, claim.seq, expected)
        if sequence is None:
            if producer is None or producer.epoch == claim.epoch or not producer.sequences:
                self._check_room_for_sequence(now_ms)  # a new epoch ends those of the one before
            return _FRESH
        if claim.seq == expected:
            return _FRESH
        if claim.seq + count > expected:
            return Fresh(expected - claim.seq)
        return first_result(claim, sequence, count)

    def _producer_of(self, claim: ProducerToken, now_ms: int) -> KnownProducer | None:
        """Who claims, if it is known; raises when its epoch is over, or there is no room for it."""
        if self._seals:
            self._check_open(family_of(claim.producer_id), claim.epoch, claim.producer_id)
        producer = self._find(claim.producer_id)
        if producer is None:
            self._expire_producers(now_ms)
            if len(self._producers) >= self._limits.producers_max:
                raise full("producers", self._limits.producers_max)
        elif claim.epoch < producer.epoch:
            raise fenced(claim.producer_id, claim.epoch, producer.epoch)
        return producer

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
                idle_ms = now_ms - self._limits.producer_idle_ms_min
                expire_seals(self._seals, idle_ms, now_ms, FORGOTTEN_AT_ONCE)
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

    def state(self, producer_id: str) -> ProducerState:
        """What is known of a producer."""
        sealed = self._seals.get(family_of(producer_id)) or self._seals.get(producer_id)
        return state_of(self._find(producer_id), sealed, self._gone)

    @property
    def counts(self) -> tuple[int, int]:  # producers and idempotency keys
        return len(self._producers), len(self._keys)

    def last_epoch(self, family: str) -> int:
        """The highest epoch that the family has sent in; -1 for none."""
        members = map(self._find, list(self._families.get(family, ())))
        return max((each.epoch for each in members if each is not None), default=-1)

    def sealed_epoch(self, family: str) -> int:
        """The highest closed epoch; -1 when none is."""
        return self._seals.get(family, (-1, 0))[0]

    def is_seal_safe(self, family: str) -> bool:
        """Whether the log has it: not while it is being written, nor when that has failed."""
        return family not in self._unsafe_seals

    def stored(self, family: str, epoch: int) -> Iterator[int]:
        """How many messages the family has stored in this epoch, more and more of them counted:
        a number after each `COUNTED_AT_ONCE`, the last one for all."""
        count = looked_at = 0
        for producer_id in list(self._families.get(family, ())):
            if looked_at >= COUNTED_AT_ONCE:
                yield count
                looked_at = 0
            producer = self._find(producer_id)
            if producer is not None and producer.epoch == epoch:
                for (topic, _), sequence in producer.sequences.items():
                    count += 0 if topic in self._gone else sequence.confirmed
                looked_at += len(producer.sequences)
            looked_at += 1
        yield count

    # --- changing: the entry is appended in the same turn

    def entry(self, claim: Claim, topic: str, scope: int, placed: Placed, now_ms: int) -> bytes:
        """The entry of a request that is being stored."""
        if isinstance(claim, KeyToken):
            return encode(KEY, topic, claim.owned_key, claim.fingerprint, now_ms, placed)
        return encode(PRODUCER, *claim, topic, scope, now_ms, placed)

    def seal_entry(self, family: str, epoch: int, now_ms: int) -> bytes:
        """The entry of a seal."""
        return encode(SEAL, family, epoch, now_ms)

    def plan_entry(self, plan: Plan) -> bytes:
        """The entry of a plan."""
        return encode(PLAN, *plan.fields)

    def lacks_room_for(self, producer_id: str) -> bool:
        """Whether as many producers are known as may be, and this one is none of them."""
        known = self._producers
        return len(known) >= self._limits.producers_max and producer_id not in known

    def forgetting_entry(self, now_ms: int) -> bytes | None:
        """The entry that makes room for another producer; None: none is idle."""
        idle_ms = now_ms - self._limits.producer_idle_ms_min
        idle = idle_producer(self._producers, idle_ms, FORGOTTEN_AT_ONCE)
        return None if idle is None else encode(FORGOTTEN, idle)

    def deleted_entry(self, topic: str) -> bytes:
        """The entry of a topic's deletion."""
        return encode(DELETED, topic)

    def taken(self, entry: bytes) -> Callable[[bool], None]:
        """Take an entry that has just been appended.

        Call what is returned once: with True when it is safe, with False when it is not stored.
        """
        return self._apply(decode(entry), entry)

    def _apply(self, fields: list[Any], entry: bytes) -> Callable[[bool], None]:
        kind = fields[0]
        if kind == PRODUCER:
            _, producer_id, epoch, seq, topic, scope, now_ms, placed = fields
            claim = ProducerToken(producer_id, epoch, seq)
            return self._apply_claim(claim, topic, scope, now_ms, placed_of(placed))
        if kind == KEY:
            return self._apply_key(fields, entry)
        self._last = None
        if kind == SEAL:
            return self._apply_seal(*fields[1:])
        if kind == PLAN:
            return self._apply_plan(Plan(*fields[1:]))
        if kind == FORGOTTEN:
            if fields[1] in self._producers:
                self._forget(fields[1])
        elif kind == DELETED:
            self._forget_topic(fields[1])
        elif kind == EPOCH:
            self._known(*fields[1:])
        else:
            self._apply_sequence(*fields[1:])
        return lambda _: None

    def _apply_claim(
        self, claim: ProducerToken, topic: str, scope: int, now_ms: int, placed: Placed
    ) -> Callable[[bool], None]:
        self._last = claim, topic, scope, placed
        sequence = self._sequence(claim.producer_id, claim.epoch, topic, scope, now_ms)
        drop_results(sequence, claim.seq)  # a snapshot may hold them, and those behind, already
        sequence.results.append((claim.seq, placed))
        if len(sequence.results) > self._limits.producer_results_max:
            sequence.results.popleft()
        end = sequence.next_seq = claim.seq + placed.size

        def settle(is_safe: bool) -> None:
            if is_safe:
                sequence.confirmed = max(sequence.confirmed, end)
            else:
                take_back(sequence, claim.seq)

        return settle

    def _sequence(
        self, producer_id: str, epoch: int, topic: str, scope: int, now_ms: int
    ) -> SequenceNumbers:
        if topic in self._gone:
            self._forget_all()
        producer = self._known(producer_id, epoch, now_ms)
        sequence = producer.sequences.get((topic, scope))
        if sequence is None:
            sequence = producer.sequences[topic, scope] = SequenceNumbers()
            self._sequence_count += 1
        return sequence

    def _known(self, producer_id: str, epoch: int, now_ms: int) -> KnownProducer:
        """The producer in this epoch, used now; what it did in another one is forgotten."""
        if self._closed and epoch <= self._closed.get(family_of(producer_id), (-1,))[0]:
            self._forget_all()
        producer = self._producers.pop(producer_id, None)
        if producer is None or producer.epoch != epoch:
            self._sequence_count -= len(producer.sequences) if producer is not None else 0
            producer = KnownProducer(epoch, now_ms)
            self._families.setdefault(family_of(producer_id), set()).add(producer_id)
        producer.used_ms = now_ms
        self._producers[producer_id] = producer
        return producer

    def _apply_key(self, fields: list[Any], entry: bytes) -> Callable[[bool], None]:
        _, topic, key, fingerprint, now_ms, placed = fields
        where = placed_of(placed)
        self._last = KeyToken(key, fingerprint), topic, now_ms, where
        return self._keys.take(topic, key, where.size, entry)

    def _apply_plan(self, plan: Plan) -> Callable[[bool], None]:
        self._plans.add(plan)
        return lambda is_safe: None if is_safe else self._plans.take_back(plan)

    def _apply_seal(self, family: str, epoch: int, now_ms: int) -> Callable[[bool], None]:
        """What it forgets cannot come back; so it holds also when it is not written."""
        self._unsafe_seals[family] = max(epoch, self._unsafe_seals.get(family, epoch))

        def settle(is_safe: bool) -> None:
            if is_safe and self._unsafe_seals.get(family, epoch + 1) <= epoch:
                del self._unsafe_seals[family]

        if epoch >= self.sealed_epoch(family):
            self._seals.pop(family, None)
            self._seals[family] = epoch, now_ms
        self._plans.drop_sealed(family, epoch)
        if members := self._families.get(family):
            closed_before = self._closed.pop(family, (epoch, None))[0]
            self._closed[family] = max(epoch, closed_before), iter(list(members))
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
        sequence.results = deque((seq, placed_of(placed)) for seq, placed in results)

    def _forget_topic(self, topic: str) -> None:
        """Its messages do not count any more for who asks how many are stored. Its keys can meet
        no request; they go when their time is over. A producer without a sequence keeps its epoch,
        which fences older instances in every topic."""
        if self._producers:
            self._gone[topic] = False
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
            topic
            for producer in self._producers.values()
            for topic, _ in producer.sequences
            if topic not in self._gone
        } | {plan.topic for plan in self._plans}

    def adopt(self, generation_of: Callable[[str], int]) -> bool:
        """Give what an earlier version has kept by names alone to the topics of those names;
        whether there was any. It is to be written down as a snapshot then."""
        lines = [line for chunk in self.dump() for line in chunk.splitlines()]
        with_generations = [adopted(line, generation_of) for line in lines]
        if with_generations == lines:
            return False
        last, unsafe = self._last, dict(self._unsafe_seals)
        self.clear()
        for line in with_generations:
            self.apply(line)
        if last is not None:  # what `repair` asks about has the same name as the rest
            last = last[0], with_generation(last[1], generation_of), *last[2:]
        self._last, self._unsafe_seals = last, unsafe
        return True

    # --- expiring

    def _find(self, producer_id: str) -> KnownProducer | None:
        """What is known of a producer; nothing when a seal has closed its epoch."""
        producer = self._producers.get(producer_id)
        if producer is None or not self._closed:
            return producer
        if producer.epoch > self._closed.get(family_of(producer_id), (-1,))[0]:
            return producer
        self._forget(producer_id)
        return None

    def forget_some(self) -> bool:
        """Forget some of the producers that seals have closed and of the sequences of deleted
        topics. Return whether there are more."""
        looked_at = 0
        while self._closed and looked_at < FORGOTTEN_AT_ONCE:
            family, (epoch, members) = next(iter(self._closed.items()))
            for producer_id in islice(members, FORGOTTEN_AT_ONCE - looked_at):
                looked_at += 1
                producer = self._producers.get(producer_id)
                if producer is not None and producer.epoch <= epoch:
                    looked_at += len(producer.sequences)
                    self._forget(producer_id)
                if looked_at >= FORGOTTEN_AT_ONCE:
                    break
            if not length_hint(members):
                del self._closed[family]
        while self._gone and looked_at < FORGOTTEN_AT_ONCE:
            for producer_id in islice(self._sweep, FORGOTTEN_AT_ONCE - looked_at):
                looked_at += 1 + self._forget_sequences(producer_id)
                if looked_at >= FORGOTTEN_AT_ONCE:
                    break
            if not length_hint(self._sweep):
                self._sweep_anew()
        return bool(self._closed or self._gone)

    def _sweep_anew(self) -> None:
        """Look at all producers again for topics that were deleted during the last sweep."""
        left = [topic for topic, is_swept in self._gone.items() if not is_swept]
        self._gone = dict.fromkeys(left, True)
        self._sweep = iter(list(self._producers) if left else ())

    def _forget_sequences(self, producer_id: str) -> int:
        """Forget those in deleted topics; how many were looked at."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return 0
        looked_at = list(producer.sequences)
        for key in looked_at:
            if key[0] in self._gone:
                del producer.sequences[key]
                self._sequence_count -= 1
        return len(looked_at)

    def _forget_all(self) -> None:
        while self.forget_some():
            pass

    def _expire_producers(self, now_ms: int) -> None:
        self.forget_some()
        oldest_ms = now_ms - self._limits.producer_window_ms
        for _ in range(FORGOTTEN_AT_ONCE):
            producer_id, producer = next(iter(self._producers.items()), ("", None))
            newest_ms = now_ms + STORE_TIME_LEAD_MS_MAX
            if producer is None or oldest_ms <= producer.used_ms <= newest_ms:
                break
            if producer.used_ms < oldest_ms:
                self._forget(producer_id)
            else:  # the clock was set back: its window is from now on
                producer.used_ms = now_ms
                self._producers[producer_id] = self._producers.pop(producer_id)
        for family in expire_seals(self._seals, oldest_ms, now_ms, FORGOTTEN_AT_ONCE):
            self._unsafe_seals.pop(family, None)

    # --- as a journaled state

    def clear(self) -> None:
        self._producers.clear()
        self._closed.clear()
        self._gone.clear()
        self._sweep = iter(())
        self._sequence_count = 0
        self._families.clear()
        self._seals.clear()
        self._unsafe_seals.clear()
        self._plans.clear()
        self._keys.clear()
        self._last = None

    def load(self, chunk: bytes) -> None:
        for line in chunk.splitlines():
            self.apply(line)
        self._last = None

    def apply(self, entry: bytes) -> None:
        self._apply(decode(entry), entry)(True)
        if self._closed:  # what is gone waits for the first sweep
            self._forget_all()

    def dump(self) -> Iterable[bytes]:
        rows = chain(self._keys.dump(), self._dump_seals(), self._dump_sequences())
        return chunks_of(rows, _CHUNK_BYTES)

    def _dump_seals(self) -> Iterator[bytes]:
        for family in list(self._seals):
            if family in self._seals:
                yield encode(SEAL, family, *self._seals[family])
        for plan in self._plans:
            yield encode(PLAN, *plan.fields)

    def _dump_sequences(self) -> Iterator[bytes]:
        for producer_id in list(self._producers):
            producer = self._find(producer_id)
            if producer is None:  # forgotten meanwhile
                continue
            rows = [row for row in producer.sequences.items() if row[0][0] not in self._gone]
            for where, sequence in rows:
                yield sequence_entry(producer_id, producer, where, sequence)
            if not rows:  # its topics are deleted; instances of earlier epochs stay shut out
                yield encode(EPOCH, producer_id, producer.epoch, producer.used_ms)

    def repair(self, end_of: EndOf) -> bytes | None:
        """After a replay: take back what the last entry promises and the queues do not have.

        Returns the entry that says so, when there is something; it is to be written at once. Only a
        frame is cut short, and it lies in one queue; other requests are whole or not there.
        """
        if self._last is None:
            return None
        claim, topic, scope, placed = self._last
        name = read_topic_key(topic)[0]
        kept = kept_count(placed, lambda queue_id: end_of(name, queue_id))
        if kept == placed.size:
            return None
        short = placed._replace(size=kept)
        if isinstance(claim, ProducerToken):
            sequence = self._producers[claim.producer_id].sequences[topic, scope]
            take_back(sequence, claim.seq)
            if kept:
                sequence.results.append((claim.seq, short))
            sequence.next_seq = sequence.confirmed = claim.seq + kept
            producer = self._producers[claim.producer_id]
            return sequence_entry(claim.producer_id, producer, (topic, scope), sequence)
        entry = self.entry(claim, topic, scope, short, scope)  # `scope` is the time of a key
        self.apply(entry)
        return entry

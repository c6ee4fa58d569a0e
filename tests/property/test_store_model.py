"""The store against a dict: append, roll, checkpoint, crash, reopen, retain, delete, lose files.

Hypothesis draws the steps. After each of them every readable message is the one that was sent under
its topic, queue and offset, nothing acknowledged is missing, and keys and times find what they
should. `Forgetful` is the positive control: a model that expects what was not promised is told off.
"""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typing_extensions import override

from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import Checkpointing, RetentionPolicy, StepPart, paths
from app.store.config import FastPaths
from tests.support.stores.fast_paths import LESS, Taken
from tests.support.stores.simulated_files import EVERYTHING, NOTHING, CrashPlan, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store

HOUR = 3_600_000
PLACES = [("orders", 0), ("orders", 1), ("invoices", 0)]
Key = tuple[str, int, int]

LOSSES: list[Callable[[str], bool]] = [
    lambda path: path.startswith("consumequeue/"),
    lambda path: path.startswith("index/"),
    lambda path: path == paths.CHECKPOINT,
    lambda path: path == paths.CHECKPOINT_COPY,
]
"""Files that may be lost. One of the checkpoints must stay: it knows what was deleted."""

places = st.sampled_from(PLACES)
flushes = st.sampled_from(list(FlushMode))


class StoreMachine(RuleBasedStateMachine):
    """One directory through several lives."""

    def __init__(self) -> None:
        super().__init__()
        self.files = SimulatedFiles()
        self.sent: dict[Key, tuple[bytes, str | None, int]] = {}
        """Body, key and store time of everything that may be read."""
        self.safe: set[Key] = set()
        """What survives a power loss."""
        self.steps: list[set[Key]] = []
        """What was sent together."""
        self.now_ms: int | None = None
        self.number = 0

    @initialize()
    def start(self) -> None:
        self.open()

    def open(self) -> None:
        self.begun: list[tuple[Checkpointing, bool]] = []
        """Checkpoints that were begun, and whether all queues were collected."""
        self.opened: OpenStore = open_store(self.files, threads=False)
        if self.now_ms is not None:
            self.opened.clock.set_wall(self.now_ms)

    def leave(self) -> None:
        self.now_ms = self.opened.clock.now_ms()
        self.opened.store.fail("gone")
        self.opened.store.close()

    @rule(
        place=places,
        flush=flushes,
        count=st.integers(1, 5),
        size=st.integers(0, 900),
        keyed=st.booleans(),
    )
    def append(
        self, place: tuple[str, int], flush: FlushMode, count: int, size: int, keyed: bool
    ) -> None:
        messages = []
        for _ in range(count):
            self.number += 1
            key = f"k{self.number % 7}" if keyed else None
            body = b"%d " % self.number + bytes(size)
            messages.append(Message(body, keys=(key,) if key else ()))
        topic, queue_id = place
        appended = self.opened.append_all(messages, topic=topic, queue_id=queue_id, flush=flush)
        self.opened.settle(len(self.opened.outcomes) + 1)
        assert self.opened.outcomes[-1] is None
        for offset, message in enumerate(messages, appended.first_queue_offset):
            where = (topic, queue_id, offset)
            assert where not in self.sent, "an offset was given twice"
            key = message.keys[0] if message.keys else None
            self.sent[where] = (message.body, key, appended.store_time_ms)
        if flush is FlushMode.SYNC:
            self.safe = set(self.sent)

    @rule(where=st.lists(places, min_size=2, max_size=4), flush=flushes, size=st.integers(0, 600))
    def append_step(self, where: list[tuple[str, int]], flush: FlushMode, size: int) -> None:
        parts = []
        for place in where:
            self.number += 1
            body = b"%d " % self.number + bytes(size)
            parts.append(StepPart(*place, [Message(body, keys=(f"k{self.number % 7}",))]))
        results = self.opened.store.append_step(parts, flush, self.opened.outcomes.append)
        self.opened.settle(len(self.opened.outcomes) + 1)
        assert self.opened.outcomes[-1] is None
        step: set[Key] = set()
        for (topic, queue_id, [message], *_), result in zip(parts, results, strict=True):
            where_to = (topic, queue_id, result.first_queue_offset)
            assert where_to not in self.sent, "an offset was given twice"
            self.sent[where_to] = (message.body, message.keys[0], result.store_time_ms)
            step.add(where_to)
        self.steps.append(step)
        if flush is FlushMode.SYNC:
            self.safe = set(self.sent)

    @rule(hours=st.integers(1, 5))
    def wait(self, hours: int) -> None:
        self.opened.clock.advance(ms=hours * HOUR)

    @rule()
    def checkpoint(self) -> None:
        self.opened.store.begin_checkpoint().run()

    @rule()
    def begin_checkpoint(self) -> None:
        self.begun.append((self.opened.store.begin_large_checkpoint(), False))

    @precondition(lambda self: self.begun)
    @rule(which=st.integers(0, 9), queues_max=st.integers(1, 4))
    def collect(self, which: int, queues_max: int) -> None:
        checkpointing, _ = self.begun.pop(which % len(self.begun))
        self.begun.append((checkpointing, not checkpointing.collect(queues_max)))

    @precondition(lambda self: any(is_collected for _, is_collected in self.begun))
    @rule(which=st.integers(0, 9))
    def run_checkpoint(self, which: int) -> None:
        """In any order, with anything in between, as threads do."""
        collected = [each for each in self.begun if each[1]]
        collected[which % len(collected)][0].run()

    @rule()
    def reopen(self) -> None:
        self.now_ms = self.opened.clock.now_ms()
        self.opened.store.close()
        self.safe = set(self.sent)
        self.open()
        assert self.opened.store.status().recovery.scanned_bytes == 0

    @rule()
    def kill(self) -> None:
        after = self.files.kill()
        self.leave()
        self.files = after
        self.open()
        self.safe = set(self.sent)

    @rule(keep=st.sampled_from([NOTHING, EVERYTHING]))
    def lose_power(self, keep: object) -> None:
        assert keep in (NOTHING, EVERYTHING)
        names = len(self.files._changes)
        after = self.files.crash(CrashPlan(names, {}, NOTHING if keep == NOTHING else EVERYTHING))
        self.leave()
        self.files = after
        self.open()
        found, before = self.readable(), set(self.sent)
        for place in PLACES:  # what was not safe may be gone, but only from the end
            end = self.opened.store.bounds(*place).max_offset
            for key in [key for key in self.sent if key[:2] == place and key[2] >= end]:
                assert key not in self.safe
                del self.sent[key]
        self.safe = set(self.sent)
        assert found.keys() <= self.sent.keys()
        for step in self.steps:
            assert len(step & before & found.keys()) in (0, len(step & before))
        self.steps.clear()

    @precondition(lambda self: self.sent)
    @rule(hours=st.integers(1, 20))
    def retain(self, hours: int) -> None:
        now = self.opened.clock.now_ms()
        self.opened.store.apply_retention(RetentionPolicy(default_ms=hours * HOUR))
        self.opened.store.begin_checkpoint().run()
        for place in PLACES:
            first = self.opened.store.bounds(*place).min_offset
            for key in [key for key in self.sent if key[:2] == place and key[2] < first]:
                assert self.sent[key][2] < now - hours * HOUR
                del self.sent[key]
                self.safe.discard(key)

    @precondition(lambda self: self.sent)
    @rule()
    def delete_topic(self) -> None:
        told = len(self.opened.outcomes)
        self.opened.store.delete_topic("invoices", 0, self.opened.outcomes.append)
        self.opened.settle(told + 1)
        for key in [key for key in self.sent if key[0] == "invoices"]:
            del self.sent[key]
        self.safe &= self.sent.keys()

    @rule(what=st.sampled_from(LOSSES), clean=st.booleans())
    def lose_derived_files(self, what: Callable[[str], bool], clean: bool) -> None:
        self.now_ms = self.opened.clock.now_ms()
        if clean:
            self.opened.store.close()
            self.safe = set(self.sent)
            names = self.files.names
        else:
            after = self.files.kill()
            self.leave()
            self.files, names = after, after.names
        for path in [path for path in names if what(path)]:
            if not names[path].directory:
                del names[path]
        self.open()
        self.safe = set(self.sent)

    def readable(self) -> dict[Key, bytes]:
        found: dict[Key, bytes] = {}
        for topic, queue_id in PLACES:
            first = self.opened.store.bounds(topic, queue_id).min_offset
            bodies = self.opened.bodies(topic, queue_id, at_once=17)
            found |= {(topic, queue_id, n): body for n, body in enumerate(bodies, first)}
        return found

    @invariant()
    def reads_what_was_sent(self) -> None:
        if hasattr(self, "opened"):
            assert self.readable() == {key: value[0] for key, value in self.sent.items()}

    @invariant()
    def finds_by_key_and_time(self) -> None:
        if not hasattr(self, "opened"):
            return
        store = self.opened.store
        for topic in ("orders", "invoices"):
            found = store.find_by_key(topic, "k3", max_messages=1000, wait_for_disk=True)
            messages = [store.decode(record) for record in found]
            keyed = {(m.topic, m.queue_id, m.queue_offset) for m in messages}
            assert len(keyed) == len(found)
            assert keyed == {k for k, v in self.sent.items() if k[0] == topic and v[1] == "k3"}
        for place in PLACES:
            times = {k[2]: v[2] for k, v in self.sent.items() if k[:2] == place}
            for time_ms in set(list(times.values())[:3]):
                first = store.offset_for_time(*place, time_ms, wait_for_disk=True)
                assert first == min(offset for offset, at in times.items() if at >= time_ms)

    @override
    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self.opened.store.close()


class Forgetful(StoreMachine):
    """Expects what was only written to survive a power loss; must be found out."""

    @rule(place=places, size=st.integers(0, 900))
    def append_async(self, place: tuple[str, int], size: int) -> None:
        self.append(place, FlushMode.ASYNC, 1, size, False)
        self.safe = set(self.sent)


LENGTH = settings(
    max_examples=200,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


def test_the_store_is_a_dict() -> None:
    run_state_machine_as_test(StoreMachine, settings=LENGTH)


@pytest.mark.parametrize("fast_paths", LESS.values(), ids=LESS)
def test_so_it_is_with_fewer_fast_paths(
    fast_paths: FastPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Taken, "now", fast_paths)
    run_state_machine_as_test(StoreMachine, settings=settings(LENGTH, max_examples=15))


def test_a_wrong_expectation_is_noticed() -> None:
    """It ends with the first find: 40 examples on average of 25 seeds, 139 at most."""
    once = settings(LENGTH, max_examples=2_000, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(Forgetful, settings=once)

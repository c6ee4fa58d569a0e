"""The store on a disk that forgets: at every call it may lose power, in thousands of ways.

The store works on manual turns with an inline writer, so that a seed replays exactly. Before each
call of the file system the telling crash states are made (see `SimulatedFiles.crash_plans`) and
each is opened. Promises: G1 (a kill loses nothing acknowledged), G2 (neither does a power loss, for
what was sent with a sync), G2b (of what was not, a gap-free prefix of each queue survives), G5 (no
other bytes are ever read), G8 (an offset names the same bytes for ever); and a step, records for
several queues, is readable whole or not at all. A start may itself be interrupted at any call, and
what was readable once stays readable.

Positive controls: a disk that lies about syncs, and stores that leave out one thing each.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from unittest import mock

import pytest

from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import StepPart, StoreConfig
from app.store.log.atomic_batch import WholeBatches
from app.store.log.commit_log import CommitLog
from tests.support.length import selection
from tests.support.stores.simulated_files import EVERYTHING, NOTHING, CrashPlan, SimulatedFiles
from tests.support.stores.stores import SMALL, OpenStore, open_store

SEEDS = range(3)
SHORT_SEED = 6
"""Its first two lives end in few ways."""
LIVES = 3
QUEUES = 3
DRAWN = 1
NESTED = 40
"""Every so many states, power is lost again at every call of the recovery."""

LARGE = StoreConfig(segment_bytes=16_384, queue_file_units=16, record_bytes_max=8_192)
"""Records that span blocks of 4,096 bytes."""

SIZES = {SMALL: "small", LARGE: "large"}
SWEEPS = [(seed, config) for seed in SEEDS for config in SIZES]
SHORT = [(0, SMALL), (1, SMALL), (0, LARGE)]
"""Those of `make test`; `make test-long` plays all."""

Key = tuple[int, int]
"""Queue id and queue offset."""


class Broken(BaseException):
    """A promise was not kept. The store's own handling of exceptions must not catch it."""


@dataclass
class Expectation:
    """What was said to clients."""

    safe: dict[Key, bytes] = field(default_factory=dict)
    """Acknowledged and on the medium."""
    written: dict[Key, bytes] = field(default_factory=dict)
    """Acknowledged in async mode; survives a kill."""
    sent: dict[Key, bytes] = field(default_factory=dict)
    """Given an offset in this life, acknowledged or not."""
    steps: list[dict[Key, bytes]] = field(default_factory=list)
    """Those of this life; each is one."""

    def survivors(self, *, power_loss: bool) -> dict[Key, bytes]:
        return dict(self.safe) if power_loss else self.safe | self.written


def readable(opened: OpenStore) -> dict[Key, bytes]:
    found: dict[Key, bytes] = {}
    for queue_id in range(QUEUES):
        first = opened.store.bounds("orders", queue_id).min_offset
        for offset, body in enumerate(opened.bodies(queue_id=queue_id), first):
            found[queue_id, offset] = body
    return found


def check(found: dict[Key, bytes], expected: Expectation, *, power_loss: bool) -> None:
    for key, body in expected.survivors(power_loss=power_loss).items():
        if found.get(key) != body:
            raise Broken(f"{key} was acknowledged and is lost")
    known = expected.sent | expected.written | expected.safe
    for key, body in found.items():
        if body == b"GAP":
            raise Broken(f"{key} is a hole in its queue")
        if known.get(key) != body:
            raise Broken(f"{key} was never sent, or with another body")
    for step in expected.steps:
        if 0 < sum(found.get(key) == body for key, body in step.items()) < len(step):
            raise Broken(f"only a part of the step {sorted(step)} is there")


class Sweep:
    """Plays the lives of one store and looks at every way in which each may end."""

    def __init__(self, seed: int, config: StoreConfig = SMALL, *, skip_sync: bool = False) -> None:
        self.chance = random.Random(seed)
        self.states = 0
        """Crash states that were opened and checked."""
        self.config = config
        self._largest = config.record_bytes_max // 3
        self._files = SimulatedFiles(skip_sync=skip_sync)
        self._expected = Expectation()
        self.seen: set[tuple[int, int]] = set()

    def play(self, lives: int = LIVES) -> None:
        """End each life in every way, and open and check what is left."""
        for _ in range(lives):
            self._files.on_call = lambda _kind: self._end_in_every_way()
            opened = open_store(self._files, self.config, threads=False)
            found = readable(opened)
            self._expected = Expectation(safe=found, sent=dict(found))
            for _ in range(self.chance.randint(2, 6)):
                self._act(opened)
            self._expected.sent.update(self._submit(opened, FlushMode.SYNC))
            for _ in range(self.chance.randint(0, 3)):
                opened.turns.run_one()
            self._files.on_call = lambda _kind: None
            self._next_life()

    def _act(self, opened: OpenStore) -> None:
        expected = self._expected
        action = self.chance.randrange(10)
        if action == 0:
            opened.store.begin_checkpoint().run()
        elif action == 1:
            covered = dict(expected.written)
            opened.store.flush(opened.outcomes.append)
            meanwhile: dict[Key, bytes] = {}
            for _ in range(self.chance.randint(0, 3)):
                opened.turns.run_one()
                meanwhile |= self._submit(opened, FlushMode.ASYNC)
                expected.sent |= meanwhile
            opened.turns.run()
            expected.safe |= covered
            expected.written |= meanwhile
        else:
            flush = self.chance.choice(list(FlushMode))
            sent = self._submit(opened, flush)
            expected.sent |= sent
            before = len(opened.outcomes)
            opened.turns.run()
            assert set(opened.outcomes[before:]) == {None}
            expected.written |= sent
            if flush is FlushMode.SYNC:
                expected.safe |= expected.written

    def _submit(self, opened: OpenStore, flush: FlushMode) -> dict[Key, bytes]:
        sent: dict[Key, bytes] = {}
        for _ in range(self.chance.randint(1, 4)):
            if self.chance.randrange(4) == 0:
                sent |= self._submit_step(opened, flush)
                continue
            queue_id = self.chance.randrange(QUEUES)
            body = self.chance.randbytes(self.chance.randint(0, self._largest))
            place = opened.append(body, queue_id=queue_id, flush=flush)
            sent[queue_id, place.first_queue_offset] = body
        return sent

    def _submit_step(self, opened: OpenStore, flush: FlushMode) -> dict[Key, bytes]:
        queues = [self.chance.randrange(QUEUES) for _ in range(self.chance.randint(2, 4))]
        bodies = [self.chance.randbytes(self.chance.randint(8, self._largest)) for _ in queues]
        parts = [
            StepPart("orders", queue, [Message(body)])
            for queue, body in zip(queues, bodies, strict=True)
        ]
        places = opened.store.append_step(parts, flush, opened.outcomes.append)
        step = {
            (queue, place.first_queue_offset): body
            for queue, body, place in zip(queues, bodies, places, strict=True)
        }
        self._expected.steps.append(step)
        return step

    def _end_in_every_way(self) -> None:
        self._look(self._files.kill(), power_loss=False)
        for plan in self._files.crash_plans(self.chance, DRAWN):
            self._look(self._files.crash(plan), power_loss=True)

    def _look(self, files: SimulatedFiles, *, power_loss: bool) -> None:
        try:
            self._look_closely(files, power_loss=power_loss)
        except Exception as error:
            raise Broken(f"{type(error).__name__}: {error}") from error

    def _look_closely(self, files: SimulatedFiles, *, power_loss: bool) -> None:
        state = (files.fingerprint(), hash(frozenset(self._survivors(power_loss).items())))
        if state in self.seen:
            return
        self.seen.add(state)
        self.states += 1
        if self.states % NESTED == 0:
            again = files.kill()
            again.on_call = lambda _kind: self._interrupt(again, power_loss)
            open_store(again, self.config, threads=False)
        found = self._open(files, power_loss=power_loss)
        lost_again = files.crash(CrashPlan(0, {}, NOTHING))
        left = readable(open_store(lost_again, self.config, threads=False))
        if left != found:
            differing = sorted(dict(found.items() ^ left.items()))
            raise Broken(f"what was readable after a start is not after the next: {differing}")

    def _open(self, files: SimulatedFiles, *, power_loss: bool) -> dict[Key, bytes]:
        opened = open_store(files, self.config, threads=False)
        found = readable(opened)
        check(found, self._expected, power_loss=power_loss)
        offset = opened.append(b"next").first_queue_offset
        opened.turns.run()
        if opened.outcomes != [None] or opened.bodies()[-1] != b"next":
            raise Broken("the store does not go on")
        return {**found, (0, offset): b"next"}

    def _interrupt(self, files: SimulatedFiles, power_loss: bool) -> None:
        """Lose power, or be killed, during a recovery."""
        self._open(files.kill(), power_loss=power_loss)
        for plan in (CrashPlan(0, {}, NOTHING), CrashPlan(1 << 30, {}, EVERYTHING)):
            self._open(files.crash(plan), power_loss=True)
        self.states += 3

    def _survivors(self, power_loss: bool) -> dict[Key, bytes]:
        return self._expected.survivors(power_loss=power_loss)

    def _next_life(self) -> None:
        if self.chance.randrange(2):
            plans = list(self._files.crash_plans(self.chance, 3))
            self._files = self._files.crash(self.chance.choice(plans))
            self._expected.written = {}
        else:
            self._files = self._files.kill()


ENDS = [pytest.param(*each, id=f"{each[0]}-{SIZES[each[1]]}") for each in selection(SWEEPS, SHORT)]


@pytest.mark.parametrize(("seed", "config"), ENDS)
def test_no_end_breaks_a_promise(
    seed: int, config: StoreConfig, record_property: Callable[[str, object], None]
) -> None:
    sweep = Sweep(seed, config)
    sweep.play()
    print(f"seed {seed}: {sweep.states} crash states")
    record_property("crash_states", sweep.states)
    assert sweep.states > 100


def test_a_seed_replays_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte, but for the store's id, which is drawn when a store is made."""
    monkeypatch.setattr("app.store.lifecycle.opening.secrets.token_hex", lambda size: "00" * size)
    first, second = Sweep(SHORT_SEED), Sweep(SHORT_SEED)
    for sweep in (first, second):
        sweep.play(lives=2)
    assert first.states > 100
    assert first.seen == second.seen


def leave_out(target: type, name: str, result: object = None) -> AbstractContextManager[object]:
    return mock.patch.object(target, name, return_value=result)


CONTROLS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "does not sync the log": lambda: leave_out(CommitLog, "finish_sync"),
    "does not sync what it recovers": lambda: leave_out(CommitLog, "sync_all"),
    "does not sync names": lambda: leave_out(SimulatedFiles, "sync_directory"),
    "does not check records": lambda: mock.patch(
        "app.store.formats.record.record.check", return_value=""
    ),
    "does not know a power loss": lambda: leave_out(SimulatedFiles, "boot_id", "always the same"),
    "does not cut a torn tail": lambda: leave_out(CommitLog, "cut"),
    "takes the beginning of a step": lambda: mock.patch.object(
        WholeBatches, "only_whole", lambda _self, blocks: iter(blocks)
    ),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_store_that_leaves_something_out_is_found_out(control: str) -> None:
    with CONTROLS[control](), pytest.raises(Broken):
        play_all()


def play_all() -> None:
    for seed in SEEDS:
        Sweep(seed).play()


def test_a_disk_that_lies_about_syncs_is_found_out() -> None:
    with pytest.raises(Broken):
        Sweep(0, skip_sync=True).play()

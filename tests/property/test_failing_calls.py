"""Every call that the store makes fails once, and from then on, until none is left.

For every kind of call, EIO and ENOSPC, one-shot and lasting: a fixed script of sends, flushes,
checkpoints and reads runs with the n-th call failing, n = 1, 2, 3 … until the fault is not reached
any more. Promises: G3 (no acknowledgement for what is not durable, nothing served after a restart
that is not on the medium), G4 (a full disk refuses, with `not_stored`), G5 (no wrong bytes), and an
opening that fails leaves a store that opens later.

Positive controls: a writer that tries a failed sync again, and one that acknowledges regardless.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from unittest import mock

import pytest

from app.domain.errors import CurlewError, DiskFull, StoreFailed
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store.commit_log import CommitLog
from app.store.writer import Writer
from tests.support.simulated_files import (
    EVERYTHING,
    KINDS,
    NOTHING,
    CrashPlan,
    Fault,
    SimulatedFiles,
)
from tests.support.stores import OpenStore, open_store

QUEUES = 2
ROUNDS = 9
BODY_BYTES = 400
SEGMENTS = 4
CALLS_MAX = 500

Key = tuple[int, int]
Sends = dict[Key, bytes]


class Broken(Exception):
    """A promise was not kept."""


@dataclass
class Told:
    """What clients were told. A send is in exactly one of these."""

    durable: Sends = field(default_factory=dict)
    written: Sends = field(default_factory=dict)
    """Acknowledged in async mode and not yet covered by a successful flush."""
    unknown: set[tuple[Key, bytes]] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)

    def may_be(self, key: Key, body: bytes) -> bool:
        """Whether a reader may find `body` there."""
        return body in (self.durable.get(key), self.written.get(key)) or (
            (key, body) in self.unknown
        )


class Script:
    """One life of a store in which something fails."""

    def __init__(self) -> None:
        self.files = SimulatedFiles()
        self.told = Told()
        self.failed = False
        self._count = 0
        self._lose_power_in_a_long_write()

    def _lose_power_in_a_long_write(self) -> None:
        """Later segments have bytes and the first has a hole, so that the next start must cut."""
        opened = open_store(self.files, threads=False)
        self._send(opened, 0, FlushMode.SYNC)
        while opened.store.status().segments < SEGMENTS:
            self._send(opened, 0, FlushMode.ASYNC)
        self.told.unknown |= set(self.told.written.items())
        self.told.written.clear()
        self.files = self.files.lose_first_change("commitlog/")

    def play(self) -> None:
        for _ in range(2):
            try:
                opened = open_store(self.files, threads=False)
            except OSError:
                if self.files.locked:
                    raise Broken("an opening that failed keeps the lock") from None
                continue
            for number in range(ROUNDS):
                self.round(opened, number)
            with suppress(OSError):
                opened.store.close()
            if self.files.locked:
                raise Broken("a close that failed keeps the lock")
            self.failed = self.failed or opened.store.status().failed is not None

    def round(self, opened: OpenStore, number: int) -> None:
        self._send(opened, 0, FlushMode.ASYNC)
        self._send(opened, number % QUEUES, FlushMode.SYNC)
        if number % 3 == 1:
            self._send(opened, 1, FlushMode.ASYNC)
            self._flush(opened)
        if number % 3 == 2 and opened.store.status().failed is None:
            try:
                opened.store.begin_checkpoint().run()
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    opened.store.fail("the checkpoint failed")
        self._read(opened)

    def _send(self, opened: OpenStore, queue_id: int, flush: FlushMode) -> None:
        self._count += 1
        body = (b"%d " % self._count) * (BODY_BYTES // 4)
        outcomes: list[CurlewError | None] = []
        message = [Message(body)]
        try:
            place = opened.store.append("orders", queue_id, message, flush, outcomes.append)
        except StoreFailed as error:
            self._note(error, (queue_id, -1), body)
            return
        opened.turns.run()
        (error_or_none,) = outcomes
        key = (queue_id, place.first_queue_offset)
        if error_or_none is not None:
            self._note(error_or_none, key, body)
        elif flush is FlushMode.SYNC:
            self.told.durable |= {**self.told.written, key: body}
            self.told.written.clear()
        else:
            self.told.written[key] = body

    def _note(self, error: CurlewError, key: Key, body: bytes) -> None:
        assert isinstance(error, StoreFailed | DiskFull)
        if error.outcome == "not_stored":
            self.told.refused.add(body)
        elif error.outcome == "unknown":
            self.told.unknown.add((key, body))
        else:
            raise Broken(f"{error!r} does not say what became of the message")

    def _flush(self, opened: OpenStore) -> None:
        outcomes: list[CurlewError | None] = []
        opened.store.flush(outcomes.append)
        opened.turns.run()
        if outcomes == [None]:
            self.told.durable |= self.told.written
            self.told.written.clear()

    def _read(self, opened: OpenStore) -> None:
        with suppress(OSError):
            check_bodies(opened, self.told)


def check_bodies(opened: OpenStore, told: Told) -> Sends:
    found: Sends = {}
    for queue_id in range(QUEUES):
        first = opened.store.bounds("orders", queue_id).min_offset
        for offset, body in enumerate(opened.bodies(queue_id=queue_id), first):
            key = (queue_id, offset)
            found[key] = body
            if body in told.refused:
                raise Broken(f"{key} was refused as not stored, and is there")
            if body == b"GAP" or not told.may_be(key, body):
                raise Broken(f"{key} reads {body[:20]!r}")
    return found


def check_afterwards(files: SimulatedFiles, told: Told, *, failed: bool) -> None:
    """Restart in every way; what must be there is, and what is served stays.

    When a sync failed, what was not flushed is gone even without a power loss.
    """
    for after, expected in (
        (files.kill(), told.durable if failed else told.durable | told.written),
        (files.crash(CrashPlan(0, {}, NOTHING)), told.durable),
        (files.crash(CrashPlan(1 << 30, {}, EVERYTHING)), told.durable),
    ):
        opened = open_store(after, threads=False)
        found = check_bodies(opened, told)
        lost = sorted(key for key, body in expected.items() if found.get(key) != body)
        if lost:
            raise Broken(f"{lost} were acknowledged and are lost")
        later = open_store(after.crash(CrashPlan(0, {}, NOTHING)), threads=False)
        if check_bodies(later, told) != found:
            raise Broken("what a restart served is not on the medium")
        opened.append(b"next")
        opened.turns.run()
        if opened.outcomes != [None]:
            raise Broken("a restarted store does not take messages")


def fail_every_call(kind: str, error: int, *, lasting: bool) -> int:
    """How many calls there were to fail."""
    for nth in range(1, CALLS_MAX):
        script = Script()
        fault = script.files.fault = Fault(kind, nth, error, lasting)
        try:
            script.play()
            script.files.fault = None
            check_afterwards(script.files, script.told, failed=script.failed)
        except Broken as broken:
            raise Broken(f"{kind} call {nth}: {broken}") from broken
        if not fault.raised:
            assert len(script.told.durable) > ROUNDS
            return nth - 1
    raise AssertionError("the script never ends")


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_may_fail(
    kind: str, error: int, lasting: bool, record_property: Callable[[str, object], None]
) -> None:
    calls = fail_every_call(kind, error, lasting=lasting)
    record_property("failed_calls", calls)
    assert calls > 0


def test_a_full_disk_takes_messages_again_when_there_is_room() -> None:
    script = Script()
    files = script.files
    files.fault = Fault("allocate", 2, errno.ENOSPC, lasting=True)
    opened = open_store(files, threads=False)
    for number in range(ROUNDS):
        script.round(opened, number)
    assert script.told.refused
    assert opened.store.status().failed is None
    files.fault = None
    before = len(script.told.durable)
    for number in range(ROUNDS):
        script.round(opened, number)
    assert len(script.told.durable) >= before + ROUNDS
    check_bodies(opened, script.told)


def test_a_writer_that_tries_a_failed_sync_again_is_found_out() -> None:
    sync = CommitLog.sync

    def sync_twice(log: CommitLog) -> None:
        try:
            sync(log)
        except OSError:
            sync(log)

    with mock.patch.object(CommitLog, "sync", sync_twice), pytest.raises(Broken):
        fail_every_call("sync", errno.EIO, lasting=False)


def test_a_writer_that_acknowledges_regardless_is_found_out() -> None:
    settle = Writer._settle

    def settle_well(writer: Writer, blocks: list[object], _error: object) -> None:
        settle(writer, blocks, None)  # type: ignore[arg-type]

    with mock.patch.object(Writer, "_settle", settle_well), pytest.raises(Broken):
        fail_every_call("write", errno.EIO, lasting=True)

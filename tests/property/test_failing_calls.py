"""Every call that the store makes fails once, and from then on, until none is left.

For every kind of call, a fault of the disk and each shortage, one-shot and lasting: a fixed script
of sends, flushes, checkpoints and reads runs with the n-th call failing, n = 1, 2, 3 … until the
fault is not reached any more. Promises: G3 (no acknowledgement for what is not durable, nothing
served after a restart that is not on the medium), G4 (a shortage refuses, with `not_stored`, and is
over when its cause is), G5 (no wrong bytes), an opening that fails leaves a store that opens later,
and one that finds no room succeeds.

Positive controls: a writer that tries a failed sync again, one that acknowledges regardless, one
that leaves in the file what it refuses, one for which every failure is for good, and an opening
that insists on its checkpoint.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from unittest import mock

import pytest

from app.domain.errors import CurlewError, DiskFull, StoreFailed, SystemBusy
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store.lifecycle.checkpoints import Checkpoints
from app.store.log.commit_log import CommitLog
from app.store.write.writer import Writer
from tests.support.stores.simulated_files import (
    EVERYTHING,
    KINDS,
    NOTHING,
    CrashPlan,
    Fault,
    SimulatedFiles,
)
from tests.support.stores.stores import OpenStore, open_store

QUEUES = 2
ROUNDS = 9
BODY_BYTES = 400
SEGMENTS = 4
CALLS_MAX = 500
WRITES = 8
"""Of the six batches that `refuse_half_way` sends; two of them cross into another segment."""
SHORTAGES = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EINTR,
)
ROOM = (errno.ENOSPC, errno.EDQUOT)
NEEDS_ROOM = ("create", "write", "allocate", "rename", "mkdir")
SYNCS = ("sync", "sync_directory")
"""What a full disk may refuse without having lost anything."""

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
                if self._has_no_room():
                    raise Broken("a full disk keeps the store from being opened") from None
                continue
            for number in range(ROUNDS):
                self.round(opened, number)
            with suppress(OSError):
                opened.store.close()
            if self.files.locked:
                raise Broken("a close that failed keeps the lock")
            failed = opened.store.status().failed
            if failed is not None and self._is_short():
                raise Broken(f"a shortage is for good: {failed}")
            self.failed = self.failed or failed is not None

    def _is_short(self) -> bool:
        """Whether what fails is no fault of the disk; what is synced may be lost with any errno."""
        fault = self.files.fault
        return fault is not None and fault.kind not in SYNCS and fault.error in SHORTAGES

    def _has_no_room(self) -> bool:
        fault = self.files.fault
        return fault is not None and fault.kind in NEEDS_ROOM and fault.error in ROOM

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
                opened.store.is_passing(error)
        self._read(opened)

    def _send(self, opened: OpenStore, queue_id: int, flush: FlushMode) -> None:
        self._count += 1
        body = (b"%d " % self._count) * (BODY_BYTES // 4)
        outcomes: list[CurlewError | None] = []
        message = [Message(body)]
        try:
            place = opened.store.append("orders", queue_id, message, flush, outcomes.append)
        except (StoreFailed, DiskFull) as error:
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

    def send_many(self, opened: OpenStore, queue_id: int, flush: FlushMode) -> None:
        """Send three messages in one batch of the writer."""
        sent: list[tuple[Key, bytes, list[CurlewError | None]]] = []
        for _ in range(3):
            self._count += 1
            body = (b"%d " % self._count) * (BODY_BYTES // 4)
            outcomes: list[CurlewError | None] = []
            place = opened.store.append("orders", queue_id, [Message(body)], flush, outcomes.append)
            sent.append(((queue_id, place.first_queue_offset), body, outcomes))
        under_way = {(key, body) for key, body, _ in sent}
        self.told.unknown |= under_way
        opened.turns.run()
        self.told.unknown -= under_way
        for key, body, (outcome,) in sent:
            if outcome is not None:
                self._note(outcome, key, body)
            elif flush is FlushMode.SYNC:
                self.told.durable |= {**self.told.written, key: body}
                self.told.written.clear()
            else:
                self.told.written[key] = body

    def _note(self, error: CurlewError, key: Key, body: bytes) -> None:
        assert isinstance(error, StoreFailed | DiskFull | SystemBusy)
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


@pytest.mark.parametrize("error", [errno.EIO, *SHORTAGES], ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_may_fail_once(
    kind: str, error: int, record_property: Callable[[str, object], None]
) -> None:
    calls = fail_every_call(kind, error, lasting=False)
    record_property("failed_calls", calls)
    assert calls > 0


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_may_fail_from_then_on(
    kind: str, error: int, record_property: Callable[[str, object], None]
) -> None:
    calls = fail_every_call(kind, error, lasting=True)
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


@pytest.mark.parametrize("error", SHORTAGES, ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", ["open", "create", "write", "allocate", "rename"])
def test_a_shortage_is_over_when_its_cause_is(kind: str, error: int) -> None:
    script = Script()
    opened = open_store(script.files, threads=False)
    for number in range(ROUNDS):
        script.round(opened, number)
    script.files.fault = Fault(kind, 1, error, lasting=True)
    for number in range(ROUNDS):
        script.round(opened, number)
    assert opened.store.status().failed is None
    assert opened.store.status().lacks
    script.files.fault = None
    before = len(script.told.durable)
    for number in range(ROUNDS):
        script.round(opened, number)
    assert len(script.told.durable) >= before + ROUNDS
    assert not opened.store.status().lacks
    check_bodies(opened, script.told)
    opened.store.close()
    check_afterwards(script.files, script.told, failed=False)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM], ids=str)
@pytest.mark.parametrize("nth", range(1, WRITES + 1))
def test_what_was_refused_half_way_never_comes_back(nth: int, error: int) -> None:
    refuse_half_way(nth, error)


def refuse_half_way(nth: int, error: int) -> None:
    """Power is lost, or the process killed, at every call behind a write that fell short."""
    script = Script()
    opened = open_store(script.files, threads=False)
    script.round(opened, 0)
    script.files.fault = Fault("write", nth, error)
    left: list[tuple[SimulatedFiles, Told]] = []

    def keep_copy(_kind: str) -> None:
        if script.files.fault is not None and script.files.fault.raised:
            left.append((script.files.kill(), copy_of(script.told)))

    script.files.on_call = keep_copy
    for number in range(1, 4):
        for flush in (FlushMode.ASYNC, FlushMode.SYNC):
            script.send_many(opened, number % QUEUES, flush)
    script.files.on_call = lambda _kind: None
    assert left
    for files, told in left:
        check_afterwards(files, told, failed=False)
    check_afterwards(script.files, script.told, failed=False)


def refuse_half_way_at_every_write() -> None:
    for nth in range(1, WRITES + 1):
        refuse_half_way(nth, errno.ENOSPC)


def copy_of(told: Told) -> Told:
    return Told(dict(told.durable), dict(told.written), set(told.unknown), set(told.refused))


def test_a_writer_that_leaves_what_it_refuses_is_found_out() -> None:
    with (
        mock.patch.object(CommitLog, "take_back"),
        pytest.raises(Broken, match="refused as not stored, and is there"),
    ):
        refuse_half_way_at_every_write()


def test_a_store_for_which_every_failure_is_for_good_is_found_out() -> None:
    with (
        mock.patch("app.store.write.writer.shortage_of", return_value=None),
        pytest.raises(Broken, match="for good"),
    ):
        fail_every_call("allocate", errno.EDQUOT, lasting=False)


def test_an_opening_that_insists_on_its_checkpoint_is_found_out() -> None:
    with (
        mock.patch.object(Checkpoints, "open", lambda _self, begin: begin().run()),
        pytest.raises(Broken, match="being opened"),
    ):
        fail_every_call("rename", errno.ENOSPC, lasting=True)

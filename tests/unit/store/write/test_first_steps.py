"""Entries that come before everything else: on a full disk, when room comes back, and when a write
that was taken is refused. Positive control: an appender that asks nobody before an append."""

import errno
from collections.abc import Callable, Sequence

import pytest

from app.domain.errors import CurlewError, DiskFull, TooManyRequests
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import Appended, Done, FirstSteps, StepPart
from app.store.write.appender import Appender
from tests.support.stores.simulated_files import Fault, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store

ENTRIES = "rmq_sys_entries"
FIRST = [StepPart(ENTRIES, 0, [Message(b"%d" % number)]) for number in range(3)]


def full() -> OpenStore:
    """No record fits into the segment any more, and there is no room for another one."""
    opened = open_store(SimulatedFiles(), threads=False)
    set_room(opened, has_room=False)
    for size in (900, 300, 100, 30, 0):
        outcome: CurlewError | None = None
        while outcome is None:
            opened.append(bytes(size), topic="filler")
            opened.turns.run()
            outcome = opened.outcomes[-1]
        assert isinstance(outcome, DiskFull)
    return opened


def set_room(opened: OpenStore, *, has_room: bool) -> None:
    assert isinstance(opened.files, SimulatedFiles)
    fault = Fault("allocate", 1, errno.ENOSPC, lasting=True)
    opened.files.fault = None if has_room else fault
    opened.store.look_again()


def send(opened: OpenStore, how: str) -> CurlewError | None:
    """What became of a message."""
    part = StepPart("orders", 0, [Message(b"sent")])
    try:
        if how == "step":
            opened.store.append_step([part], FlushMode.ASYNC, opened.outcomes.append)
        else:
            opened.store.append("orders", 0, part.messages, FlushMode.ASYNC, opened.outcomes.append)
    except DiskFull as error:
        return error
    opened.turns.run()
    return opened.outcomes[-1]


def places(opened: OpenStore, topic: str) -> list[int]:
    """Physical offsets of all messages of a topic."""
    end = opened.store.bounds(topic, 0).max_offset
    return [at for at, _, _ in opened.store.units(topic, 0, 0, end, wait_for_disk=True)]


@pytest.mark.parametrize("how", ["append", "step"])
@pytest.mark.parametrize("refused", [0, 1, 2])
def test_what_waits_for_room_stands_before_what_is_sent_then(how: str, refused: int) -> None:
    opened = full()
    for part in FIRST:
        opened.store.first_steps.append(part)
    opened.turns.run()
    for _ in range(refused):
        assert isinstance(send(opened, how), DiskFull)
    assert places(opened, ENTRIES) == places(opened, "orders") == []
    set_room(opened, has_room=True)
    assert send(opened, how) is None
    assert send(opened, how) is None
    entries, sent = places(opened, ENTRIES), places(opened, "orders")
    assert len(entries) == 3
    assert len(sent) == 2
    assert max(entries) < min(sent)


def test_with_room_they_are_written_at_once() -> None:
    opened = open_store(SimulatedFiles(), threads=False)
    opened.store.first_steps.append(FIRST[0])
    opened.turns.run()
    assert len(places(opened, ENTRIES)) == 1


def test_without_the_question_before_each_append_a_message_is_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = full()
    opened.store.first_steps.append(FIRST[0])
    opened.turns.run()
    set_room(opened, has_room=True)
    monkeypatch.setattr(Appender, "_admit", lambda *_, **_more: None)
    assert send(opened, "append") is None
    assert places(opened, ENTRIES) == []


class Choosy:
    """Takes so many steps, refuses the next at once; what it took is for the test to settle."""

    def __init__(self, room: int) -> None:
        self.before_next: Callable[[], None] | None = None
        self.room = room
        self.taken: list[tuple[StepPart, Done]] = []

    def append_step(
        self, parts: Sequence[StepPart], flush: FlushMode, done: Done
    ) -> list[Appended]:
        assert flush is FlushMode.ASYNC
        if len(self.taken) == self.room:
            raise TooManyRequests("too many bytes wait")
        self.taken.append((parts[0], done))
        return []


def test_one_that_is_refused_late_still_comes_before_those_behind_it() -> None:
    appender = Choosy(2)
    steps = FirstSteps(appender)
    for part in FIRST:
        steps.append(part)
    for _, done in appender.taken:
        done(DiskFull("no room"))
    appender.taken, appender.room = [], 3
    assert appender.before_next is not None
    appender.before_next()
    assert [part for part, _ in appender.taken] == FIRST
    assert appender.before_next is None

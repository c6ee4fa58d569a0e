"""A disk that is full when a topic is deleted or first used again; room that comes back; kills at
every turn in between.

Whatever is cut off, the topic has all messages of the deleted generation, or none, and then all
that were acknowledged of its successor. Positive control: a journal that does not write
again what was refused shows the deleted messages.
"""

import errno
from collections.abc import Callable

import pytest

from app.domain.errors import CurlewError, DiskFull, TopicNotFound
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store.topics.floor_journal import FloorJournal
from app.store.topics.topic_floors import TopicFloors
from tests.support.stores.simulated_files import Fault, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store

OLD, NEW = 7_001, 5_002
OLD_BODIES = [b"old 0", b"old 1", b"old 2"]


@pytest.fixture(autouse=True)
def _no_other_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments let all states be written anew often; here that would hide what is tested."""
    monkeypatch.setattr(FloorJournal, "_is_due", lambda _journal: False)


def append(opened: OpenStore, body: bytes, generation: int) -> None:
    opened.store.append(
        "orders", 0, [Message(body)], FlushMode.SYNC, opened.outcomes.append, generation
    )


def files_of(opened: OpenStore) -> SimulatedFiles:
    assert isinstance(opened.files, SimulatedFiles)
    return opened.files


def life() -> OpenStore:
    opened = open_store(SimulatedFiles(), threads=False)
    for body in OLD_BODIES:
        append(opened, body, OLD)
    opened.turns.run()
    assert opened.outcomes == [None] * 3
    return opened


def fill_the_disk(opened: OpenStore) -> None:
    """Until no record fits into the segment any more; there is no room for another one."""
    files_of(opened).fault = Fault("allocate", 1, errno.ENOSPC, lasting=True)
    for size in (900, 300, 100, 30, 0):
        outcome: CurlewError | None = None
        while outcome is None:
            opened.append(bytes(size), topic="filler")
            opened.turns.run()
            outcome = opened.outcomes[-1]
        assert isinstance(outcome, DiskFull)


def make_room(opened: OpenStore) -> None:
    files_of(opened).fault = None


def last_outcome(opened: OpenStore) -> CurlewError | None:
    return opened.outcomes[-1]


def after_a_kill(opened: OpenStore) -> OpenStore:
    return open_store(files_of(opened).kill(), threads=False)


def run_and_kill(opened: OpenStore, check: Callable[[OpenStore], None]) -> None:
    """Every turn there is, and a kill before, between and behind them."""
    check(after_a_kill(opened))
    while opened.turns.run_one():
        check(after_a_kill(opened))


def old_or_gone(again: OpenStore) -> None:
    is_gone = again.store.is_gone("orders", OLD)
    assert again.bodies() == ([] if is_gone else OLD_BODIES)
    assert again.store.generation("orders") == (0 if is_gone else OLD)
    again.store.delete_topic("orders", OLD)  # what the tombstone asks for
    append(again, b"new", NEW)
    again.turns.run()
    assert again.outcomes == [None]
    assert again.bodies() == [b"new"]


def gone(again: OpenStore) -> None:
    assert again.store.is_gone("orders", OLD)
    old_or_gone(again)


def has_new(again: OpenStore) -> None:
    assert again.bodies() == [b"new"]
    assert again.store.generation("orders") == NEW
    assert again.store.is_gone("orders", OLD)


def delete_without_room(opened: OpenStore) -> None:
    told: list[CurlewError | None] = []
    assert opened.store.delete_topic("orders", OLD, told.append)
    run_and_kill(opened, old_or_gone)
    assert [type(error) for error in told] == [DiskFull]
    assert opened.bodies() == []
    with pytest.raises(TopicNotFound):
        append(opened, b"late", OLD)


def test_a_deletion_that_is_being_written_again_is_not_done_before_the_log_has_it() -> None:
    """Else the tombstone would go, and a kill before would bring the old messages back."""
    opened = life()
    fill_the_disk(opened)
    delete_without_room(opened)
    make_room(opened)
    opened.store.look_again()
    opened.store.begin_checkpoint()
    told: list[CurlewError | None] = []
    assert opened.store.delete_topic("orders", OLD, told.append)
    assert told == []

    def done_or_not(again: OpenStore) -> None:
        if told:
            gone(again)
        else:
            old_or_gone(again)

    run_and_kill(opened, done_or_not)
    assert told == [None]
    assert not opened.store.delete_topic("orders", OLD, told.append)


def test_a_deletion_is_written_when_there_is_room_again() -> None:
    opened = life()
    fill_the_disk(opened)
    delete_without_room(opened)
    opened.store.begin_checkpoint()  # no room still
    run_and_kill(opened, old_or_gone)
    make_room(opened)
    opened.store.begin_checkpoint()
    run_and_kill(opened, old_or_gone)
    gone(after_a_kill(opened))


def test_what_was_on_its_way_is_refused_with_the_deletion() -> None:
    opened = life()
    fill_the_disk(opened)
    append(opened, b"on its way", OLD)
    delete_without_room(opened)
    assert isinstance(last_outcome(opened), DiskFull)
    make_room(opened)
    append(opened, b"new", NEW)
    opened.turns.run()
    assert last_outcome(opened) is None
    assert opened.bodies() == [b"new"]
    assert opened.store.bounds("orders", 0) == (4, 5), "an offset was given twice"
    has_new(after_a_kill(opened))


def test_offsets_that_were_refused_are_not_given_after_a_restart_either() -> None:
    """The floor lies behind the end of what is in the log."""
    opened = life()
    fill_the_disk(opened)
    append(opened, b"on its way", OLD)
    delete_without_room(opened)
    make_room(opened)
    opened.store.begin_checkpoint()
    opened.turns.run()
    again = after_a_kill(opened)
    assert again.store.bounds("orders", 0) == (4, 4)
    append(again, b"new", NEW)
    again.turns.run()
    assert again.store.bounds("orders", 0) == (4, 5)
    has_new(after_a_kill(again))


@pytest.mark.parametrize("is_deleted_with_room", [False, True])
def test_a_first_use_without_room_is_written_by_the_next_one(*, is_deleted_with_room: bool) -> None:
    opened = life()
    if is_deleted_with_room:
        opened.store.delete_topic("orders", OLD)
        opened.turns.run()
        fill_the_disk(opened)
    else:
        fill_the_disk(opened)
        delete_without_room(opened)
    check = gone if is_deleted_with_room else old_or_gone
    for _ in range(2):
        append(opened, b"refused", NEW)
        run_and_kill(opened, check)
        assert isinstance(last_outcome(opened), DiskFull)
        assert opened.bodies() == []
    make_room(opened)
    append(opened, b"new", NEW)
    acknowledged = len(opened.outcomes)
    run_and_kill(opened, begun_or(check))
    assert opened.outcomes[acknowledged:] == [None]
    has_new(after_a_kill(opened))


def begun_or(check: Callable[[OpenStore], None]) -> Callable[[OpenStore], None]:
    def checked(again: OpenStore) -> None:
        if again.store.generation("orders") != NEW:
            check(again)
            return
        assert again.bodies() in ([], [b"new"])
        assert again.store.is_gone("orders", OLD)

    return checked


def test_positive_control_what_is_not_written_again_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicFloors, "not_written", lambda _floors, _topic: None)
    opened = life()
    fill_the_disk(opened)
    delete_without_room(opened)
    make_room(opened)
    opened.store.begin_checkpoint()
    opened.turns.run()
    assert after_a_kill(opened).bodies() == OLD_BODIES

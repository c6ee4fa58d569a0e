"""A deleted topic's messages never show in its successor, whatever is under way, fails or is lost.

Positive control: a successor that is not told from its predecessor begins with what that had.
"""

import errno

import pytest

from app.domain.errors import CurlewError, DiskFull, TopicNotFound
from app.domain.message import Message
from app.domain.names import FLOORS_TOPIC
from app.domain.positions import FlushMode
from app.store import StepPart, paths
from app.store.topics import floor_journal
from app.store.topics.topic_floors import ENTRIES_MAX, TopicState
from tests.support.stores.simulated_files import NOTHING, CrashPlan, Fault, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store

OLD, NEW = 7_001, 5_002
"""Generations rise and fall."""


def append(opened: OpenStore, body: bytes, generation: int, *, key: str | None = None) -> None:
    message = Message(body, keys=() if key is None else (key,))
    opened.store.append("orders", 0, [message], FlushMode.SYNC, opened.outcomes.append, generation)


def store(opened: OpenStore, body: bytes, generation: int, *, key: str | None = None) -> None:
    append(opened, body, generation, key=key)
    opened.turns.run()
    assert opened.outcomes[-1] is None


def life() -> OpenStore:
    """A topic with three messages, on the writer's own thread that is none."""
    opened = open_store(SimulatedFiles(), threads=False)
    for number in range(3):
        store(opened, b"old %d" % number, OLD, key="k")
    return opened


def bounds(opened: OpenStore) -> tuple[int, int]:
    low, high = opened.store.bounds("orders", 0)
    assert low <= high
    return low, high


def keyed(opened: OpenStore) -> list[bytes]:
    found = opened.store.find_by_key("orders", "k", wait_for_disk=True)
    return [opened.store.decode(record).body for record in found]


def test_what_waits_to_be_written_is_not_in_the_successor() -> None:
    opened = life()
    append(opened, b"on its way", OLD, key="k")
    opened.store.delete_topic("orders", OLD)
    assert bounds(opened) == (4, 4)
    append(opened, b"new", NEW, key="k")
    opened.turns.run()
    assert opened.outcomes[-2:] == [None, None]
    assert bounds(opened) == (4, 5)
    assert opened.bodies() == [b"new"]
    assert keyed(opened) == [b"new"]


def test_positive_control_without_a_deletion_it_all_stays() -> None:
    opened = life()
    with pytest.raises(TopicNotFound):
        append(opened, b"new", NEW)
    assert len(opened.bodies()) == len(keyed(opened)) == 3


def test_a_send_that_comes_after_the_deletion_is_refused() -> None:
    opened = life()
    opened.store.delete_topic("orders", OLD)
    for _ in range(2):
        with pytest.raises(TopicNotFound) as refused:
            append(opened, b"late", OLD)
        assert refused.value.outcome == "not_stored"
        opened.store.begin_topic("orders", NEW)
    with pytest.raises(TopicNotFound):
        opened.store.append_step(
            [StepPart("other", 0, [Message(b"x")], 9), StepPart("orders", 0, [Message(b"y")], OLD)],
            FlushMode.SYNC,
            opened.outcomes.append,
        )
    assert opened.store.bounds("other", 0) == (0, 0)
    store(opened, b"new", NEW)
    assert opened.bodies() == [b"new"]


def test_deleting_a_generation_again_leaves_its_successor_alone() -> None:
    opened = life()
    assert opened.store.delete_topic("orders", OLD)
    store(opened, b"new", NEW)
    assert not opened.store.delete_topic("orders", OLD)
    assert opened.bodies() == [b"new"]
    assert opened.store.generation("orders") == NEW
    assert opened.store.is_gone("orders", OLD)


def test_offsets_taken_back_by_a_full_disk_are_not_given_below_the_floor() -> None:
    opened = life()
    files = opened.files
    assert isinstance(files, SimulatedFiles)
    append(opened, b"on its way", OLD)
    opened.store.delete_topic("orders", OLD)
    refused: list[CurlewError | None] = []
    store_writer = opened.store._writer
    opened.store._appender.roll_back(opened.store.status().written_end, store_writer._pending)
    assert bounds(opened) == (4, 4)
    appended = opened.store.append(
        "orders", 0, [Message(b"new")], FlushMode.SYNC, refused.append, NEW
    )
    assert appended.first_queue_offset == 4


def test_two_messages_that_a_full_disk_refuses_leave_the_next_life_its_offset() -> None:
    opened = life()
    files = opened.files
    assert isinstance(files, SimulatedFiles)
    end = bounds(opened)[1]
    append(opened, b"on its way", OLD)
    append(opened, b"on its way, too", OLD)
    opened.store.delete_topic("orders", OLD)
    files.fault = Fault("write", 1, errno.ENOSPC, lasting=True)
    opened.turns.run()
    files.fault = None
    store(opened, b"new", NEW)
    assert opened.bodies() == [b"new"]
    assert bounds(opened) == (end + 2, end + 3)


def test_a_full_disk_forgets_the_entry_and_the_next_send_writes_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = life()
    opened.store.delete_topic("orders", OLD)
    opened.turns.run()
    written = opened.store.bounds(FLOORS_TOPIC, 0).max_offset
    with monkeypatch.context() as patched:
        patched.setattr(opened.store._log, "is_written", lambda _at: False)
        patched.setattr(opened.store._log, "prepare", no_room)
        append(opened, b"new", NEW)
        opened.turns.run()
    assert isinstance(opened.outcomes[-1], DiskFull)
    store(opened, b"new", NEW)
    assert opened.store.bounds(FLOORS_TOPIC, 0).max_offset == written + 1
    again = open_store(kill(opened), threads=False)
    assert again.bodies() == [b"new"]
    assert again.store.generation("orders") == NEW


def no_room(*_arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def kill(opened: OpenStore) -> SimulatedFiles:
    assert isinstance(opened.files, SimulatedFiles)
    return opened.files.kill()


@pytest.mark.parametrize("checkpoints", ["kept", "lost"])
@pytest.mark.parametrize("is_used", [False, True])
def test_killed_after_the_deletion(checkpoints: str, *, is_used: bool) -> None:
    opened = life()
    opened.store.begin_checkpoint().run()
    opened.store.delete_topic("orders", OLD)
    if is_used:
        store(opened, b"new", NEW, key="k")
    opened.turns.run()
    files = kill(opened)
    if checkpoints == "lost":
        for name in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
            del files.names[name]
    for _ in range(2):
        opened = open_store(files, threads=False)
        assert opened.bodies() == keyed(opened) == ([b"new"] if is_used else [])
        assert opened.store.generation("orders") == (NEW if is_used else 0)
        assert opened.store.is_gone("orders", OLD)
        with pytest.raises(TopicNotFound):
            append(opened, b"late", OLD)
        files = kill(opened)


def test_a_confirmed_deletion_survives_a_loss_of_power() -> None:
    opened = life()
    told: list[CurlewError | None] = []
    opened.store.delete_topic("orders", OLD, told.append)
    opened.turns.run()
    assert told == [None]
    assert isinstance(opened.files, SimulatedFiles)
    again = open_store(opened.files.crash(CrashPlan(0, {}, NOTHING)), threads=False)
    assert again.store.is_gone("orders", OLD)
    assert again.bodies() == []


def test_killed_before_the_deletion_was_written_nothing_is_lost() -> None:
    opened = life()
    opened.store.delete_topic("orders", OLD)  # no turn: it is in memory only
    opened = open_store(kill(opened), threads=False)
    assert len(opened.bodies()) == 3
    assert opened.store.generation("orders") == OLD
    assert opened.store.delete_topic("orders", OLD)
    store(opened, b"new", NEW)
    assert opened.bodies() == [b"new"]


def test_what_a_store_of_the_last_version_has_belongs_to_who_begins_first() -> None:
    opened = open_store(SimulatedFiles(), threads=False)
    for number in range(3):
        append(opened, b"%d" % number, 0)
    opened.turns.run()
    assert opened.store.generation("orders") == 0
    opened.store.begin_topic("orders", 3)
    store(opened, b"3", 3)
    opened = open_store(kill(opened), threads=False)
    assert opened.bodies() == [b"0", b"1", b"2", b"3"]
    assert opened.store.generation("orders") == 3


def test_the_floor_of_a_name_without_generations_is_kept_as_well() -> None:
    opened = open_store(SimulatedFiles(), threads=False)
    opened.append(b"failed", topic="%RETRY%g+orders")
    assert opened.store.delete_topic("%RETRY%g+orders")
    opened.append(b"failed again", topic="%RETRY%g+orders")
    opened.turns.run()
    files = kill(opened)
    for name in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
        del files.names[name]
    assert open_store(files, threads=False).bodies("%RETRY%g+orders") == [b"failed again"]


def test_all_states_are_written_anew_and_what_lies_before_is_trimmed() -> None:
    opened = open_store(SimulatedFiles(), threads=False)
    store(opened, b"kept", 1)
    for number in range(1, ENTRIES_MAX):
        opened.store.begin_topic("other", number)
        opened.store.delete_topic("other", number)
        opened.turns.run()
    opened.store.begin_topic("other", ENTRIES_MAX)
    opened.store.begin_checkpoint().run()
    opened.turns.run()
    low, high = opened.store.bounds(FLOORS_TOPIC, 0)
    assert high - low == 2
    opened.store.begin_checkpoint().run()
    opened = open_store(kill(opened), threads=False)
    assert opened.store.generation("other") == ENTRIES_MAX
    assert opened.store.generation("orders") == 1
    assert opened.bodies() == [b"kept"]


def test_a_send_that_comes_two_generations_late_is_refused() -> None:
    opened = life()
    opened.store.delete_topic("orders", OLD)
    opened.store.begin_topic("orders", NEW)
    opened.store.delete_topic("orders", NEW)
    with pytest.raises(TopicNotFound):
        append(opened, b"late", OLD)
    opened.turns.run()
    assert opened.store.generation("orders") == 0
    assert opened.bodies() == []


def states_of(opened: OpenStore) -> dict[str, TopicState]:
    return {state.topic: state for state in opened.store._floors.states()}


def many(monkeypatch: pytest.MonkeyPatch) -> OpenStore:
    """Eleven topics, of which three are deleted, and two states written in each turn."""
    monkeypatch.setattr(floor_journal, "_STATES_A_TURN", 2)
    opened = open_store(SimulatedFiles(), threads=False)
    for number in range(11):
        opened.store.begin_topic(f"t{number}", OLD + number)
    for number in range(3):
        opened.store.delete_topic(f"t{number}", OLD + number)
    opened.turns.run()
    return opened


def test_states_that_are_written_over_many_turns_are_whole_wherever_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = 0
    told: list[CurlewError | None] = []
    while not told:
        opened = many(monkeypatch)
        opened.store.floor_journal._write_all(told.append)
        for _ in range(steps):
            assert opened.turns.run_one()
        opened.store.begin_checkpoint().run()
        again = open_store(kill(opened), threads=False)
        assert states_of(again) == states_of(opened)
        steps += 1
        if told:
            low, high = opened.store.bounds(FLOORS_TOPIC, 0)
            assert high - low == 11
    assert steps > 5 * 3


def test_what_changes_while_all_states_are_written_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = many(monkeypatch)
    told: list[CurlewError | None] = []
    opened.store.floor_journal._write_all(told.append)
    opened.store.begin_topic("t0", NEW)  # which is being written
    opened.store.delete_topic("t10", OLD + 10)  # which is not yet
    opened.store.begin_topic("new", NEW)
    opened.turns.run()
    assert told == [None]
    assert isinstance(opened.files, SimulatedFiles)
    for files in (kill(opened), opened.files.crash(CrashPlan(0, {}, NOTHING))):
        again = open_store(files, threads=False)
        assert states_of(again) == states_of(opened)
        assert again.store.generation("t0") == again.store.generation("new") == NEW
        assert again.store.is_gone("t10", OLD + 10)


def test_a_store_that_closes_meanwhile_stops_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = many(monkeypatch)
    opened.store.floor_journal._write_all(lambda _error: None)
    opened.turns.run_one()
    opened.store.close()
    assert opened.store.status().failed is None
    again = open_store(opened.files, threads=False)
    assert again.store.status().recovery.scanned_records == 0
    assert states_of(again) == states_of(opened)


def test_what_finds_no_room_while_all_are_written_lets_go_of_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = many(monkeypatch)
    before = opened.store.bounds(FLOORS_TOPIC, 0).min_offset
    entries = opened.store.floor_journal._entries
    told: list[CurlewError | None] = []
    opened.store.floor_journal._write_all(told.append)
    opened.store._appender.hold_because("full")
    opened.turns.run()
    assert [type(error) for error in told] == [DiskFull]
    assert opened.store.bounds(FLOORS_TOPIC, 0).min_offset == before
    assert opened.store.floor_journal._entries == entries + 2
    again = open_store(kill(opened), threads=False)
    assert states_of(again) == states_of(opened)


def test_names_that_were_deleted_are_counted_also_after_a_crash() -> None:
    files = SimulatedFiles()
    opened = open_store(files, threads=False)
    names = opened.store.names
    for topic in ("a", "b", "c"):
        for queue_id in (0, 1):
            opened.store.append(
                topic, queue_id, [Message(b"x")], FlushMode.SYNC, opened.outcomes.append, OLD
            )
    opened.store.begin_topic("never-sent-to", OLD)
    assert names.queue_count("unheard-of") is None
    assert names.queue_count("never-sent-to") == 0
    for topic in ("a", "b", "never-sent-to"):
        opened.store.delete_topic(topic, OLD)
    opened.turns.run()
    assert (names.deleted_names, names.deleted_queues) == (3, 4)
    opened.store.begin_topic("a", NEW)
    opened.store.delete_topic("b", OLD)  # once more
    opened.turns.run()
    for _ in range(2):
        assert (names.deleted_names, names.deleted_queues) == (2, 2)
        assert names.queue_count("b") == names.queue_count("c") == 2
        files = files.crash(CrashPlan(0, {}, NOTHING))
        opened = open_store(files, threads=False)
        names = opened.store.names


def test_a_retry_topic_counts_as_deleted_until_it_is_used_again() -> None:
    files = SimulatedFiles()
    opened = open_store(files, threads=False)
    retries = "%RETRY%billing+orders"
    opened.store.begin_topic(retries, 0)
    assert opened.store.names.queue_count(retries) is None
    opened.send(b"again", topic=retries)
    for deleted in (1, 0, 1):
        if deleted:
            opened.store.delete_topic(retries)
        else:
            opened.store.begin_topic(retries, 0)
        opened.turns.run()
        assert opened.store.names.deleted_names == deleted
        reopened = open_store(files.crash(CrashPlan(0, {}, NOTHING)), threads=False)
        assert reopened.store.names.deleted_names == deleted
        assert reopened.bodies(retries) == []

"""What has expired or was trimmed stays away, although no checkpoint tells of it.

Control: without the entries of the log, all that its segments hold is readable again.
"""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from typing_extensions import override

from app.domain.errors import DiskFull
from app.domain.names import FLOORS_TOPIC
from app.store import paths
from app.store.lifecycle.retention_policy import RetentionPolicy
from app.store.store_status import QueueBounds
from app.store.topics.topic_floors import TopicFloors
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL, OpenStore, open_store

HOUR_MS = 3_600_000
CONFIG = SMALL


def filled() -> OpenStore:
    """Three old messages in each of two queues, one new one in the first."""
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    for queue_id in range(2):
        for number in range(3):
            opened.append(b"%d" % number, queue_id=queue_id)
    opened.turns.run()
    opened.clock.advance(s=2 * 3_600)
    opened.append(b"new")
    opened.turns.run()
    return opened


def expire(opened: OpenStore) -> None:
    policy = RetentionPolicy(default_ms=HOUR_MS, by_topic_ms={})
    assert opened.store.apply_retention(policy).expired_messages == 6


def by_the_log_alone(opened: OpenStore) -> OpenStore:
    """Opened as after a kill that no checkpoint and no queue has outlived."""
    assert isinstance(opened.files, SimulatedFiles)
    files = opened.files.kill()
    for path in [*files.names]:
        if path.startswith((paths.CHECKPOINT, "consumequeue/")) and not files.names[path].directory:
            del files.names[path]
    return open_store(files, CONFIG, threads=False)


def bounds(opened: OpenStore) -> list[QueueBounds]:
    return [opened.store.bounds("orders", queue_id) for queue_id in range(2)]


def checkpoint(opened: OpenStore) -> None:
    opened.store.begin_checkpoint().run()
    opened.turns.run()


def test_what_has_expired_stays_away() -> None:
    opened = filled()
    expire(opened)
    checkpoint(opened)
    assert bounds(opened) == [(3, 4), (3, 3)]
    again = by_the_log_alone(opened)
    assert bounds(again) == [(3, 4), (3, 3)]
    assert again.bodies() == [b"new"]
    again.send(b"next", queue_id=1)
    assert bounds(again) == [(3, 4), (3, 4)]


def test_what_was_trimmed_stays_away_and_is_written_once() -> None:
    opened = filled()
    opened.store.trim("orders", 0, 2)
    for _ in range(3):
        checkpoint(opened)
    assert opened.store.bounds(FLOORS_TOPIC, 0).max_offset == 1
    opened.store.trim("orders", 1, 1)
    checkpoint(opened)
    assert bounds(by_the_log_alone(opened)) == [(2, 4), (1, 3)]


def test_a_deletion_goes_on_from_there() -> None:
    opened = filled()
    opened.store.begin_topic("orders", 7)
    expire(opened)
    checkpoint(opened)
    opened.store.delete_topic("orders", 7)
    opened.turns.run()
    again = by_the_log_alone(opened)
    assert bounds(again) == [(4, 4), (3, 3)]
    assert again.store.is_gone("orders", 7)


def test_many_topics_are_written_over_several_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.store.topics.floor_journal._STATES_A_TURN", 2)
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    names = [f"topic-{number}" for number in range(5)]
    for name in names:
        opened.append(b"old", topic=name)
        opened.append(b"new", topic=name)
    opened.turns.run()
    for name in names:
        opened.store.trim(name, 0, 1)
    for written in (2, 4, 5, 5):
        checkpoint(opened)
        assert opened.store.bounds(FLOORS_TOPIC, 0).max_offset == written
    again = by_the_log_alone(opened)
    assert [again.store.bounds(name, 0) for name in names] == [(1, 2)] * 5


def test_where_queues_begin_is_told_while_replicas_have_no_room_for_messages() -> None:
    """Else nothing could ever be deleted there."""
    opened = filled()
    opened.store.refuse_for_replicas("the disk of b, c is full")
    with pytest.raises(DiskFull, match="the disk of b, c is full"):
        opened.append(b"too much")
    assert opened.store.status().refusal is not None
    assert opened.store.status().refusal_here is None, "this node could lead"
    expire(opened)
    checkpoint(opened)
    checkpoint(opened)
    journal = opened.store.floor_journal
    assert journal.told == journal._risen > 0
    opened.store.refuse_for_replicas(None)
    opened.send(b"next")


def test_topics_that_rise_all_the_time_keep_none_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than one turn writes: what was noted is told all the same."""
    monkeypatch.setattr("app.store.topics.floor_journal._STATES_A_TURN", 2)
    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    names = [f"topic-{number}" for number in range(5)]
    for name in names:
        for number in range(20):
            opened.append(b"%d" % number, topic=name)
    opened.turns.run()
    journal = opened.store.floor_journal
    told: list[int] = []
    for turn in range(1, 13):
        for name in names:
            opened.store.trim(name, 0, turn)
        journal.note_risen()
        checkpoint(opened)
        told.append(journal.told)
    assert told[3] >= 1
    assert told[-1] >= 8
    again = by_the_log_alone(opened)
    assert all(again.store.bounds(name, 0).min_offset >= 8 for name in names)


def test_the_floors_of_a_topic_are_looked_at_once_however_many_queues_it_has() -> None:
    class Looks(list[tuple[int, int]]):
        looks = 0

        @override
        def __iter__(self) -> Iterator[tuple[int, int]]:
            Looks.looks += 1
            return super().__iter__()

    opened = open_store(SimulatedFiles(), CONFIG, threads=False)
    for queue_id in range(8):
        opened.append(b"old", queue_id=queue_id)
    opened.turns.run()
    floors = opened.store.floor_journal.floors
    for queue_id in range(8):
        opened.store.trim("orders", queue_id, 1)
        (risen,) = floors.risen(iter(["orders"]), 10)
        assert risen.floors == [(each, 1) for each in range(queue_id + 1)]
    state = floors.state("orders")
    floors._keep(replace(state, floors=Looks(state.floors)))
    assert floors.risen(iter(["orders"]), 10) == []
    assert Looks.looks == 1


def test_the_control_without_entries_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicFloors, "risen", lambda _floors, _topics, _most: [])
    opened = filled()
    expire(opened)
    checkpoint(opened)
    assert bounds(by_the_log_alone(opened)) == [(0, 4), (0, 3)]

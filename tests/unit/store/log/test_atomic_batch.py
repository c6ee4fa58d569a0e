"""Steps: messages of several queues in one block, readable together."""

import pytest

from app.domain.errors import BodyTooLarge
from app.domain.message import PROPERTY_STEP, Message
from app.domain.positions import FlushMode
from app.store import MessageStore, StepPart, with_step_marks
from app.store.formats.record.record import encode_properties
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store


def append_step(store: OpenStore, *parts: StepPart) -> list[int]:
    appended = store.store.append_step(parts, FlushMode.SYNC, store.outcomes.append)
    store.settle()
    assert store.outcomes[-1] is None
    return [part.first_queue_offset for part in appended]


def lefts(store: MessageStore, topic: str, queue_id: int) -> list[str | None]:
    read = store.read(topic, queue_id, 0, max_messages=99, max_bytes=9999, wait_for_disk=True)
    return [store.decode(record).system.get(PROPERTY_STEP) for record in read.records]


def test_a_step_goes_to_several_queues_and_counts_down() -> None:
    store = open_store(SimulatedFiles())
    store.send(b"before")
    parts = (
        StepPart("orders", 0, [Message(b"a"), Message(b"b")]),
        StepPart("%RETRY%billing+orders", 3, [Message(b"c", reconsume_times=2)]),
        StepPart("orders", 0, [Message(b"d")]),
    )
    assert append_step(store, *parts) == [1, 0, 3]
    assert store.bodies() == [b"before", b"a", b"b", b"d"]
    assert store.bodies("%RETRY%billing+orders", 3) == [b"c"]
    assert lefts(store.store, "orders", 0) == [None, "3", "2", "0"]
    assert lefts(store.store, "%RETRY%billing+orders", 3) == ["1"]
    read = store.store.read("%RETRY%billing+orders", 3, 0, max_messages=1, max_bytes=9)
    assert store.store.decode(read.records[0]).reconsume_times == 2
    store.store.close()


def test_marks_that_are_made_before_are_those_of_the_step() -> None:
    def messages(name: str) -> list[Message]:
        return [Message(b"x", keys=(f"{name}-{number}",)) for number in range(3)]

    def part(topic: str, queue_id: int) -> StepPart:
        batch = messages(topic)
        properties = [encode_properties(message) for message in batch]
        return StepPart(topic, queue_id, batch, properties=properties)

    entry, parts = StepPart("%GROUPS%", 0, [Message(b"entry")]), [part("a", 0), part("b", 7)]
    for made in (parts, with_step_marks(parts)):
        store = open_store(SimulatedFiles())
        append_step(store, entry, *made)
        assert lefts(store.store, "%GROUPS%", 0) == ["6"]
        assert lefts(store.store, "a", 0) == ["5", "4", "3"]
        assert lefts(store.store, "b", 7) == ["2", "1", "0"]
        store.store.close()


def test_a_lone_record_has_no_mark() -> None:
    store = open_store(SimulatedFiles())
    append_step(store, StepPart("orders", 0, [Message(b"a")]))
    assert lefts(store.store, "orders", 0) == [None]
    store.store.close()


def test_nothing_of_a_step_is_readable_before_all_is_confirmed() -> None:
    store = open_store(SimulatedFiles(), threads=False)
    parts = [StepPart("a", 0, [Message(b"1")]), StepPart("b", 0, [Message(b"2")])]
    seen: list[tuple[int, int]] = []
    store.store.on_arrival = lambda _topic, _queue: seen.append(
        (store.store.bounds("a", 0).max_offset, store.store.bounds("b", 0).max_offset)
    )
    store.store.append_step(parts, FlushMode.SYNC, store.outcomes.append)
    assert (store.store.bounds("a", 0).max_offset, store.store.bounds("b", 0).max_offset) == (0, 0)
    store.settle(1)
    assert seen == [(1, 1), (1, 1)]
    store.store.close()


def test_a_step_never_crosses_a_segment() -> None:
    store = open_store(SimulatedFiles())
    store.send(b"x" * 1900)
    parts = [StepPart("a", 0, [Message(b"1" * 1200)]), StepPart("b", 0, [Message(b"2" * 1200)])]
    append_step(store, *parts)
    first = store.store.read("a", 0, 0, max_messages=1, max_bytes=9, wait_for_disk=True)
    assert store.store.decode(first.records[0]).physical_offset == 4096
    store.send(b"after")
    assert store.bodies("b") == [b"2" * 1200]
    with pytest.raises(BodyTooLarge, match="does not fit"):
        append_step(store, *parts, *parts)
    assert store.bodies() == [b"x" * 1900, b"after"]
    store.store.close()


def test_trimming_moves_the_beginning_and_survives_a_clean_stop() -> None:
    files = SimulatedFiles()
    store = open_store(files)
    for body in (b"a", b"b", b"c"):
        store.send(body)
    store.store.trim("orders", 0, 2)
    store.store.trim("orders", 0, 1)
    store.store.trim("unknown", 0, 1)
    assert store.store.bounds("orders", 0) == (2, 3)
    store.store.trim("orders", 0, 9)
    assert store.store.bounds("orders", 0) == (3, 3)
    store.store.close()
    store = open_store(files)
    assert store.store.bounds("orders", 0) == (3, 3)
    store.store.close()


@pytest.mark.parametrize("body_bytes", [10, 700])
def test_an_entry_goes_before_a_frame_also_across_segments(body_bytes: int) -> None:
    store = open_store(SimulatedFiles())
    bodies = [bytes([65 + number]) * body_bytes for number in range(9)]
    entry = StepPart("rmq_sys_producers", 0, [Message(b"entry" * 40)])
    assert store.store.next_offset("orders", 1) == 0
    messages = [Message(each, keys=("k",)) for each in bodies]
    appended = store.append_frame(messages, queue_id=1, entry=entry)
    assert store.store.next_offset("orders", 1) == 9
    assert appended.first_queue_offset == 0
    store.settle()
    assert store.outcomes == [None]
    assert store.bodies("orders", 1) == bodies
    assert store.bodies("rmq_sys_producers", 0) == [b"entry" * 40]
    store.store.close()
    reopened = open_store(store.files)
    assert reopened.bodies("orders", 1) == bodies
    assert reopened.bodies("rmq_sys_producers", 0) == [b"entry" * 40]
    reopened.store.close()

"""The key index: found by key and time, once each; made again when it is lost; bounded."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typing_extensions import override

from app.domain.message import Message, java_hash
from app.domain.positions import FlushMode
from app.store import OsFiles, RetentionPolicy
from app.store.formats.files.key_index import (
    chained,
    decode_header,
    file_bytes,
    hashed_together,
    index_key,
    key_hashes,
    topic_hash,
)
from app.store.fs.file_cache import FileCache
from app.store.fs.files import ColdRead
from app.store.index import key_index
from app.store.index.index_file import IndexFile
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL, OpenStore, open_store

TINY = replace(SMALL, index_slots=8, index_entries=11)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStore]:
    opened = open_store(OsFiles(tmp_path), TINY)
    yield opened
    opened.store.close()


def send(
    opened: OpenStore,
    body: str,
    *keys: str,
    unique_id: str | None = None,
    message_id: str | None = None,
) -> None:
    message = Message(body.encode(), keys=keys, unique_id=unique_id, message_id=message_id)
    opened.append_all([message])
    opened.settle(len(opened.outcomes) + 1)
    opened.clock.advance(ms=500)


def found(opened: OpenStore, key: str, **bounds: int) -> list[str]:
    records = opened.store.find_by_key("orders", key, wait_for_disk=True, **bounds)
    return [opened.store.decode(record).body.decode() for record in records]


def fill(opened: OpenStore, count: int = 40) -> None:
    """Keys k0 to k4 by turns, over several index files."""
    for number in range(count):
        send(opened, f"m{number}", f"k{number % 5}", "every")


def test_messages_are_found_by_key_in_order(opened: OpenStore) -> None:
    fill(opened)
    assert found(opened, "k3") == [f"m{number}" for number in range(40) if number % 5 == 3]
    assert found(opened, "nothing") == []
    assert opened.store.find_by_key("other", "k3") == []
    assert len(opened.store.index._files) > 3


def test_the_newest_come_first_and_the_number_is_bounded(opened: OpenStore) -> None:
    fill(opened)
    assert found(opened, "every", max_messages=3) == ["m37", "m38", "m39"]


def test_times_are_exact_to_the_millisecond(opened: OpenStore) -> None:
    start = opened.clock.now_ms()
    fill(opened)
    assert found(opened, "every", begin_ms=start + 2000, end_ms=start + 3500) == [
        "m4",
        "m5",
        "m6",
        "m7",
    ]
    assert found(opened, "every", begin_ms=start + 2001, end_ms=start + 2499) == []


def test_keys_with_one_hash_are_told_apart(opened: OpenStore) -> None:
    assert java_hash("Aa") == java_hash("BB")
    send(opened, "a", "Aa")
    send(opened, "b", "BB")
    assert (found(opened, "Aa"), found(opened, "BB")) == (["a"], ["b"])


def test_an_id_of_the_client_finds_its_message(opened: OpenStore) -> None:
    send(opened, "a", unique_id="mine")
    send(opened, "b", "mine")
    message = opened.store.read_message("mine", topic="orders", wait_for_disk=True)
    assert message is not None
    assert message.body == b"a", "a newer message has it as a key"
    send(opened, "c", unique_id="mine-2")
    message = opened.store.read_message("mine-2", topic="orders", wait_for_disk=True)
    assert message is not None
    assert message.body == b"c"
    assert opened.store.read_message("mine-2") is None


def test_an_id_is_found_though_others_have_it_as_a_key(opened: OpenStore) -> None:
    (derived,) = opened.send(b"question").message_ids
    send(opened, "mine", unique_id="mine")
    for number in range(40):
        send(opened, f"answer {number}", derived, "mine")
    for message_id, body in ((derived, b"question"), ("mine", b"mine")):
        message = opened.store.read_message(message_id, topic="orders", wait_for_disk=True)
        assert message is not None
        assert message.body == body
        assert message_id in (message.message_id, message.unique_id)
    assert opened.store.read_message("answer", topic="orders", wait_for_disk=True) is None


def test_an_id_whose_place_is_in_another_topic_finds_its_message(opened: OpenStore) -> None:
    """A message that waited in a system topic keeps the id that it got there."""
    appended = opened.append(b"waits", topic="waiting")
    opened.settle()
    (waited,) = appended.message_ids
    send(opened, "delivered", message_id=waited)
    message = opened.store.read_message(waited, topic="orders", wait_for_disk=True)
    assert message is not None
    assert (message.topic, message.body) == ("orders", b"delivered")
    there = opened.store.read_message(waited, topic="waiting", wait_for_disk=True)
    assert there is not None
    assert (there.topic, there.body) == ("waiting", b"waits")


def test_messages_without_keys_are_not_in_the_index(opened: OpenStore) -> None:
    for _ in range(50):
        opened.send(b"x")
    assert len(opened.store.index._files) == 0


def test_frames_are_indexed_too(opened: OpenStore) -> None:
    batch = [Message(b"%d" % n, keys=("every", f"k{n}"), unique_id=f"id{n}") for n in range(4)]
    batch += [Message(b"none")]
    opened.append_frame(batch, queue_id=1)
    opened.settle()
    assert found(opened, "k2") == ["2"]
    assert found(opened, "id3") == ["3"]
    assert found(opened, "every") == ["0", "1", "2", "3"]


def test_probes_are_bounded(tmp_path: Path) -> None:
    opened = open_store(OsFiles(tmp_path), replace(SMALL, index_slots=1, key_probes_max=10))
    for number in range(20):
        send(opened, f"m{number}", f"k{number}")
    assert found(opened, "k15") == ["m15"]
    assert found(opened, "k5") == []
    opened.store.close()


def reopened(opened: OpenStore, root: Path) -> OpenStore:
    opened.store.close()
    return open_store(OsFiles(root), TINY)


def test_a_clean_stop_keeps_the_index(opened: OpenStore, tmp_path: Path) -> None:
    fill(opened)
    again = reopened(opened, tmp_path)
    recovery = again.store.status().recovery
    assert (recovery.scanned_bytes, recovery.index_rebuilt_from) == (0, None)
    assert found(again, "k3") == [f"m{number}" for number in range(40) if number % 5 == 3]
    send(again, "more", "k3")
    assert found(again, "k3")[-1] == "more"
    again.store.close()


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def test_files_have_their_full_size_and_header(opened: OpenStore, tmp_path: Path) -> None:
    fill(opened)
    opened.store.close()
    for path in index_files(tmp_path):
        data = path.read_bytes()
        assert len(data) == file_bytes(8, 11)
        header = decode_header(data)
        assert 1 < header.next_entry <= 11
        assert header.begin_ms <= header.end_ms
        assert 0 < header.slots_used <= 8


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "second", "last"])
@pytest.mark.parametrize("how", ["delete", "entries", "slots", "cut"])
def test_a_damaged_or_deleted_file_is_made_again(
    opened: OpenStore, tmp_path: Path, which: int, how: str
) -> None:
    fill(opened)
    expected = {key: found(opened, key) for key in ("k0", "k1", "k4", "every")}
    opened.store.close()
    path = index_files(tmp_path)[which]
    data = bytearray(path.read_bytes())
    if how == "delete":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[:50])
    else:
        start, end = (40, 72) if how == "slots" else (92, 132)
        data[start:end] = bytes(end - start)
        path.write_bytes(data)
    opened = open_store(OsFiles(tmp_path), TINY)
    for key in expected:  # a damaged file may be noticed only by looking into it
        found(opened, key)
    opened = reopened(opened, tmp_path)
    assert {key: found(opened, key) for key in expected} == expected
    for key in expected:
        probes = list(opened.store.index.candidates("orders", key, 0, 1 << 60, wait_for_disk=True))
        hits = [at for at in probes if at is not None]
        assert len(hits) == len(set(hits))
    opened.store.close()


def test_a_deleted_index_directory_is_made_again(opened: OpenStore, tmp_path: Path) -> None:
    fill(opened)
    opened.store.close()
    for path in index_files(tmp_path):
        path.unlink()
    again = open_store(OsFiles(tmp_path), TINY)
    assert again.store.status().recovery.index_rebuilt_from == 0
    assert found(again, "k3") == [f"m{number}" for number in range(40) if number % 5 == 3]
    again.store.close()


@pytest.mark.parametrize("checkpoint_at", [0, 7, 23, 39])
def test_after_a_kill_every_key_is_there_once(checkpoint_at: int) -> None:
    files = SimulatedFiles()
    opened = open_store(files, TINY)
    for number in range(40):
        send(opened, f"m{number}", f"k{number % 5}", "every")
        if number == checkpoint_at:
            opened.store.begin_checkpoint().run()
    files = files.kill()
    opened.store.fail("killed")
    opened.store.close()
    again = open_store(files, TINY)
    assert found(again, "every") == [f"m{number}" for number in range(40)]
    candidates = again.store.index.candidates("orders", "every", 0, 1 << 60, wait_for_disk=True)
    hits = [at for at in candidates if at is not None]
    assert len(hits) == 40
    again.store.close()


def test_a_deleted_topic_is_not_found(opened: OpenStore) -> None:
    fill(opened, 5)
    opened.store.delete_topic("orders")
    assert found(opened, "k3") == []


def test_keys_behind_the_synced_end_are_there_once() -> None:
    """A checkpoint counts on the synced part of the log; the index had more."""
    files = SimulatedFiles()
    opened = open_store(files, TINY)
    for number in range(20):
        message = Message(b"m%d" % number, keys=("every",))
        opened.append_all([message], flush=FlushMode.ASYNC if number else FlushMode.SYNC)
        opened.settle(number + 1)
    opened.store.begin_checkpoint().run()
    files = files.kill()
    opened.store.fail("killed")
    opened.store.close()
    again = open_store(files, TINY)
    candidates = again.store.index.candidates("orders", "every", 0, 1 << 60, wait_for_disk=True)
    assert len([at for at in candidates if at is not None]) == 20
    again.store.close()


def test_keys_of_records_that_a_power_loss_took_are_gone() -> None:
    files = SimulatedFiles()
    opened = open_store(files, TINY)
    opened.append_all([Message(b"kept", keys=("every",))])
    opened.settle(1)
    opened.append_all([Message(b"lost", keys=("every",))], flush=FlushMode.ASYNC)
    opened.settle(2)
    opened.store.begin_checkpoint().run()
    files = files.lose_first_change("commitlog/")
    opened.store.fail("no power")
    opened.store.close()
    again = open_store(files, TINY)
    again.append_all([Message(b"lost", keys=("new",))])
    again.settle(1)
    assert (found(again, "every"), found(again, "new")) == (["kept"], ["lost"])
    again.store.close()


def test_a_key_added_while_a_thread_looks_up_is_kept(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, real = opened.store.index, key_index._Part

    def late(*fields: object) -> object:
        list(index.candidates("orders", "other", 0, 1 << 60, wait_for_disk=True))
        return real(*fields)  # type: ignore[arg-type]

    send(opened, "first", "k")
    monkeypatch.setattr(key_index, "_Part", late)
    send(opened, "second", "k")
    assert found(opened, "k") == ["first", "second"]


def test_an_entry_that_is_being_added_is_no_damage() -> None:
    file = IndexFile(FileCache(SimulatedFiles()), "20261121000000000", 8, 11)

    class Pages(set[int]):
        """Told of an entry's slot when the slot points to it; a thread looks it up then."""

        @override
        def update(self, *others: Iterable[int]) -> None:
            assert [same for same, _, _ in file.chain(5)] == [True]

    file._dirty = Pages()
    file.append([(0, 1, ["k", "l"])], np.array([5, 6]))
    assert file.next_entry == 3


def test_many_keys_are_hashed_in_later_turns(tmp_path: Path) -> None:
    """They are found all the same, by a thread; a look-up on the event loop hands over to it."""
    opened = open_store(OsFiles(tmp_path))
    index = opened.store.index
    several = [
        Message(b"%d" % number, keys=tuple(f"k{number}-{key}" for key in range(32)))
        for number in range(1_000)
    ]
    opened.append_all(several)
    while not opened.outcomes:
        opened.turns.run_one()
    assert len(index._pending) == -(-1_000 // key_index.PART_RECORDS_MAX)
    with pytest.raises(ColdRead):
        opened.store.find_by_key("orders", "k999-31")
    waiting = [len(index._pending)]
    while opened.turns.run_one():
        waiting.append(len(index._pending))
    keys_a_part = key_index.PART_RECORDS_MAX * 32
    assert max(np.diff(waiting) * -keys_a_part) <= key_index.KEYS_A_TURN
    assert waiting[-1] == 0
    assert len(opened.store.find_by_key("orders", "k999-31")) == 1, "nothing waits any more"
    opened.append_all(several)
    while len(opened.outcomes) == 1:
        opened.turns.run_one()
    assert index._pending
    assert found(opened, "k999-31") == ["999", "999"], "a thread hashes all that waits"
    assert not index._pending
    opened.turns.run()
    opened.store.close()


def test_hashing_catches_up_however_many_keys_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "KEYS_A_TURN", 1)
    opened = open_store(OsFiles(tmp_path))
    index = opened.store.index
    keyed = [(at, [f"k{at}"]) for at in range(12_800)]
    for first in range(0, len(keyed), 640):
        index.add_some(1, "orders", keyed[first : first + 640])
    assert len(index._pending) == 100
    opened.turns.run_one()
    assert len(index._pending) == 100 - 100 // key_index.BEHIND_TURNS_MAX
    opened.turns.run()
    assert not index._pending
    opened.store.close()


def test_the_hashes_of_many_keys_are_those_of_java() -> None:
    letters = random.Random(7)
    texts = ["", "polygenelubricants"] + [
        "".join(letters.choices("aZ9-é漢😀\ud800\udc00", k=letters.randint(0, 40)))
        for _ in range(2_000)
    ]
    assert key_hashes(texts) == [key_hash(text) for text in texts]
    topics = ["orders", "t😀"] * 1_001
    hashes = hashed_together(texts, np.array([topic_hash(each) for each in topics], np.uint32))
    pairs = zip(topics, texts, strict=True)
    assert hashes.tolist() == [key_hash(index_key(topic, key)) for topic, key in pairs]


def key_hash(text: str) -> int:
    hashed = java_hash(text)
    return 0 if hashed == -(2**31) else abs(hashed)


def test_entries_of_one_slot_are_chained_however_many_come_at_once() -> None:
    heads = np.array([0, 7, 0, 9], np.int32)
    slots = np.array([1, 3, 1, 0, 1, 3])
    numbers = np.arange(10, 16, dtype=np.int32)
    assert chained(heads, slots, numbers).tolist() == [7, 9, 10, 0, 12, 11]


def test_a_file_that_retention_removed_meanwhile_is_no_damage(opened: OpenStore) -> None:
    for number in range(40):
        opened.append_all([Message(bytes(800), keys=("every",))])
        opened.settle(number + 1)
    opened.store.begin_checkpoint().run()
    index = opened.store.index
    looking = index.candidates("orders", "every", 0, 1 << 60, wait_for_disk=True)
    assert next(looking) is not None
    keep_all = RetentionPolicy(default_ms=1 << 50, log_bytes_max=4_096)
    assert opened.store.apply_retention(keep_all).deleted_index_files
    assert len(list(looking)) < 39
    assert index.damaged_from is None

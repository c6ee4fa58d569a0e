"""The key index: found by key and time, once each; made again when it is lost; bounded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from app.domain.message import Message, java_hash
from app.domain.positions import FlushMode
from app.store import OsFiles, RetentionPolicy, key_index
from app.store.file_cache import FileCache
from app.store.formats.key_index import decode_header, file_bytes
from app.store.index_file import IndexFile
from tests.support.simulated_files import SimulatedFiles
from tests.support.stores import SMALL, OpenStore, open_store

TINY = replace(SMALL, index_slots=8, index_entries=11)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStore]:
    opened = open_store(OsFiles(tmp_path), TINY)
    yield opened
    opened.store.close()


def send(opened: OpenStore, body: str, *keys: str, message_id: str | None = None) -> None:
    opened.append_all([Message(body.encode(), keys=keys, message_id=message_id)])
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
    assert opened.store.index.file_count > 3


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
    send(opened, "a", message_id="mine")
    send(opened, "b", "mine")
    message = opened.store.read_message("mine", topic="orders", wait_for_disk=True)
    assert message is not None
    assert message.body == b"a", "a newer message has it as a key"
    send(opened, "c", message_id="mine-2")
    message = opened.store.read_message("mine-2", topic="orders", wait_for_disk=True)
    assert message is not None
    assert message.body == b"c"
    assert opened.store.read_message("mine-2") is None


def test_an_id_is_found_though_others_have_it_as_a_key(opened: OpenStore) -> None:
    (derived,) = opened.send(b"question").message_ids
    send(opened, "mine", message_id="mine")
    for number in range(40):
        send(opened, f"answer {number}", derived, "mine")
    for message_id, body in ((derived, b"question"), ("mine", b"mine")):
        message = opened.store.read_message(message_id, topic="orders", wait_for_disk=True)
        assert message is not None
        assert (message.message_id, message.body) == (message_id, body)
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
    assert opened.store.index.file_count == 0


def test_frames_are_indexed_too(opened: OpenStore) -> None:
    batch = [Message(b"%d" % n, keys=("every", f"k{n}"), message_id=f"id{n}") for n in range(4)]
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
    index, real = opened.store.index, key_index._Keyed

    def late(*fields: object) -> object:
        list(index.candidates("orders", "other", 0, 1 << 60, wait_for_disk=True))
        return real(*fields)  # type: ignore[arg-type]

    send(opened, "first", "k")
    monkeypatch.setattr(key_index, "_Keyed", late)
    send(opened, "second", "k")
    assert found(opened, "k") == ["first", "second"]


def test_an_entry_that_is_being_added_is_no_damage() -> None:
    file = IndexFile(FileCache(SimulatedFiles()), "20261121000000000", 8, 11)

    class Keys(list[int]):
        """The hashes of a record; a thread looks the first up before the second is added."""

        @override
        def __iter__(self) -> Iterator[int]:
            yield 5
            assert [same for same, _, _ in file.chain(5)] == [True]
            yield 6

    file.append(0, 1, Keys())
    assert file.next_entry == 3


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

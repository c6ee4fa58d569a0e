"""RocketMQ stores are taken over message by message, key by key, and stay as they were."""

import struct
import zlib
from pathlib import Path

import pytest

from app.domain.limits import Limits
from app.domain.message import java_hash
from app.domain.positions import CommittedOffset, QueueOffset
from app.domain.settings import TopicType
from app.store import OsFiles, StoreConfig
from app.store.fs.read_only_files import ReadOnlyFiles
from app.store.log import log_scan
from app.store.offline.importing import (
    ImportPlan,
    TargetNotEmpty,
    import_log,
    plan_import,
    refuse_if_not_empty,
)
from app.store.offline.survey import SourceUnusable, survey
from app.store.offline.verification import verify
from tests.support.stores.clock import FakeClock
from tests.support.stores.rocketmq_directory import RocketDirectory, golden_directory, write_files
from tests.support.stores.rocketmq_store import STORE6, Sent, store200_messages
from tests.support.stores.stores import OpenStore, open_store
from tests.support.stores.turns import ManualTurns

GOLDEN = {"store6": (STORE6, 1648), "store200": (store200_messages(), 46590)}


def take_over(source: Path, target: Path) -> ImportPlan:
    target.mkdir()
    files = ReadOnlyFiles(source)
    found = survey(files)
    import_log(found, files, OsFiles(target), FakeClock(), ManualTurns())
    assert verify(OsFiles(target)).problems == []
    return plan_import(found, Limits())


def opened(target: Path) -> OpenStore:
    return open_store(OsFiles(target), StoreConfig())


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


def check_message(store: OpenStore, sent: Sent) -> None:
    result = store.store.read(
        sent.topic,
        sent.queue_id,
        sent.queue_offset,
        max_messages=1,
        max_bytes=1,
        wait_for_disk=True,
    )
    assert result.tag_hashes == [java_hash(sent.tag) if sent.tag else 0]
    message = store.store.decode(result.records[0])
    assert message.unique_id == sent.unique_key
    assert (message.topic, message.queue_id) == (sent.topic, sent.queue_id)
    assert (message.queue_offset, message.physical_offset) == (sent.queue_offset, sent.offset)
    assert (message.body, message.tag) == (sent.body, sent.tag)
    assert message.keys == tuple((sent.keys or "").split())
    assert message.properties == {"u": "v"}
    assert (message.store_time_ms, message.born_time_ms) == (sent.time, sent.time - 5)
    for key in (sent.unique_key, *message.keys):
        found = store.store.find_by_key(sent.topic, key, wait_for_disk=True)
        assert sent.offset in [store.store.decode(record).physical_offset for record in found]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_stores(tmp_path: Path, name: str) -> None:
    source = golden_directory(tmp_path / "source", name)
    before = snapshot(source)
    messages, end = GOLDEN[name]
    plan = take_over(source, tmp_path / "store")
    assert snapshot(source) == before
    assert sum(topic.messages for topic in plan.topics) == len(messages)
    store = opened(tmp_path / "store")
    assert store.store.status().written_end == end
    for sent in messages:
        check_message(store, sent)
    last = max(sent.queue_offset for sent in messages if sent.queue_id == 0)
    assert store.send(b"ours", topic="TopicA").first_queue_offset == last + 1
    assert store.bodies("TopicA")[-1] == b"ours"
    store.store.close()
    for path in (tmp_path / "store" / "commitlog").iterdir():
        theirs = source / "commitlog" / path.name
        kept = theirs.read_bytes()[: end - int(path.name)] if theirs.exists() else b""
        assert path.read_bytes().startswith(kept)


def test_records_of_ours_behind_theirs_need_their_checksum(tmp_path: Path) -> None:
    source = golden_directory(tmp_path / "source", "store6")
    take_over(source, tmp_path / "store")
    store = opened(tmp_path / "store")
    store.send(b"ours", topic="TopicA")
    store.store.close()
    path = tmp_path / "store" / "commitlog" / f"{1024:020d}"
    data = bytearray(path.read_bytes())
    at = data.index(b"__CRC32#", 1648 - 1024)
    data[at] ^= 1
    path.write_bytes(data)
    (problem,) = verify(OsFiles(tmp_path / "store")).problems
    assert (problem.topic, problem.queue_offset) == ("TopicA", 4)


def everything() -> RocketDirectory:
    made = RocketDirectory(segment_bytes=2048)
    made.begin("orders", 3, 1000)
    for number in range(20):
        made.add("orders", 3, b"n%d" % number, properties=f"KEYS\x01k{number}\x02TAGS\x01t")
    made.add("orders", 0, zlib.compress(b"long " * 100), flag=0x1)
    made.add("eu%orders", 1, b"of a namespace")
    made.add("wide", 0, b"v6", wide_hosts=True)
    made.add("SCHEDULE_TOPIC_XXXX", 2, b"later")
    made.add("SCHEDULE_TOPIC_XXXX", 2, b"much later")
    made.add("%RETRY%billing", 0, b"again")
    made.add("%DLQ%billing", 0, b"dead")
    made.add("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"half")
    made.add("orders", 0, b"prepared", flag=0x4)
    made.add("RMQ_SYS_TRACE_TOPIC", 0, b"trace")
    made.settings(
        "topics.json",
        {
            "topicConfigTable": {
                "orders": {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6},
                "quiet": {
                    "readQueueNums": 2,
                    "writeQueueNums": 2,
                    "perm": 6,
                    "attributes": {"+message.type": "FIFO"},
                },
                "DefaultCluster": {"readQueueNums": 16, "writeQueueNums": 16, "perm": 7},
                "TBW102": {"readQueueNums": 8, "writeQueueNums": 8, "perm": 7},
                "bad name!": {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
            }
        },
    )
    made.settings(
        "consumerOffset.json",
        {
            "offsetTable": {
                "orders@billing": {3: 1007, 0: 99},
                "%RETRY%billing@billing": {0: 0},
                "quiet@CID_RMQ_SYS_TRANS": {0: 1},
                "orders@bad group!": {0: 1},
                "eu%orders@eu%billing": {1: 1},
                "eu%orders@billing": {1: 1},
                "quiet@audit": {1: 40, 7: 1},
            }
        },
    )
    made.settings("delayOffset.json", {"offsetTable": {3: 1}})
    unit = struct.pack(">qiq", 5, 100, 0)
    made.files[f"consumequeue/quiet/1/{0:020d}"] = (unit * 41).ljust(6_000_000, b"\0")
    return made


def test_topics_offsets_and_what_is_left(tmp_path: Path) -> None:
    plan = take_over(everything().write(tmp_path / "source"), tmp_path / "store")
    assert [(t.name, t.queues, t.type, t.messages) for t in plan.topics] == [
        ("eu%orders", 2, TopicType.NORMAL, 1),
        ("orders", 8, TopicType.NORMAL, 21),
        ("quiet", 2, TopicType.FIFO, 0),
        ("wide", 1, TopicType.NORMAL, 1),
    ]
    left = {item.name: (item.messages, item.why) for item in plan.left}
    assert left == {
        "%DLQ%billing": (1, "dead letters"),
        "%RETRY%billing": (1, "to be delivered again; 1 were not consumed yet"),
        "RMQ_SYS_TRACE_TOPIC": (1, "RocketMQ's own"),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, "halves of transactions"),
        "SCHEDULE_TOPIC_XXXX": (2, "delayed messages; 1 of them were not delivered yet"),
    }
    assert plan.offsets == [
        CommittedOffset("billing", "orders", 3, QueueOffset(1007)),
        CommittedOffset("billing", "orders", 0, QueueOffset(1)),
        CommittedOffset("eu%billing", "eu%orders", 1, QueueOffset(1)),
        CommittedOffset("audit", "quiet", 1, QueueOffset(40)),
    ]
    assert plan.namespaces == ["eu"]
    notes = "\n".join(plan.notes)
    assert "billing in eu%orders/1 is left out: they are of two namespaces" in notes
    assert "billing in orders/0 was 99, beyond the end; now 1" in notes
    assert "bad group!" in notes
    assert "audit in quiet/7 is left out" in notes


def test_queue_offsets_go_on_where_rocketmq_stopped(tmp_path: Path) -> None:
    take_over(everything().write(tmp_path / "source"), tmp_path / "store")
    store = opened(tmp_path / "store")
    assert store.store.bounds("orders", 3) == (1000, 1020)
    assert store.bodies("orders", 3) == [b"n%d" % number for number in range(20)]
    assert store.bodies("orders", 0) == [b"long " * 100]
    assert store.bodies("wide") == [b"v6"]
    assert store.bodies("%RETRY%billing") == [b"again"]
    assert store.store.bounds("quiet", 1) == (41, 41)
    assert store.send(b"x", topic="quiet", queue_id=1).first_queue_offset == 41
    assert store.send(b"x", queue_id=3).first_queue_offset == 1020
    store.store.close()


def test_a_torn_tail_is_left_out_and_damage_told(tmp_path: Path) -> None:
    made = everything()
    torn = made.add("orders", 0, b"torn" * 20)
    source = made.write(tmp_path / "source")
    write_files(source, {"abort": b""})
    (path,) = [
        p for p in (source / "commitlog").iterdir() if int(p.name) <= torn < int(p.name) + 2048
    ]
    data = bytearray(path.read_bytes())
    at = torn - int(path.name)
    data[at + 100 : at + 300] = bytes(len(data[at + 100 : at + 300]))
    path.write_bytes(data)
    first = bytearray((source / "commitlog" / f"{0:020d}").read_bytes())
    first[89] ^= 0xFF
    (source / "commitlog" / f"{0:020d}").write_bytes(first)
    found = survey(ReadOnlyFiles(source))
    assert found.end == torn
    notes = "\n".join(found.notes)
    assert "abort file" in notes
    assert "left out" in notes
    assert "bytes at 0 cannot be read: body checksum" in notes
    (tmp_path / "store").mkdir()
    import_log(
        found, ReadOnlyFiles(source), OsFiles(tmp_path / "store"), FakeClock(), ManualTurns()
    )
    store = opened(tmp_path / "store")
    assert store.bodies("orders", 3) == [b"n%d" % number for number in range(1, 20)]
    assert store.store.status().written_end == torn
    store.store.close()


@pytest.mark.parametrize("bit", [63, 62, 56, 40, 24])
def test_a_flipped_queue_offset_is_damage(tmp_path: Path, bit: int) -> None:
    """Only our checksum covers it; room for all that would be missing before it is not made."""
    made = RocketDirectory(segment_bytes=2048)
    places = [made.add("orders", 0, b"n%d" % number) for number in range(30)]
    source = made.write(tmp_path / "source")
    segment, at = places[20] // 2048 * 2048, places[20] % 2048
    path = source / "commitlog" / f"{segment:020d}"
    data = bytearray(path.read_bytes())
    data[at + 20 + 7 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    found = survey(ReadOnlyFiles(source))
    assert any(f"at {places[20]} cannot be read: a queue offset" in note for note in found.notes)
    (tmp_path / "store").mkdir()
    import_log(
        found, ReadOnlyFiles(source), OsFiles(tmp_path / "store"), FakeClock(), ManualTurns()
    )
    missing, damaged = verify(OsFiles(tmp_path / "store")).problems
    assert (missing.topic, missing.queue_offset, missing.queue_end) == ("orders", 20, 21)
    assert (damaged.file, damaged.position) == (f"commitlog/{segment:020d}", at)
    store = opened(tmp_path / "store")
    assert store.store.bounds("orders", 0) == (0, 30)
    bodies = [b"n%d" % number for number in range(30)]
    assert store.bodies("orders") == [*bodies[:20], b"GAP", *bodies[21:]]
    store.store.close()


@pytest.mark.parametrize("bit", [63, 62, 56, 40, 24, 22])
@pytest.mark.parametrize("is_ours", [False, True])
def test_a_flipped_offset_of_a_queues_first_record_is_damage(
    tmp_path: Path, bit: int, is_ours: bool
) -> None:
    """There is no record before it, but queue files of RocketMQ's, and later our checkpoint."""
    made = RocketDirectory(segment_bytes=2048)
    made.begin("orders", 0, 6_000_000)
    made.add("orders", 0, b"half", flag=0x4)
    places = [made.add("orders", 0, b"n%d" % number) for number in range(20)]
    made.files[f"consumequeue/orders/0/{6_000_000 * 20:020d}"] = bytes(300 * 20)
    source = made.write(tmp_path / "source")
    target = tmp_path / "store"
    target.mkdir()

    def flip(root: Path) -> None:
        path = root / "commitlog" / f"{0:020d}"
        data = bytearray(path.read_bytes())
        data[places[0] + 20 + 7 - bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)

    if not is_ours:
        flip(source)
    found = survey(ReadOnlyFiles(source))
    notes = [note for note in found.notes if "a queue offset far behind" in note]
    assert len(notes) == (not is_ours)
    import_log(found, ReadOnlyFiles(source), OsFiles(target), FakeClock(), ManualTurns())
    if is_ours and bit != 22:  # from 0 on all is possible: deleted topics leave records behind
        flip(target)
        problems = verify(OsFiles(target)).problems
        assert any("far behind the one before" in problem.what for problem in problems)
    store = opened(target)
    bounds = store.store.bounds("orders", 0)
    assert bounds == (6_000_000 + (not is_ours), 6_000_020)
    assert store.bodies("orders")[-1] == b"n19"
    store.store.close()


def test_a_short_last_segment_and_backup_settings_are_read(tmp_path: Path) -> None:
    source = everything().write(tmp_path / "source")
    last = max((source / "commitlog").iterdir())
    (source / "commitlog" / f"{int(last.name) + 2048:020d}").write_bytes(b"")
    config = source / "config" / "topics.json"
    config.rename(source / "config" / "topics.json.bak")
    config.write_bytes(b"{")
    plan = take_over(source, tmp_path / "store")
    assert [topic.queues for topic in plan.topics] == [2, 8, 2, 1]
    assert any("0 of 2048 bytes" in note for note in plan.notes)
    config.with_suffix(".json.bak").write_bytes(b"{")
    with pytest.raises(SourceUnusable, match="damaged"):
        survey(ReadOnlyFiles(source))


def test_sources_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceUnusable, match="no segments in commitlog"):
        survey(ReadOnlyFiles(tmp_path / "empty"))
    source = golden_directory(tmp_path / "source", "store6")
    write_files(source, {f"commitlog/{100:020d}": bytes(10)})
    with pytest.raises(SourceUnusable, match="does not begin at a multiple of 1024"):
        survey(ReadOnlyFiles(source))
    (tmp_path / "ours").mkdir()
    opened(tmp_path / "ours").store.close()
    with pytest.raises(SourceUnusable, match="is a Curlew store"):
        survey(ReadOnlyFiles(tmp_path / "ours"))


def test_targets_that_are_not_empty(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    refuse_if_not_empty(OsFiles(tmp_path / "ours"))
    opened(tmp_path / "ours").store.close()
    with pytest.raises(TargetNotEmpty, match="there is a store"):
        refuse_if_not_empty(OsFiles(tmp_path / "ours"))
    write_files(tmp_path / "half", {f"commitlog/{0:020d}": b""})
    with pytest.raises(TargetNotEmpty, match="interrupted"):
        refuse_if_not_empty(OsFiles(tmp_path / "half"))


def test_reading_only_is_reading_only(tmp_path: Path) -> None:
    source = golden_directory(tmp_path / "source", "store6")
    files = ReadOnlyFiles(source)
    for change in (files.remove, files.make_directory, files.lock):
        with pytest.raises(PermissionError):
            change("checkpoint")
    with pytest.raises(PermissionError):
        files.replace("checkpoint", "other")
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.open("checkpoint").pwritev([b"x"], 0)


def test_as_many_messages_may_be_missing_as_damage_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_scan, "MISSING_MAX", 0)
    made = RocketDirectory(segment_bytes=2048)
    places = [made.add("orders", 0, b"n%d" % number) for number in range(100)]
    source = made.write(tmp_path / "source")
    for base in range(2048, 8192, 2048):
        (source / "commitlog" / f"{base:020d}").write_bytes(b"\xff" * 2048)
    found = survey(ReadOnlyFiles(source))
    lost = [at for at in places if 2048 <= at < 8192]
    assert found.records == 100 - len(lost)
    assert len(lost) > 30

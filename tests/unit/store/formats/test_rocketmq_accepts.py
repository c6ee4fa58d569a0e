"""After a clean stop RocketMQ would open the directory: sizes, names, checkpoint, no abort."""

import struct
from pathlib import Path

from app.domain.message import Message
from app.store import OsFiles, StoreConfig
from tests.support.stores.stores import open_store

ROCKETMQ_LIKE = StoreConfig(segment_bytes=8192, record_bytes_max=4096)


def test_a_clean_stop_leaves_what_rocketmq_expects(tmp_path: Path) -> None:
    opened = open_store(OsFiles(tmp_path), ROCKETMQ_LIKE)
    assert (tmp_path / "abort").exists()
    for number in range(40):
        body = b"x" * 400
        opened.append_all([Message(body, keys=(f"k{number}",))], queue_id=number % 2)
        opened.settle(number + 1)
    opened.clock.advance(s=5)
    opened.send(b"last")
    end, newest = opened.store.status().written_end, opened.clock.now_ms()
    opened.store.close()
    assert not (tmp_path / "abort").exists()

    segments = sorted((tmp_path / "commitlog").iterdir())
    assert len(segments) > 2
    assert [path.name for path in segments] == [f"{8192 * n:020d}" for n in range(len(segments))]
    assert {path.stat().st_size for path in segments} == {8192}
    queues = [path for path in (tmp_path / "consumequeue").rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path).as_posix() for path in queues} == {
        f"consumequeue/orders/{queue_id}/{0:020d}" for queue_id in (0, 1)
    }
    assert {path.stat().st_size for path in queues} == {6_000_000}
    for path in (tmp_path / "index").iterdir():
        assert len(path.name) == 17
        assert path.name.isdigit()

    checkpoint = (tmp_path / "checkpoint").read_bytes()
    assert len(checkpoint) == 4096
    assert struct.unpack_from(">qqqqq", checkpoint) == (newest, newest, newest, end, end)
    assert not any(checkpoint[40:])


def test_rocketmqs_reader_finds_every_record(tmp_path: Path) -> None:
    """`checkMessageAndReturnSize` as it is described: magic, lengths, end-of-file records."""
    opened = open_store(OsFiles(tmp_path), ROCKETMQ_LIKE)
    for number in range(40):
        opened.send(b"%d" % number * 150)
    opened.store.close()
    log = b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))
    at = count = 0
    units = (tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}").read_bytes()
    while at < len(log):
        size, magic = struct.unpack_from(">II", log, at)
        if magic == 0xCBD43194:
            at += size
            continue
        if magic != 0xDAA320A7:
            break
        body = int.from_bytes(log[at + 84 : at + 88])
        topic_at = at + 88 + body
        properties_at = topic_at + 1 + log[topic_at]
        properties = int.from_bytes(log[properties_at : properties_at + 2])
        assert properties_at + 2 + properties == at + size
        assert struct.unpack_from(">qi", units, 20 * count) == (at, size)
        at, count = at + size, count + 1
    assert count == 40
    assert not any(log[at:])

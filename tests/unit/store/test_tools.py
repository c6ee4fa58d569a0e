"""The operator's tools: they find every damage, keep copies, and take over RocketMQ's stores."""

import json
from pathlib import Path

import pytest

from app import cli
from app.domain.message import Message, java_hash
from app.store import OsFiles, StoreLocked, StoreUnusable, tools
from tests.support import rocketmq_store
from tests.support.clock import FakeClock
from tests.support.rocketmq_store import STORE6, T0, store200_messages
from tests.support.stores import OpenStore, open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A stopped store with 40 messages in two topics."""
    opened = open_store(OsFiles(tmp_path))
    for number in range(40):
        keys = (f"k{number}", "every") if number % 2 else ()
        topic = "orders" if number % 4 else "invoices"
        opened.append_all([Message(b"%d" % number * 50, keys=keys)], topic=topic)
        opened.settle(number + 1)
    opened.store.close()
    return tmp_path


def check(root: Path) -> tools.StoreReport:
    return tools.verify(OsFiles(root), FakeClock())


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_good_store_has_no_problems_and_is_not_changed(root: Path) -> None:
    before = contents(root)
    report = check(root)
    assert (report.problems, report.records, report.keys) == ([], 40, 40)
    assert report.topics == {"invoices": {0: (0, 10)}, "orders": {0: (0, 30)}}
    assert {**before, "lock": b""} == {**contents(root), "lock": b""}


def change(path: Path, offset: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


def index_file(root: Path) -> Path:
    return next((root / "index").iterdir())


@pytest.mark.parametrize(
    ("path", "offset", "repairable"),
    [
        (f"commitlog/{0:020d}", 300, False),
        (f"commitlog/{4096:020d}", 30, False),
        (f"consumequeue/orders/0/{0:020d}", 45, True),
        (f"consumequeue/orders/0/{320:020d}", 3, True),
        ("index", 40 + 4 * 64 + 27, True),
        ("index", 40 + 4 * (java_hash("orders#k1") % 64) + 3, True),
    ],
)
def test_damage_is_reported_and_repaired_where_possible(
    root: Path, path: str, offset: int, repairable: bool
) -> None:
    file = index_file(root) if path == "index" else root / path
    damaged = bytes((file.read_bytes()[offset] ^ 0x21,))
    change(file, offset, damaged)
    report = check(root)
    assert report.problem_count > 0
    assert report.problems[0].file in {path, "index"}
    wrong = file.read_bytes()
    before, copies, after = tools.repair(OsFiles(root), FakeClock())
    assert before.problem_count == report.problem_count
    assert (after.problem_count == 0) == repairable
    if repairable:
        assert [(root / copy).read_bytes() for copy in copies] == [wrong]
    else:
        assert file.read_bytes() == wrong
    opened = open_store(OsFiles(root))
    bodies = opened.bodies("orders") + opened.bodies("invoices")
    assert len(bodies) == 40
    assert bodies.count(b"GAP") == (0 if repairable else 1)
    opened.store.close()


def test_an_open_store_is_refused(root: Path) -> None:
    opened = open_store(OsFiles(root))
    with pytest.raises(StoreLocked):
        check(root)
    opened.store.close()
    with pytest.raises(StoreUnusable, match="no store"):
        check(root / "index")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = cli.main(["store", *arguments])
    return status, capsys.readouterr().out


def test_the_commands_print_lines_and_json(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path.parent / f"{tmp_path.name}-home"
    home.mkdir()
    root.rename(home / "store")
    place = ("--data-dir", str(home))
    assert "40 records" in run(capsys, "verify", *place)[1]
    status, text = run(capsys, "stats", "--json", *place)
    assert (status, json.loads(text)["topics"]["orders"]) == (0, {"0": [0, 30]})
    status, text = run(capsys, "dump", "--json", "--count", "3", *place)
    rows = [json.loads(line) for line in text.splitlines()]
    assert [(row["topic"], row["queue_offset"]) for row in rows] == [
        ("invoices", 0),
        ("orders", 0),
        ("orders", 1),
    ]
    assert rows[1]["properties"]["KEYS"] == "k1 every"
    start = str(rows[2]["physical_offset"])
    assert run(capsys, "dump", "--from", start, "--count", "1", *place)[1].split()[0] == start
    change(home / "store" / "commitlog" / f"{0:020d}", 300, b"!")
    status, text = run(capsys, "verify", *place)
    assert (status, "PROBLEM    commitlog/" in text) == (1, True)
    assert run(capsys, "repair", *place)[0] == 1
    assert run(capsys, "repair", "--json", *place)[0] == 1
    assert run(capsys, "stats", "--data-dir", str(home / "nothing"))[0] == 2


def rocketmq_directory(tmp_path: Path, files: dict[str, bytes]) -> Path:
    source = tmp_path / "rocketmq"
    for name, data in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return source


CONFIG = {
    "config/topics.json": b'{"dataVersion":{"counter":{"value":1}},"topicConfigTable":{"TopicA":'
    b'{"order":false,"perm":6,"readQueueNums":4,"topicName":"TopicA","writeQueueNums":4},'
    b'"gone":{"readQueueNums":8}}}',
    "config/consumerOffset.json.bak": b'{"offsetTable":{"TopicA@billing":{0:3,1:1},'
    b'"%RETRY%billing@billing":{0:7},"unknown@billing":{0:1}}}',
}


@pytest.mark.parametrize("abort", [False, True])
def test_a_rocketmq_store_is_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], abort: bool
) -> None:
    files = {**rocketmq_store.store6(), **CONFIG, **({"abort": b""} if abort else {})}
    source = rocketmq_directory(tmp_path, files)
    home = tmp_path / "home"
    status, text = run(capsys, "import", str(source), "--data-dir", str(home), "--json")
    shown = json.loads(text)
    assert status == 0, shown["problems"]
    assert shown["imported_topics"] == ["TopicA", "TopicB"]
    assert shown["committed_offsets"] == 2
    opened = open_store(OsFiles(home / "store"))
    for sent in STORE6:
        read = opened.store.read(
            sent.topic, sent.queue_id, sent.queue_offset, max_messages=1, max_bytes=1
        )
        message = opened.store.decode(read.records[0])
        assert (message.body, message.tag, message.message_id) == (
            sent.body,
            sent.tag,
            sent.unique_key,
        )
        assert (message.queue_offset, message.store_time_ms) == (sent.queue_offset, sent.time)
        assert message.physical_offset == sent.offset
    for key, offsets in {"k1": [0], "k3": [168], "Aa": [1024], "BB": [1484]}.items():
        found = opened.store.find_by_key("TopicA", key, wait_for_disk=True)
        assert [opened.store.decode(r).physical_offset for r in found] == offsets
    found_id = opened.store.read_message(STORE6[3].unique_key, topic="TopicB", wait_for_disk=True)
    assert found_id is not None
    assert opened.store.offset_for_time("TopicA", 0, T0 + 1001, wait_for_disk=True) == 2
    opened.clock.set_wall(T0 + 100_000)
    sent_now = opened.send(b"ours", topic="TopicA")
    assert sent_now.first_queue_offset == 4
    assert opened.bodies("TopicA")[-1] == b"ours"
    opened.store.close()
    assert check(home / "store").problems == []
    assert contents(source) == files


def test_two_hundred_messages_are_taken_over(tmp_path: Path) -> None:
    source = rocketmq_directory(tmp_path, rocketmq_store.store200())
    target = tmp_path / "target"
    target.mkdir()
    report = tools.import_log(OsFiles(source), OsFiles(target), FakeClock())
    assert report.problems == []
    opened = open_store(OsFiles(target))
    for queue_id in (0, 1):
        bodies = [m.body for m in store200_messages() if m.queue_id == queue_id]
        assert opened.bodies("TopicA", queue_id) == bodies
        assert opened.bodies("TopicA", queue_id, at_once=50) == bodies
    opened.store.close()
    with pytest.raises(StoreUnusable, match="has a store already"):
        tools.import_log(OsFiles(source), OsFiles(target), FakeClock())


def test_a_clean_stop_leaves_what_rocketmq_expects(root: Path) -> None:
    """Sizes, checkpoint, and no abort; as RocketMQ's own loading rules check them."""
    assert not (root / "abort").exists()
    assert (root / "checkpoint").stat().st_size == 4096
    times = (root / "checkpoint").read_bytes()[:24]
    assert times == FakeClock().now_ms().to_bytes(8) * 3
    assert {p.stat().st_size for p in (root / "commitlog").iterdir()} == {4096}
    assert {p.stat().st_size for p in (root / "consumequeue").rglob("0000*")} == {320}
    assert {p.stat().st_size for p in (root / "index").iterdir()} == {40 + 4 * 64 + 20 * 512}
    opened: OpenStore = open_store(OsFiles(root))
    assert (root / "abort").exists()
    opened.store.close()

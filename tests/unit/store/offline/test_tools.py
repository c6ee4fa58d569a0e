"""One flipped byte, anywhere: found, repaired where possible; and an import with settings."""

import json
from pathlib import Path

import pytest

from app import cli
from app.domain.message import Message, java_hash
from app.store import OsFiles
from app.store.offline.repair import repair
from app.store.offline.verification import Verification, verify
from tests.support.stores import rocketmq_store
from tests.support.stores.clock import FakeClock
from tests.support.stores.rocketmq_store import STORE6, T0
from tests.support.stores.stores import open_store
from tests.support.stores.turns import ManualTurns


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


def check(root: Path) -> Verification:
    return verify(OsFiles(root))


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_good_store_has_no_problems_and_is_not_changed(root: Path) -> None:
    before = contents(root)
    report = check(root)
    assert (report.problems, report.records) == ([], 40)
    assert report.bounds == {("invoices", 0): (0, 10), ("orders", 0): (0, 30)}
    assert before == contents(root)


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
    (problem, *_) = check(root).problems
    assert problem.file == file.relative_to(root).as_posix()
    wrong = file.read_bytes()
    done = repair(OsFiles(root), FakeClock(), ManualTurns(), dry_run=False)
    left = check(root).problems
    assert (not left) == repairable
    if repairable:
        (kept,) = (root / "lost+found").iterdir()
        assert (kept / problem.file).read_bytes() == wrong
        assert done.before.problems
    else:
        assert file.read_bytes() == wrong
    opened = open_store(OsFiles(root))
    bodies = opened.bodies("orders") + opened.bodies("invoices")
    assert len(bodies) == 40
    assert bodies.count(b"GAP") == (0 if repairable else 1)
    opened.store.close()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = cli.main(["store", *arguments])
    return status, capsys.readouterr().out


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


def test_an_import_goes_by_the_bounds_of_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURLEW_LIMIT_QUEUES_PER_TOPIC_MAX", "6")
    source = rocketmq_directory(tmp_path, {**rocketmq_store.store6(), **CONFIG})
    _, text = run(capsys, "import", str(source), "--data-dir", str(tmp_path / "home"), "--json")
    assert {each["name"]: each["queues"] for each in json.loads(text)["topics"]}["gone"] == 6


def test_a_limit_below_zero_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(capsys, "dump", "--limit", "-1")
    assert "--limit: invalid" in capsys.readouterr().err


@pytest.mark.parametrize("abort", [False, True])
def test_a_rocketmq_store_is_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], abort: bool
) -> None:
    files = {**rocketmq_store.store6(), **CONFIG, **({"abort": b""} if abort else {})}
    source = rocketmq_directory(tmp_path, files)
    home = tmp_path / "home"
    status, text = run(capsys, "import", str(source), "--data-dir", str(home), "--json")
    shown = json.loads(text)
    assert status == 0, shown["notes"]
    assert [topic["name"] for topic in shown["topics"]] == ["TopicA", "TopicB", "gone"]
    assert len(shown["offsets"]) == 2
    opened = open_store(OsFiles(home / "store"))
    for sent in STORE6:
        read = opened.store.read(
            sent.topic, sent.queue_id, sent.queue_offset, max_messages=1, max_bytes=1
        )
        message = opened.store.decode(read.records[0])
        assert (message.body, message.tag, message.unique_id) == (
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

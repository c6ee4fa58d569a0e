"""`curlew store …` from the command line, on real directories, damaged on purpose."""

import json
import shutil
from pathlib import Path

import httpx
import pytest

from app.cli import main
from app.domain.message import Message
from app.store import OsFiles
from tests.support.nodes.node import run_node
from tests.support.stores.rocketmq_directory import RocketDirectory, golden_directory
from tests.support.stores.rocketmq_store import STORE6, store200_messages
from tests.support.stores.stores import open_store

QUEUE = f"consumequeue/orders/0/{0:020d}"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data directory of a node that stored 30 messages and stopped."""
    (tmp_path / "data" / "store").mkdir(parents=True)
    opened = open_store(OsFiles(tmp_path / "data" / "store"))
    for number in range(30):
        opened.append_all([Message(b"body %d" % number, tag="t", keys=(f"k{number}",))])
        opened.settle(number + 1)
    opened.store.close()
    return tmp_path / "data"


class Command:
    """Runs `curlew store`, and keeps what it printed."""

    def __init__(self, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._data_dir = data_dir
        self._capsys = capsys
        self.errors = ""

    def __call__(self, action: str, *flags: str, expect: int = 0) -> str:
        self._capsys.readouterr()
        status = main(["store", action, "--data-dir", str(self._data_dir), *flags])
        out, self.errors = self._capsys.readouterr()
        assert status == expect, out + self.errors
        return out


@pytest.fixture
def command(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(data_dir, capsys)


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_dump(command: Command, data_dir: Path) -> None:
    lines = command("dump").splitlines()
    assert len(lines) == 30
    assert lines[3].split()[1] == "orders/0@3"
    assert "tag=t keys=k3 6 B 'body 3'" in lines[3]
    second = lines[1].split()[0]
    assert command("dump", "--from", second, "--limit", "2").splitlines() == lines[1:3]
    assert command("dump", "--from", "1", "--to", second) == ""
    assert command("dump", "--to", second).splitlines() == lines[:1]
    assert command("dump", "--topic", "other") == ""
    assert command("dump", "--topic", "orders", "--queue", "1") == ""
    shown = json.loads(command("dump", "--json", "--bodies", "--limit", "1"))
    assert (shown["queue_offset"], shown["body_bytes"], shown["body"]) == (0, 6, "Ym9keSAw")
    patch(data_dir / "store" / "commitlog" / f"{0:020d}", int(second) + 90, b"\xff")
    lines = command("dump", expect=1).splitlines()
    assert len(lines) == 30
    assert lines[1].startswith(f"{second} DAMAGED up to ")


def test_verify_and_repair(command: Command, data_dir: Path) -> None:
    assert command("verify").splitlines()[-1] == "no damage found"
    patch(data_dir / "store" / QUEUE, 40, bytes(20))
    assert f"{QUEUE} byte 40: zeros (orders/0 offset 2)" in command("verify", expect=1)
    found = json.loads(command("verify", "--json", expect=1))
    assert found["clean"] is False
    assert found["problems"][0]["queue_offset"] == 2
    assert "would: make the queue orders/0 again" in command("repair", "--dry-run", expect=1)
    command("verify", expect=1)
    assert "did: make the queue orders/0 again" in command("repair")
    command("verify")
    shutil.rmtree(data_dir / "store" / "consumequeue")
    done = json.loads(command("repair", "--json"))
    assert done["after"]["clean"] is True
    assert "no damage found" in command("repair")
    patch(data_dir / "store" / "commitlog" / f"{0:020d}", 92, b"\xff")
    out = command("verify", expect=1)
    assert "byte 0: unreadable record: checksum (orders/0 offset 0)" in out
    assert "nothing that could be repaired" in command("repair", expect=1)


def test_stats(command: Command) -> None:
    out = command("stats")
    assert "30 records" in out
    assert "1 topics, 1 queues" in out
    figures = json.loads(command("stats", "--json"))
    assert (figures["records"], figures["clean"], figures["topics"]) == (30, True, 1)
    assert figures["sizes"][0] == {"below": 256, "records": 30}
    assert figures["queues"][0]["max_offset"] == 30
    assert figures["oldest_ms"] <= figures["newest_ms"]


def test_what_cannot_run_says_why(command: Command, data_dir: Path, tmp_path: Path) -> None:
    store = open_store(OsFiles(data_dir / "store"))
    for action in ("dump", "verify", "repair"):
        command(action, expect=2)
        assert "is in use by another node" in command.errors
    assert "30 records" in command("stats")
    command("import", str(golden_directory(tmp_path / "rocket", "store6")), expect=2)
    assert "there is a store in the data directory" in command.errors
    store.store.close()
    shutil.rmtree(data_dir / "store")
    command("verify", expect=2)
    assert "there is no store in" in command.errors
    command("import", str(tmp_path), expect=2)
    assert "no segments in commitlog" in command.errors


@pytest.mark.parametrize("name", ["store6", "store200"])
def test_an_imported_store_is_read_over_http(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    source = golden_directory(tmp_path / "rocket", name)
    messages = {"store6": STORE6, "store200": store200_messages()}[name]
    command = Command(tmp_path / "data", capsys)
    out = command("import", str(source))
    assert "topic    TopicA: 2 queues" in out
    with run_node(tmp_path / "data") as node, httpx.Client(base_url=node.url, timeout=60) as client:
        for sent in messages:
            place = f"/v1/topics/{sent.topic}/queues/{sent.queue_id}/messages"
            answer = client.get(place, params={"offset": sent.queue_offset, "max_messages": 1})
            assert answer.status_code == 200, answer.text
            (message,) = answer.json()["messages"]
            assert (message["unique_id"], message["queue_offset"]) == (
                sent.unique_key,
                sent.queue_offset,
            )
            assert message.get("tag") == sent.tag
            assert message.get("keys", []) == (sent.keys or "").split()
            assert message["text"] == sent.body.decode()
    command("verify")


def test_imported_offsets_are_the_groups_offsets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = RocketDirectory()
    for number in range(6):
        made.add("orders", 0, b"n%d" % number)
    made.settings("consumerOffset.json", {"offsetTable": {"orders@billing": {0: 4}}})
    source = made.write(tmp_path / "rocket")
    command = Command(tmp_path / "data", capsys)
    shown = json.loads(command("import", str(source), "--json"))
    assert shown["offsets"] == [{"group": "billing", "topic": "orders", "queue_id": 0, "offset": 4}]
    with run_node(tmp_path / "data") as node, httpx.Client(base_url=node.url, timeout=60) as client:
        answer = client.post(
            "/v1/topics/orders/groups/billing/messages:receive",
            params={"wait": 5, "max_messages": 10},
        )
        received = [message["text"] for message in answer.json()["messages"]]
    assert received == ["n4", "n5"]


def test_imported_offsets_replace_those_of_an_earlier_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The database stays when its store is given up; what was done there says nothing here."""
    command = Command(tmp_path / "data", capsys)
    for offset, others in (4, {"orders@audit": {0: 6}}), (2, {}):
        made = RocketDirectory()
        for number in range(6):
            made.add("orders", 0, b"n%d" % number)
        table = {"orders@billing": {0: offset}, **others}
        made.settings("consumerOffset.json", {"offsetTable": table})
        shutil.rmtree(tmp_path / "data" / "store", ignore_errors=True)
        command("import", str(made.write(tmp_path / f"rocket{offset}")))
    with run_node(tmp_path / "data") as node, httpx.Client(base_url=node.url, timeout=60) as client:
        received = {
            group: [
                message["text"]
                for message in client.post(
                    f"/v1/topics/orders/groups/{group}/messages:receive",
                    params={"wait": 5, "max_messages": 10},
                ).json()["messages"]
            ]
            for group in ("billing", "audit")
        }
    assert received["billing"] == ["n2", "n3", "n4", "n5"]
    assert received["audit"] == [f"n{number}" for number in range(6)]

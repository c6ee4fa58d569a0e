"""A node as its operator meets it: start, stop, start again, kill, and every refusal to start."""

import json
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.nodes.node import ROOT, NodeRefused, run_node, start_node
from tests.support.nodes.waiting import wait_until

TIMEOUT = 60
VERIFY = False
"""There is no TLS here, and reading the certificates takes a client 40 ms of processor time."""
NODE = (sys.executable, "-m", "app.cli", "dev")


def send(url: str, body: bytes, topic: str = "orders") -> dict[str, object]:
    answer = httpx.post(
        f"{url}/v1/topics/{topic}/messages", content=body, timeout=TIMEOUT, verify=VERIFY
    )
    assert answer.status_code == 201, answer.text
    document = answer.json()
    assert isinstance(document, dict)
    return document


def read_all(url: str, topic: str = "orders") -> set[bytes]:
    """Every readable body of a topic, by pulling each queue."""
    bodies: set[bytes] = set()
    with httpx.Client(base_url=f"{url}/v1/topics/{topic}", timeout=TIMEOUT) as client:
        for queue in client.get("/stats").json()["queues"]:
            offset = queue["min_offset"]
            while offset < queue["max_offset"]:
                path = f"/queues/{queue['queue_id']}/messages"
                page = client.get(path, params={"offset": offset, "max_messages": 1000}).json()
                bodies.update(message["text"].encode() for message in page["messages"])
                offset = page["next_offset"]
    return bodies


def test_a_stopped_node_starts_again_with_all_its_data(tmp_path: Path) -> None:
    sent = {b"message %d" % index for index in range(50)}
    with run_node(tmp_path / "data") as node:
        for body in sent:
            send(node.url, body)
        assert node.stop() == 0
    with run_node(tmp_path / "data") as node:
        assert read_all(node.url) == sent
        assert send(node.url, b"more")["queue_offset"] == 13


def test_a_stop_answers_long_polls_and_leaves_a_clean_store(tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node:
        send(node.url, b"x")
        poll = f"{node.url}/v1/topics/orders/groups/g/messages:receive"
        first = httpx.post(poll, timeout=TIMEOUT).json()
        assert len(first["messages"]) == 1
        waiting = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import httpx; print(httpx.post('{poll}?wait=60', timeout=60).status_code)",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: "\ncurlew_waiting_requests 1\n" in metrics_of(node.url))
        assert node.stop() == 0
        output, _ = waiting.communicate(timeout=TIMEOUT)
        assert output.strip() == "200"
    checkpoint = (tmp_path / "data" / "store" / "checkpoint.curlew").read_bytes()
    assert json.loads(checkpoint[16:])["clean"] is True


def metrics_of(url: str) -> str:
    return httpx.get(f"{url}/metrics", timeout=TIMEOUT, verify=VERIFY).text


@pytest.mark.crash
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_killed_node_loses_nothing_acknowledged(tmp_path: Path, flush: str) -> None:
    acknowledged: set[bytes] = set()
    for life in range(3):
        node = start_node(tmp_path / "data", "--flush", flush)
        if life:
            assert acknowledged <= read_all(node.url)
        for index in range(40):
            body = b"life %d message %d" % (life, index)
            send(node.url, body)
            acknowledged.add(body)
        node.kill()
        assert node.process.stdout is not None
        node.process.stdout.close()
    with run_node(tmp_path / "data") as node:
        assert read_all(node.url) == acknowledged


class TestRefusals:
    """Each is one clear sentence on stderr and exit status 2; nothing is lost by it."""

    def refused(self, data_dir: Path, *flags: str, command: str = "dev") -> str:
        with pytest.raises(NodeRefused) as caught, run_node(data_dir, *flags, command=command):
            pass
        lines = [line for line in str(caught.value).splitlines() if line.startswith("curlew: ")]
        assert len(lines) == 1, str(caught.value)
        assert "Traceback" not in str(caught.value)
        return lines[0]

    def test_a_second_node_on_the_same_directory(self, tmp_path: Path) -> None:
        with run_node(tmp_path / "data") as node:
            sentence = self.refused(tmp_path / "data")
            assert f"in use by another node (process {node.process.pid})" in sentence
            send(node.url, b"the first goes on")

    def test_another_store_on_the_same_metadata(self, tmp_path: Path) -> None:
        url = ("--database-url", f"sqlite:///{tmp_path}/shared.db")
        with run_node(tmp_path / "first", *url) as node:
            send(node.url, b"the first goes on")
            sentence = self.refused(tmp_path / "second", *url)
            assert "belongs to the store" in sentence
            assert "PostgreSQL" in sentence
            assert "curlew release-store" in sentence
            send(node.url, b"and on")
        with run_node(tmp_path / "first", *url):
            pass  # the same store, at another port
        released = subprocess.run(
            [sys.executable, "-m", "app.cli", "release-store", *url],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=True,
        )
        assert "belongs to store" in released.stdout
        with run_node(tmp_path / "second", *url) as node:
            assert read_all(node.url) == set()
        assert "belongs to the store" in self.refused(tmp_path / "first", *url)

    def test_a_port_in_use(self, tmp_path: Path) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = str(other.getsockname()[1])
            sentence = self.refused(tmp_path / "data", "--port", port)
        assert port in sentence
        assert "choose another port with --port" in sentence

    @pytest.mark.parametrize(
        ("directory", "sentence"),
        [
            ("file/data", "Not a directory; name another with --data-dir"),
            # Not even root may write there.
            ("/sys/kernel", "this user must be able to write there"),
        ],
    )
    def test_a_data_directory_that_cannot_be_used(
        self, tmp_path: Path, directory: str, sentence: str
    ) -> None:
        (tmp_path / "file").write_text("not a directory")
        done = subprocess.run(
            [*NODE, "--port", "0", "--data-dir", str(tmp_path / directory)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_damaged_database(self, tmp_path: Path) -> None:
        with run_node(tmp_path / "data") as node:
            send(node.url, b"x")
        database = tmp_path / "data" / "metadata.db"
        good = database.read_bytes()
        database.write_bytes(b"this is no database" + good[19:])
        sentence = self.refused(tmp_path / "data")
        assert "metadata.db" in sentence
        database.write_bytes(good)
        with run_node(tmp_path / "data") as node:
            assert read_all(node.url) == {b"x"}

    def test_a_damaged_meta_file(self, tmp_path: Path) -> None:
        with run_node(tmp_path / "data"):
            pass
        for name in ("meta", "meta.copy"):
            (tmp_path / "data" / "store" / name).write_bytes(b"damaged")
        assert "restore it from a backup" in self.refused(tmp_path / "data")

    def test_a_postgresql_that_is_down(self, tmp_path: Path) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            file = tmp_path / "database-url"
            file.write_text(f"postgresql://curlew:secret@127.0.0.1:{port}/curlew")
            file.chmod(0o600)
            sentence = self.refused(tmp_path / "data", "--database-url-file", str(file))
        assert f"127.0.0.1:{port}" in sentence
        assert "secret" not in sentence

    def test_a_database_that_was_not_migrated(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        sqlite3.connect(tmp_path / "data" / "metadata.db").close()
        assert "curlew migrate" in self.refused(tmp_path / "data", command="serve")

    def test_every_problem_of_the_configuration_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "curlew.toml"
        file.write_text('prot = 1\nflush = "sometimes"\n')
        with pytest.raises(NodeRefused) as caught:
            start_node(tmp_path / "data", "--config", str(file), "--segment-mib", "1")
        text = str(caught.value)
        assert "did you mean 'port'?" in text
        assert "use one of sync, async" in text
        assert "use a whole number from 5" in text

    def test_other_machines_need_keys_and_a_certificate(self, tmp_path: Path) -> None:
        with pytest.raises(NodeRefused) as caught, run_node(tmp_path / "data", "--host", "0.0.0.0"):
            pass
        told = str(caught.value)
        assert "can be reached by other machines" in told
        for line in ("curlew init", "--tls-cert-file", "--insecure-anonymous"):
            assert line in told

"""What the commands say and leave behind: versions, migrations, the line of `serve`, file modes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.nodes.node import ROOT, SEGMENT_MIB, run_node


def curlew(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(environment or {})},
    )


def wide_files(directory: Path) -> list[str]:
    """What others than the owner may touch below `directory`."""
    return [
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.lstat().st_mode & 0o077
    ]


@pytest.fixture(autouse=True)
def usual_umask() -> object:
    """That of a shell: what the tests inherit may be private already."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_the_version_is_told() -> None:
    done = curlew("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"curlew \d+\.\d+\.\d+\n", done.stdout)


def test_what_starts_no_node_imports_none(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "app.cli", "init", "--data-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stderr
    assert "| app.cluster" in " ".join(told.split())
    assert not re.search(
        r"\| +(app\.(api|web|broker|node|main)|fastapi|uvicorn)$", told, re.MULTILINE
    )


def test_every_setting_is_told() -> None:
    done = curlew("settings")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (ROOT / "docs/running/settings.md").read_text()


def test_a_migration_says_what_it_did(tmp_path: Path) -> None:
    database = f"SQLite file {tmp_path}/data/metadata.db"
    done = curlew("migrate", "--data-dir", str(tmp_path / "data"))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        rf"{re.escape(database)} was brought from schema none to \d{{4}}\n", done.stdout
    )
    again = curlew("migrate", "--data-dir", str(tmp_path / "data"))
    assert re.fullmatch(rf"{re.escape(database)} is up to date \(schema \d{{4}}\)\n", again.stdout)


def test_a_node_without_metadata_makes_no_store(tmp_path: Path) -> None:
    done = curlew("serve", "--data-dir", str(tmp_path / "data"), "--port", "0")
    assert done.returncode == 2
    assert "metadata.db does not exist (run `curlew migrate`" in done.stderr
    assert not (tmp_path / "data").exists()


def test_serve_says_in_one_line_that_it_is_up(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "app.cli", "serve", "--data-dir", str(data), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--migrate", "--segment-mib", SEGMENT_MIB],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        found = re.fullmatch(
            r"curlew \d+\.\d+\.\d+ is up at (http://127\.0\.0\.1:\d+), "
            rf"store ([0-9a-f]{{8}}) in {data}/store, "
            rf"metadata in SQLite file {data}/metadata\.db, "
            r"open: who reaches it, also through a proxy or a tunnel, may do everything\n",
            line,
        )
        assert found is not None, line
        assert httpx.get(f"{found[1]}/readyz", timeout=60).json()["status"] == "ready"
        (node,) = httpx.get(f"{found[1]}/v1/nodes", timeout=60).json()["nodes"]
        assert node["node_id"] == found[2]
        assert node["address"] == found[1].removeprefix("http://")
        (shard,) = httpx.get(f"{found[1]}/v1/cluster", timeout=60).json()["shards"]
        assert shard["leader_url"] == found[1]
        process.terminate()
        assert process.wait(60) == 0
        assert process.stdout.read() == ""
        assert "was brought from schema none to" in process.stderr.read()
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()
        process.stderr.close()


def test_nothing_is_said_before_the_banner_of_dev(tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node:
        assert node.banner[:2] == [
            "\n",
            "Curlew is running. Ctrl-C stops it; nothing that was acknowledged is lost.\n",
        ]
        assert "memory" not in "".join(node.banner)
        assert "  access    open: who reaches it" in "".join(node.banner)
        assert "Authorization" not in "".join(node.banner)


def test_a_closed_node_says_that_it_asks_for_keys(tmp_path: Path) -> None:
    with run_node(tmp_path / "data", "--auth", "required") as node:
        assert "  access    asks for API keys\n" in node.banner
        examples = [line for line in node.banner if line.startswith("  curl ")]
        assert len(examples) == 3
        assert all(" -H 'Authorization: Bearer <key>'" in each for each in examples)


def test_all_that_a_node_makes_is_its_owners(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert curlew("migrate", "--data-dir", str(data)).returncode == 0
    assert data.stat().st_mode & 0o777 == 0o700
    with run_node(data, "--log-level", "debug") as node:
        httpx.post(f"{node.url}/v1/topics/orders/messages", content=b"secret", timeout=60)
        assert (data / "metadata.db-wal").exists()
        assert wide_files(data) == []
        assert node.stop() == 0
    assert wide_files(data) == []


def test_what_an_earlier_version_left_open_is_narrowed(tmp_path: Path) -> None:
    """The operator's own directory stays as it is."""
    data = tmp_path / "data"
    with run_node(data) as node:
        httpx.post(f"{node.url}/v1/topics/orders/messages", content=b"secret", timeout=60)
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with run_node(data) as node:
        assert wide_files(data) == []
        assert data.stat().st_mode & 0o777 == 0o755
        assert "could be read or written by other users" in node.log.read_text()


def test_a_proxy_is_believed_only_when_it_is_named(tmp_path: Path) -> None:
    forwarded = {"X-Forwarded-For": "203.0.113.7"}
    for flags, client in (((), "127.0.0.1"), (("--trusted-proxies", "127.0.0.1"), "203.0.113.7")):
        data = tmp_path / client
        environment = {"FORWARDED_ALLOW_IPS": "*"}
        with run_node(data, "--access-log", *flags, environment=environment) as node:
            httpx.get(f"{node.url}/v1/topics", headers=forwarded, timeout=60)
            assert node.stop() == 0
        (line,) = [each for each in node.log.read_text().splitlines() if '"/v1/topics"' in each]
        assert json.loads(line[line.index("{") :])["client"] == client


def test_commands_that_serve_nobody_run_where_a_node_listens_for_all(tmp_path: Path) -> None:
    """In the image, whose address is 0.0.0.0, so that `serve` is refused and names `init`."""
    image = {"CURLEW_HOST": "0.0.0.0", "CURLEW_CLUSTER_LISTEN": "0.0.0.0:1"}
    image |= {"CURLEW_CLUSTER_SECRET_FILE": "s", "CURLEW_DATA_DIR": str(tmp_path / "data")}
    refused = curlew("serve", "--migrate", environment=image)
    assert refused.returncode == 2
    assert "curlew init" in refused.stderr
    assert "cluster_listen" in refused.stderr
    for words in (["init"], ["key", "list"], ["migrate"]):
        done = curlew(*words, environment=image)
        assert (done.returncode, done.stderr) == (0, ""), words
    none = curlew("store", "verify", environment=image)
    assert none.stderr.startswith("curlew: there is no store in ")

"""A node that asks for keys, from the first minute: commands, starts and what is refused."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.integration.test_commands import curlew
from tests.support.nodes.node import NodeRefused, RunningNode, run_node, start_node
from tests.support.nodes.waiting import wait_until


def made(data_dir: Path, *arguments: str) -> str:
    """The key that a command prints."""
    done = curlew(*arguments, "--data-dir", str(data_dir))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.partition("\n")[0]


def status(node: RunningNode, key: str | None = None, path: str = "/v1/topics") -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.get(node.url + path, headers=headers).status_code


def refused(data_dir: Path, *flags: str) -> str:
    with pytest.raises(NodeRefused) as caught:
        start_node(data_dir, *flags)
    return str(caught.value)


def test_a_running_node_closes_when_the_first_key_is_made(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with run_node(data_dir) as node:
        assert status(node) == 200
        key = made(data_dir, "init")
        wait_until(lambda: status(node) == 401, within_s=10)
        assert status(node, key) == 200
        assert [status(node, path=path) for path in ("/healthz", "/readyz")] == [200, 200]
        assert [status(node, path=path) for path in ("/docs", "/metrics", "/ui")] == [401, 401, 307]
        assert [status(node, path=path) for path in ("/ui/", "/ui/sign-in")] == [303, 200]
        sent = subprocess.run(
            ["curl", "-s", "-u", f":{key}", f"{node.url}/v1/topics/orders/messages", "-d", "x"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert "message_id" in sent.stdout
        again = made(data_dir, "key", "rotate", "admin")
        wait_until(lambda: status(node, again) == 200, within_s=10)
        made(data_dir, "key", "revoke", "admin", "--key", key.split("_")[1])
        wait_until(lambda: status(node, key) == 401, within_s=10)
        assert status(node, again) == 200


def test_a_key_file_is_its_owners_alone_and_is_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "key"
    first = ("init", "--data-dir", str(tmp_path / "data"), "--key-file", str(file))
    done = curlew(*first)
    assert (done.returncode, done.stderr) == (0, "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().startswith("curlew_")
    assert file.read_text().strip() not in done.stdout
    again = curlew(*first)
    assert again.returncode == 2
    assert "cannot be made" in again.stderr
    (tmp_path / "key2").touch()
    second = curlew("init", "--data-dir", str(tmp_path / "data"), "--key-file", f"{file}3")
    assert second.returncode == 2
    assert "already" in second.stderr
    assert not Path(f"{file}3").exists()


def test_of_several_inits_at_once_one_makes_the_administrator(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: curlew("init", "--data-dir", str(data_dir)), range(4)))
    (first,) = [each for each in done if each.returncode == 0]
    others = [each for each in done if each.returncode != 0]
    assert [(each.returncode, each.stdout) for each in others] == [(2, "")] * 3
    assert all("there is an administrator already" in each.stderr for each in others)
    with run_node(data_dir) as node:
        assert status(node, first.stdout.partition("\n")[0]) == 200


def test_a_lost_database_opens_no_node(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    made(data_dir, "init")
    for file in data_dir.glob("metadata.db*"):
        file.unlink()
    with run_node(data_dir) as node:
        assert status(node) == 401
        assert "curlew init" in node.log.read_text()
        key = made(data_dir, "init")
        wait_until(lambda: status(node, key) == 200, within_s=10)


def test_a_lost_marker_opens_no_node_and_the_command_does(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    key = made(data_dir, "init")
    (data_dir / "closed").unlink()
    with run_node(data_dir) as node:
        assert (status(node), status(node, key)) == (401, 200)
        assert (data_dir / "closed").exists()
        made(data_dir, "security", "open")
        wait_until(lambda: status(node, key) == 401, within_s=10)
    assert not (data_dir / "closed").exists()
    with run_node(data_dir) as node:
        assert status(node) == 200


def test_a_first_key_that_is_no_administrators_is_refused_with_the_command(tmp_path: Path) -> None:
    done = curlew("migrate", "--data-dir", str(tmp_path))
    assert done.returncode == 0
    done = curlew("key", "create", "shop", "--role", "producer", "--data-dir", str(tmp_path))
    assert done.returncode != 0
    assert "there is no administrator yet" in done.stderr
    assert "`curlew init`" in done.stderr


def test_a_refused_start_names_the_database_and_the_secret_key(tmp_path: Path) -> None:
    url, secret = tmp_path / "url", tmp_path / "secret"
    for file, text in ((url, f"sqlite:///{tmp_path / 'other.db'}"), (secret, "s" * 32)):
        file.write_text(text)
        file.chmod(0o600)
    flags = ("--database-url-file", str(url), "--secret-key-file", str(secret))
    data_dir = tmp_path / "data"
    said = refused(data_dir, "--host", "0.0.0.0", *flags)
    assert f"  curlew init --data-dir {data_dir} {' '.join(flags)}\n" in said
    assert f"  curlew serve --data-dir {data_dir} {' '.join(flags)} --host" in said


def test_a_key_that_may_not_be_meant_so_is_made_with_a_warning(tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path / "data"))
    made(tmp_path / "data", "init")
    create = ("key", "create", "--role", "producer", *place)
    done = curlew(*create, "beta", "--topic", "team-b-*", "--namespace", "eu")
    key, _, rest = done.stdout.partition("\n")
    assert key.startswith("curlew_")
    assert "\nWarning: there is no namespace 'eu'\n" in rest
    assert "\nWarning: topic:team-b-* matches nothing that there is now\n" in rest
    done = curlew(*create, "shop", "--topic", "team-*", "--namespace", "eu")
    assert "\nWarning: topic:team-* also begins topic:team-b-* of principal:beta\n" in done.stdout
    file = tmp_path / "key"
    done = curlew(*create, "ops", "--topic", "none", "--key-file", str(file))
    assert "\nWarning: topic:none matches nothing that there is now\n" in done.stdout
    assert file.read_text().startswith("curlew_")
    assert "Warning" not in curlew(*create, "any").stdout


def test_keys_may_be_required_before_there_is_one(tmp_path: Path) -> None:
    with run_node(tmp_path / "data", "--auth", "required") as node:
        assert status(node) == 401


def test_other_machines_are_served_with_keys_only(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    said = refused(data_dir, "--host", "0.0.0.0")
    assert "--plaintext" in said
    assert f"  curlew init --data-dir {data_dir}\n  curlew serve" in said
    before = refused(data_dir, "--host", "0.0.0.0", "--plaintext")
    assert "curlew init" in before
    made(data_dir, "init")
    said = refused(data_dir, "--host", "0.0.0.0").removeprefix(before)  # one log has both
    assert f"  curlew serve --data-dir {data_dir} --host 0.0.0.0 --tls-cert-file" in said
    assert "curlew init" not in said, "there is a key"
    assert "curlew security open" in refused(data_dir, "--host", "0.0.0.0", "--insecure-anonymous")
    with run_node(data_dir, "--host", "0.0.0.0", "--plaintext") as node:
        assert status(node) == 401


def test_a_start_with_an_old_copy_of_the_database_is_refused_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    admin = made(data_dir, "init")
    gone = made(data_dir, "key", "create", "ci", "--role", "admin")
    copy = (data_dir / "metadata.db").read_bytes()
    made(data_dir, "key", "revoke", "ci")
    with run_node(data_dir) as node:
        assert (status(node, admin), status(node, gone)) == (200, 401)
    for file in data_dir.glob("metadata.db*"):
        file.unlink()
    (data_dir / "metadata.db").write_bytes(copy)
    said = refused(data_dir)
    assert "POLICY_REGRESSED" in said
    assert "curlew security accept" in said
    made(data_dir, "security", "accept")
    with run_node(data_dir) as node:
        assert (status(node, admin), status(node, gone)) == (200, 200), "it was accepted"

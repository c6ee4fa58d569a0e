"""Secrets in files: what a start does with them, and what it says when they do not fit."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from app.cluster.metadata.nodes.shared_secrets import OtherSecretKey
from app.commands import secret_commands
from app.config import Config, ConfigError
from app.domain.positions import TimestampMs
from app.node import Node
from app.runtime.secure.secret_key import SecretKey
from tests.integration.test_keys import status
from tests.support.metadata.migrated_file import migrate_by_copy
from tests.support.nodes.node import run_node

pytestmark = pytest.mark.anyio

SECRET = "0123456789abcdef" * 4


def private(path: Path, content: str) -> Path:
    path.write_text(content)
    path.chmod(0o600)
    return path


def prepared(data_dir: Path, **settings: Any) -> Config:
    data_dir.mkdir(exist_ok=True)
    config = Config(data_dir=data_dir, port=0, segment_mib=5, **settings)
    migrate_by_copy(config.database)
    return config


async def start(data_dir: Path, **settings: Any) -> Config:
    """Start a node and stop it; the configuration that it had."""
    config = prepared(data_dir, **settings)
    node = await Node.open(config)
    await node.close()
    return config


async def accepted(config: Config) -> str:
    """What `curlew secret-key accept` says."""
    options = argparse.Namespace(command="secret-key")
    said, is_well = await secret_commands.run(options, config)
    assert is_well
    return said


async def test_another_secret_key_does_not_start_and_a_lost_one_says_how_to_go_on(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    first = private(tmp_path / "first", SECRET)
    second = private(tmp_path / "second", SECRET[::-1])
    await start(data_dir)
    await start(data_dir, secret_key_file=first)
    await start(data_dir, secret_key_file=first)
    with pytest.raises(OtherSecretKey, match="the cluster has the key") as other:
        await start(data_dir, secret_key_file=second)
    assert SECRET[::-1] not in f"{other.value} {other.value.hint}"
    with pytest.raises(OtherSecretKey, match="this node has no secret_key_file") as lost:
        await start(data_dir)
    hint = str(lost.value.hint)
    assert "entries of the audit up to now count as unsigned" in hint, "what is lost"
    assert "curlew secret-key accept" in hint, "how to go on"
    said = await accepted(Config(data_dir=data_dir, secret_key_file=second))
    key = SecretKey.of(second)
    assert key is not None
    assert key.fingerprint in said
    await start(data_dir, secret_key_file=second)
    assert "no secret key any more" in await accepted(Config(data_dir=data_dir))
    await start(data_dir)


async def keys_of(data_dir: Path, **settings: Any) -> set[str]:
    """The principals whose keys a node knows that has started."""
    node = await Node.open(prepared(data_dir, **settings))
    try:
        assert node.metadata.principals.keyring.is_closed
        key = settings["admin_key_file"].read_bytes().strip()
        found = node.metadata.principals.keyring.find(key, lambda: TimestampMs(0))
        assert found is not None, "the key in the file is the administrator's"
        return {each.principal for each in node.metadata.principals.keyring.keys.values()}
    finally:
        await node.close()


async def test_a_start_makes_the_first_administrator_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "admin.key"
    with caplog.at_level("DEBUG"):
        for _ in range(2):
            assert await keys_of(tmp_path / "data", admin_key_file=file) == {"admin"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().strip() not in caplog.text
    brought = await keys_of(tmp_path / "other", admin_key_file=file)
    assert brought == {"admin"}, "with the key that an orchestrator brings"
    private(file, "no key")
    with pytest.raises(ConfigError, match="holds no API key"):
        await start(tmp_path / "third", admin_key_file=file)


async def test_a_key_that_cannot_be_written_says_how_to_get_another(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="curlew key create NAME"):
        await start(tmp_path / "data", admin_key_file=tmp_path / "nowhere" / "key")


def test_other_machines_are_served_once_a_start_has_made_the_key(tmp_path: Path) -> None:
    file, database = tmp_path / "admin.key", tmp_path / "elsewhere.db"
    url = private(tmp_path / "url", f"sqlite:///{database}\n")
    flags = ("--host", "0.0.0.0", "--plaintext", "--admin-key-file", str(file))
    with run_node(tmp_path / "data", *flags, "--database-url-file", str(url)) as node:
        key = file.read_text().strip()
        assert (status(node), status(node, key)) == (401, 200)
        assert key not in node.log.read_text()
        assert database.exists()

"""The node's id in its data directory."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from app.store.replica.node_id import NodeId, NodeIdUnreadable, node_id_of, settle


def test_it_is_made_once_and_private(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    made = node_id_of(directory)
    assert len(bytes.fromhex(made.value)) == 8
    assert not made.is_copy
    assert node_id_of(directory) == made
    (kept,) = directory.iterdir()
    assert kept.name == "node-id"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_two_directories_have_two(tmp_path: Path) -> None:
    assert node_id_of(tmp_path / "one") != node_id_of(tmp_path / "other")


def test_a_directory_that_is_moved_is_the_same_node(tmp_path: Path) -> None:
    made = node_id_of(tmp_path / "one")
    (tmp_path / "one").rename(tmp_path / "other")
    assert node_id_of(tmp_path / "other") == made


def test_a_copy_is_told_apart_until_it_is_settled(tmp_path: Path) -> None:
    made = node_id_of(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    copy = node_id_of(tmp_path / "other")
    assert copy == NodeId(made.value, is_copy=True)
    assert node_id_of(tmp_path / "other") == copy, "a start that failed says it again"
    settle(tmp_path / "other", copy)
    assert node_id_of(tmp_path / "other") == made
    assert node_id_of(tmp_path / "one") == made


def test_a_backup_that_is_brought_back_in_place_is_told_apart(tmp_path: Path) -> None:
    """Twenty times, as the file system may give the same inode again, or not."""
    node_id_of(tmp_path)
    file = tmp_path / "node-id"
    for _ in range(20):
        kept = file.read_bytes()
        file.unlink()
        file.write_bytes(kept)
        copy = node_id_of(tmp_path)
        assert copy.is_copy
        settle(tmp_path, copy)
        assert not node_id_of(tmp_path).is_copy


def test_it_is_on_the_medium_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    node_id_of(tmp_path / "data")
    assert synced == [str(tmp_path / "data" / "node-id.new"), str(tmp_path / "data")]


def test_what_a_start_left_that_was_killed_is_no_id(tmp_path: Path) -> None:
    (tmp_path / "node-id.new").write_text("half")
    assert len(node_id_of(tmp_path).value) == 16
    assert [path.name for path in tmp_path.iterdir()] == ["node-id"]


@pytest.mark.parametrize("text", ["", "0123456789abcdef", "0123 inode 4.0\n", "\xff inode 4.0\n"])
def test_a_damaged_one_is_never_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "node-id").write_text(text, encoding="latin-1")
    with pytest.raises(NodeIdUnreadable, match=r"node-id is damaged.*delete it"):
        node_id_of(tmp_path)
    assert (tmp_path / "node-id").read_text(encoding="latin-1") == text

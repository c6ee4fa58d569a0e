"""A copy that is made beside a running node is a whole store, and has what was there before."""

from pathlib import Path

import pytest

from app.domain.message import Message
from app.store import OsFiles, StoreUnusable
from app.store.fs.read_only_files import ReadOnlyFiles
from app.store.log.commit_log import CommitLog
from app.store.offline.backup import Backup, back_up
from app.store.offline.directory import Kind
from app.store.offline.importing import TargetNotEmpty
from app.store.offline.verification import verify
from tests.support.stores.clock import FakeClock
from tests.support.stores.stores import OpenStore, open_store
from tests.support.stores.turns import ManualTurns
from tests.unit.store.offline.conftest import SMALL
from tests.unit.store.offline.test_verification_and_repair import bodies, expected_bodies, patch


def copy(source: Path, target: Path) -> Backup:
    target.mkdir(exist_ok=True)
    return back_up(ReadOnlyFiles(source), OsFiles(target), FakeClock(), ManualTurns())


def append_two(opened: OpenStore) -> None:
    """To each queue one, so that the expected order goes on."""
    for queue_id in (0, 1):
        before = len(opened.outcomes)
        opened.append_all([Message(b"new")], queue_id=queue_id)
        opened.settle(before + 1)


def test_what_came_behind_the_checkpoint_of_a_running_node_is_copied(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = open_store(OsFiles(root), SMALL)
    append_two(opened)
    found = copy(root, tmp_path / "copy")
    assert "damage" not in caplog.text, "that nothing is made of the copy yet is none"
    append_two(opened)
    assert found.verification.problems == []
    assert found.end == found.verification.log_end
    opened.store.close()
    assert bodies(tmp_path / "copy") == [*expected_bodies(), b"new", b"new"]
    assert bodies(root) == [*expected_bodies(), b"new", b"new", b"new", b"new"]


def test_a_write_that_is_under_way_is_not_in_it(root: Path, tmp_path: Path) -> None:
    end = verify(OsFiles(root)).log_end
    record = (root / f"commitlog/{0:020d}").read_bytes()[:90]
    segment, place = end - end % SMALL.segment_bytes, end % SMALL.segment_bytes
    patch(root, f"commitlog/{segment:020d}", place, record)
    found = copy(root, tmp_path / "copy")
    assert (found.end, found.verification.problems) == (end, [])
    assert bodies(tmp_path / "copy") == expected_bodies()


def test_the_copy_of_a_replica_is_a_lone_nodes(root: Path, tmp_path: Path) -> None:
    for name in ("replica-promise", "replica-history", "replica-incarnation"):
        (root / name).write_bytes(b"of a replica")
    with pytest.raises(StoreUnusable, match="that of a replica"):
        bodies(root)
    copy(root, tmp_path / "copy")
    assert bodies(tmp_path / "copy") == expected_bodies()


def test_damage_is_copied_and_told(root: Path, tmp_path: Path) -> None:
    patch(root, f"commitlog/{0:020d}", 120, b"?")
    found = copy(root, tmp_path / "copy")
    assert found.verification.problems
    assert found.end == verify(OsFiles(root)).log_end


def test_what_is_behind_damage_is_copied_too(root: Path, tmp_path: Path) -> None:
    """Also behind the last checkpoint, as an opening would step over it."""
    opened = open_store(OsFiles(root), SMALL)
    end = verify(OsFiles(root)).log_end
    append_two(opened)
    append_two(opened)
    segment, place = end - end % SMALL.segment_bytes, end % SMALL.segment_bytes
    patch(root, f"commitlog/{segment:020d}", place + 92, b"?")
    found = copy(root, tmp_path / "copy")
    opened.store.close()
    assert found.end == verify(OsFiles(root)).log_end
    problems = found.verification.of_kind(Kind.RECORD)
    assert f"commitlog/{segment:020d}" in {each.file for each in problems}
    assert bodies(tmp_path / "copy") == bodies(root)


def test_what_is_being_written_is_no_damage(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes may be there in any order, and are whole when it is looked at again."""
    opened = open_store(OsFiles(root), SMALL)
    end = verify(OsFiles(root)).log_end
    append_two(opened)
    read, reads = CommitLog.read, 0

    def half(log: CommitLog, at: int, size: int, *, wait_for_disk: bool = True) -> bytes:
        nonlocal reads
        data = read(log, at, size, wait_for_disk=wait_for_disk)
        if not at <= end < at + size or reads > 3:
            return data
        reads += 1
        return data[: end - at + 20] + bytes(60) + data[end - at + 80 :]

    monkeypatch.setattr(CommitLog, "read", half)
    found = copy(root, tmp_path / "copy")
    monkeypatch.undo()
    opened.store.close()
    assert reads > 3
    assert found.verification.problems == []
    assert bodies(tmp_path / "copy") == [*expected_bodies(), b"new", b"new"]


def test_nothing_is_written_over(root: Path, tmp_path: Path) -> None:
    copy(root, tmp_path / "copy")
    with pytest.raises(TargetNotEmpty, match="name an empty one"):
        copy(root, tmp_path / "copy")


def test_a_segment_that_retention_deletes_meanwhile_ends_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = CommitLog.read

    def gone(log: CommitLog, at: int, size: int, *, wait_for_disk: bool = True) -> bytes:
        return b"" if at == 0 else read(log, at, size, wait_for_disk=wait_for_disk)

    monkeypatch.setattr(CommitLog, "read", gone)
    with pytest.raises(StoreUnusable, match="retention of the node was quicker"):
        copy(root, tmp_path / "copy")
    monkeypatch.undo()
    assert not (tmp_path / "copy/meta").exists()

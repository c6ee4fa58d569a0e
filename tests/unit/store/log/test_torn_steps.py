"""A crash leaves a step whole or not at all, wherever its write was cut.

Positive control: an opening that takes the beginning of a step.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import OsFiles, StepPart, StoreConfig, paths
from app.store.fs.files import FileSystem
from app.store.log.atomic_batch import WholeBatches
from app.store.log.log_scan import ScannedBlock
from app.store.offline.directory import Kind
from app.store.offline.repair import repair
from app.store.offline.verification import verify
from tests.support.stores.clock import FakeClock
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store
from tests.support.stores.turns import ManualTurns

RETRY = "%RETRY%billing+orders"
PARTS = (
    StepPart(RETRY, 0, [Message(b"again", reconsume_times=1)]),
    StepPart("rmq_sys_progress", 0, [Message(b"ack 1"), Message(b"ack 2")]),
    StepPart("orders", 1, [Message(b"reply" * 20, properties={"MQ_STEPS": "9"}, tag="a")]),
)
QUEUES = [(RETRY, 0), ("rmq_sys_progress", 0), ("orders", 1)]
WHOLE = [[b"again"], [b"ack 1", b"ack 2"], [b"reply" * 20]]
NOTHING: list[list[bytes]] = [[], [], []]


def append_step(opened: OpenStore, parts: Iterable[StepPart] = PARTS) -> int:
    """Append a step; its physical offset."""
    start = opened.store.status().written_end
    opened.store.append_step(list(parts), FlushMode.SYNC, opened.outcomes.append)
    opened.turns.run()
    assert opened.outcomes[-1] is None
    return start


def readable(opened: OpenStore) -> list[list[bytes]]:
    return [opened.bodies(topic, queue_id) for topic, queue_id in QUEUES]


def made(behind: bytes | None = None) -> tuple[SimulatedFiles, int, int]:
    """A store with a message, a step and maybe a message; where the step begins and ends."""
    files = SimulatedFiles()
    opened = open_store(files, threads=False)
    opened.append(b"before")
    opened.turns.run()
    opened.store.begin_checkpoint().run()
    start = append_step(opened)
    end = opened.store.status().written_end
    if behind is not None:
        opened.append(behind)
        opened.turns.run()
    return files, start, end


def cut_at(files: SimulatedFiles, end: int) -> SimulatedFiles:
    after = files.kill()
    inode = after.names[paths.segment(0)]
    inode.seen[end:] = bytes(len(inode.seen) - end)
    inode.safe = bytearray(inode.seen)
    inode.unsynced.clear()
    return after


def check_every_cut() -> None:
    files, start, end = made()
    for cut in range(start, end + 1):
        after = cut_at(files, cut)
        torn = bytes(after.names[paths.segment(0)].seen[start:cut]).rstrip(b"\0")
        opened = open_store(after, threads=False)
        assert readable(opened) == (WHOLE if cut == end else NOTHING), cut
        assert opened.store.status().written_end == (end if cut == end else start)
        kept = after.names.get(paths.cut_tail(start))
        assert (bytes(kept.seen) if kept else b"") == (torn if cut < end else b"")
        append_step(opened)
        assert readable(opened) == [both * (2 if cut == end else 1) for both in WHOLE]
        assert opened.bodies() == [b"before"]


def test_a_torn_step_is_cut_whole() -> None:
    check_every_cut()


def test_verify_and_repair_see_a_torn_step_as_a_tail(tmp_path: Path) -> None:
    files, start, end = made()
    for path, inode in cut_at(files, end - 30).names.items():
        if inode.directory:
            (tmp_path / path).mkdir(exist_ok=True)
        else:
            (tmp_path / path).write_bytes(inode.seen)
    found = verify(OsFiles(tmp_path))
    assert found.log_end == start
    assert [problem.kind for problem in found.problems] == [Kind.TAIL]
    repair(OsFiles(tmp_path), FakeClock(), ManualTurns(), dry_run=False)
    assert verify(OsFiles(tmp_path)).problems == []
    opened = open_store(OsFiles(tmp_path))
    assert readable(opened) == NOTHING
    assert opened.bodies() == [b"before"]
    opened.store.close()


def pass_on(_self: WholeBatches, blocks: Iterable[ScannedBlock]) -> Iterator[ScannedBlock]:
    yield from blocks


def test_an_opening_that_takes_the_beginning_of_a_step_is_found_out() -> None:
    with mock.patch.object(WholeBatches, "only_whole", pass_on), pytest.raises(AssertionError):
        check_every_cut()


def test_a_finished_step_goes_through_any_number_of_openings() -> None:
    files, _, end = made()
    for _ in range(3):
        files = files.kill()
        opened = open_store(files, threads=False)
        assert readable(opened) == WHOLE
        assert opened.store.status().written_end == end


def damaged(files: FileSystem, position: int) -> SimulatedFiles:
    assert isinstance(files, SimulatedFiles)
    after = files.kill()
    after.names[paths.segment(0)].seen[position] ^= 1
    after.names[paths.segment(0)].safe[position] ^= 1
    return after


def test_damage_in_a_finished_step_costs_one_record() -> None:
    files, start, _ = made(behind=b"behind")
    opened = open_store(damaged(files, start + 95), threads=False)
    assert readable(opened) == [[], *WHOLE[1:]]
    assert opened.bodies() == [b"before", b"behind"]
    [damage] = opened.store.status().recovery.damages
    assert damage.start == start


def without_end_of_step(files: SimulatedFiles, start: int, cut: int, behind: bytes) -> OpenStore:
    """Cut a step at `cut`, and write on as somebody who does not look; then open as after a kill
    that lost the checkpoint."""
    after = cut_at(files, cut)
    with mock.patch.object(WholeBatches, "only_whole", pass_on):
        opened = open_store(after, threads=False)
    if behind:
        opened.append(behind)
    opened.append(b"last", queue_id=1)
    opened.turns.run()
    after = opened.files.kill()  # type: ignore[attr-defined]
    return open_store(only_log(after), threads=False)


def only_log(files: SimulatedFiles) -> SimulatedFiles:
    """Without checkpoint and queues, which are made again."""
    for path in [*files.names]:
        if path.startswith((paths.CHECKPOINT, "consumequeue/")) and not files.names[path].directory:
            del files.names[path]
    return files


def test_half_a_step_in_mid_log_is_damage_and_stays_out(caplog: pytest.LogCaptureFixture) -> None:
    """It was never acknowledged; the ack without the reply is what no consumer must find."""
    for records in (1, 2, 3):
        files, start, end = made()
        view = memoryview(bytes(files.names[paths.segment(0)].seen))
        cut = start
        for _ in range(records):
            cut += int.from_bytes(view[cut : cut + 4])
        assert cut < end
        opened = without_end_of_step(files, start, cut, b"behind")
        assert readable(opened)[:2] == NOTHING[:2]
        assert opened.bodies("orders", 1) == [b"last"]
        assert opened.bodies() == [b"before", b"behind"]
        [damage] = opened.store.status().recovery.damages
        assert (damage.start, damage.end) == (start, cut)
        assert opened.store.status().damages["log"] >= 1
        assert "half a step" in caplog.text
        again = open_store(opened.files.kill(), threads=False)  # type: ignore[attr-defined]
        assert readable(again)[:2] == NOTHING[:2]


def test_a_scan_in_small_windows_finds_halves_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The half is the end of one block, and what is no part of it the beginning of the next."""
    only_whole = WholeBatches.only_whole

    def one_by_one(self: WholeBatches, blocks: Iterable[ScannedBlock]) -> Iterator[ScannedBlock]:
        single = (
            block._replace(starts=[start], sizes=[size])
            for block in blocks
            for start, size in zip(block.starts, block.sizes, strict=True)
        )
        yield from only_whole(self, single)

    files, start, _ = made()
    cut = start + int.from_bytes(files.names[paths.segment(0)].seen[start : start + 4])
    opened = without_end_of_step(files, start, cut, b"behind")
    monkeypatch.setattr(WholeBatches, "only_whole", one_by_one)
    again = open_store(only_log(opened.files.kill()), threads=False)  # type: ignore[attr-defined]
    assert readable(again)[:2] == NOTHING[:2]
    assert again.bodies() == [b"before", b"behind"]
    [damage] = again.store.status().recovery.damages
    assert (damage.start, damage.end) == (start, cut)
    whole = only_log(made(behind=b"behind")[0].kill())
    assert readable(open_store(whole, threads=False)) == WHOLE


def test_damage_at_the_end_of_a_confirmed_step_costs_one_record() -> None:
    files, _, end = made()
    opened = open_store(files.kill(), threads=False)  # it writes a checkpoint
    files = damaged(opened.files, end - 40)
    opened = open_store(files, threads=False)
    assert readable(opened)[:2] == WHOLE[:2]
    assert readable(opened)[2] in ([], [b"GAP"])
    assert opened.store.status().written_end == end


@pytest.mark.parametrize("size", [200, 2_000, 600_000])
def test_a_step_over_many_windows_of_the_scan_is_one(size: int) -> None:
    """600,000: some 3 MiB, so that the scan reads it in several pieces."""
    config = StoreConfig(segment_bytes=8 << 20, queue_file_units=64)
    files = SimulatedFiles()
    opened = open_store(files, config, threads=False)
    opened.append(b"before")
    opened.turns.run()
    parts = [StepPart("orders", queue, [Message(bytes(size))]) for queue in (1, 2, 1, 2, 1)]
    start = append_step(opened, parts)
    end = opened.store.status().written_end
    whole = open_store(files.kill(), config, threads=False)
    assert [whole.store.bounds("orders", q).max_offset for q in (1, 2)] == [3, 2]
    torn = open_store(cut_at(files, end - 10), config, threads=False)
    assert [torn.store.bounds("orders", q).max_offset for q in (1, 2)] == [0, 0]
    assert torn.store.status().written_end == start

"""What is written and not confirmed is seen by nobody; then it is, whole and in its order."""

import errno

import pytest

from app.domain.errors import CurlewError, DiskFull, NotEnoughReplicas, StoreFailed
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import StepPart
from app.store.write import gate as gating
from app.store.write.gate import WrittenBlock
from tests.support.stores.held_back import HastyGate, HoldingGate
from tests.support.stores.simulated_files import Fault, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store, read_at


@pytest.fixture
def gate() -> HoldingGate:
    return HoldingGate()


@pytest.fixture
def opened(gate: HoldingGate) -> OpenStore:
    """With one confirmed message, `first`."""
    opened = open_store(SimulatedFiles(), threads=False, gate=gate)
    write(opened, b"first")
    gate.confirm_all()
    assert opened.outcomes == [None]
    return opened


def write(opened: OpenStore, *bodies: bytes, flush: FlushMode = FlushMode.SYNC) -> None:
    for body in bodies:
        opened.append_all([Message(body, keys=("k",))], flush=flush)
    opened.turns.run()


def outcomes(opened: OpenStore) -> list[str | None]:
    """Of all but the first append, what is known of each."""
    return [None if error is None else error.outcome for error in opened.outcomes[1:]]


def arrivals(opened: OpenStore) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    opened.store.on_arrival = lambda topic, queue: found.append((topic, queue))
    return found


def test_what_is_not_confirmed_is_not_shown(opened: OpenStore, gate: HoldingGate) -> None:
    told = arrivals(opened)
    at = opened.store.status().written_end
    write(opened, b"second", b"third")
    store = opened.store
    assert outcomes(opened) == []
    assert not told
    assert opened.bodies() == [b"first"]
    assert store.bounds("orders", 0).max_offset == 1
    assert len(store.find_by_key("orders", "k", wait_for_disk=True)) == 1
    assert read_at(store, at, wait_for_disk=True) is None
    status = store.status()
    assert status.confirmed_end == at < status.written_end == status.flushed_end
    gate.confirm_all()
    assert opened.outcomes == [None, None, None]
    assert told == [("orders", 0)] * 2
    assert opened.bodies() == [b"first", b"second", b"third"]
    assert len(store.find_by_key("orders", "k", wait_for_disk=True)) == 3
    assert read_at(store, at, wait_for_disk=True) is not None
    assert store.status().confirmed_end == status.written_end


def test_a_frame_is_shown_when_it_is_confirmed(opened: OpenStore, gate: HoldingGate) -> None:
    opened.append_frame([Message(b"a"), Message(b"b")])
    opened.turns.run()
    assert opened.bodies() == [b"first"]
    gate.confirm_all()
    assert opened.bodies() == [b"first", b"a", b"b"]


def test_a_watermark_inside_a_block_shows_nothing_of_it(
    opened: OpenStore, gate: HoldingGate
) -> None:
    parts = [StepPart(topic, 0, [Message(b"half")]) for topic in ("left", "right")]
    opened.store.append_step(parts, FlushMode.SYNC, opened.outcomes.append)
    opened.turns.run()
    gate.confirm(gate.ends.written - 1)
    assert opened.bodies("left") == opened.bodies("right") == []
    assert opened.store.status().confirmed_end < gate.ends.written - 1
    gate.confirm_all()
    assert opened.bodies("left") == opened.bodies("right") == [b"half"]


def test_the_watermark_confirms_what_is_below_it_and_never_goes_back(
    opened: OpenStore, gate: HoldingGate
) -> None:
    write(opened, b"second", b"third")
    gate.confirm(gate.written[-2].end)
    gate.confirm(gate.written[0].end)
    assert opened.bodies() == [b"first", b"second"]
    assert opened.store.status().confirmed_end == gate.written[-2].end


def test_who_hears_what_is_written_may_confirm_it_in_the_same_turn(
    opened: OpenStore, gate: HoldingGate
) -> None:
    gate.is_open = True
    write(opened, b"second")
    assert opened.bodies() == [b"first", b"second"]


def test_what_is_told_is_what_is_written_and_how_far(opened: OpenStore, gate: HoldingGate) -> None:
    before = len(gate.written)
    write(opened, b"to the file", flush=FlushMode.ASYNC)
    status = opened.store.status()
    assert gate.written[before:] == [WrittenBlock(status.written_end, wants_sync=False)]
    assert gate.ends == (status.written_end, status.flushed_end)
    assert gate.ends.flushed < gate.ends.written
    flushed: list[CurlewError | None] = []
    opened.store.flush(flushed.append)
    opened.turns.run()
    assert flushed == [None], "a flush is about this node's medium alone"
    assert gate.ends.flushed == gate.ends.written
    assert outcomes(opened) == []


def test_what_is_to_be_synced_is_told_before_and_behind_the_sync(
    opened: OpenStore, gate: HoldingGate
) -> None:
    flushed = opened.store.status().flushed_end
    before = len(gate.told)
    write(opened, b"second")
    end = opened.store.status().written_end
    assert gate.told[before:] == [(end, flushed), (end, end)]
    assert gate.written[-1] == WrittenBlock(end, wants_sync=True)


def test_what_other_replicas_may_have_is_not_taken_back_when_the_sync_fails(
    opened: OpenStore, gate: HoldingGate
) -> None:
    """Also for a lack that would have been undone, had it come with the write."""
    flushed = opened.store.status().flushed_end
    files = opened.files
    assert isinstance(files, SimulatedFiles)
    files.fault = Fault("sync", 1, errno.ENOSPC)
    write(opened, b"second")
    status = opened.store.status()
    assert gate.ends == (status.written_end, flushed)
    assert status.written_end > flushed == status.flushed_end
    assert outcomes(opened) == ["unknown"]
    assert status.failed


def test_a_flush_in_the_same_turn_waits_for_the_sync(opened: OpenStore, gate: HoldingGate) -> None:
    told: list[str] = []
    files = opened.files
    assert isinstance(files, SimulatedFiles)
    for fault in (None, Fault("sync", 1, errno.EIO)):
        files.fault = fault
        opened.append_all([Message(b"second")])
        opened.store.flush(lambda error: told.append("flushed" if error is None else "failed"))
        while not opened.store._writer._attempts:
            assert opened.turns.run_one()
        before = list(told)
        opened.store._writer._settle_attempts()
        assert told[len(before) :] == ["flushed" if fault is None else "failed"]
        assert gate.ends.written == opened.store.status().written_end
        opened.turns.run()
    assert told == ["flushed", "failed"]


def test_a_checkpoint_counts_on_what_is_confirmed(opened: OpenStore, gate: HoldingGate) -> None:
    confirmed = opened.store.status().confirmed_end
    write(opened, b"second")
    checkpointing = opened.store.begin_checkpoint()
    assert checkpointing.checkpoint((), None, "").dispatched_end == confirmed
    gate.confirm_all()
    assert opened.store.begin_checkpoint().checkpoint((), None, "").dispatched_end > confirmed


def test_who_waits_when_the_store_stops_gets_unknown(opened: OpenStore) -> None:
    write(opened, b"second")
    opened.store.close()
    assert outcomes(opened) == ["unknown"]
    again = open_store(opened.files, threads=False)
    assert again.bodies() == [b"first", b"second"], "it is in the log, also after a clean stop"


def test_of_a_failed_store_written_blocks_are_unknown_and_others_not_stored(
    opened: OpenStore, gate: HoldingGate
) -> None:
    write(opened, b"written", b"written, too")
    opened.append(b"waits")
    opened.store.fail("broken")
    assert outcomes(opened) == ["unknown", "unknown", "not_stored"]
    gate.confirm_all()
    opened.turns.run()
    assert opened.bodies() == [b"first"]
    with pytest.raises(StoreFailed):
        opened.append(b"more")


def test_a_fence_leaves_what_waits_unknown(opened: OpenStore, gate: HoldingGate) -> None:
    write(opened, b"written")
    opened.append(b"waits")
    opened.store.fence("another leads", lambda: NotEnoughReplicas("gone", outcome="not_stored"))
    assert outcomes(opened) == ["unknown", "not_stored"]
    gate.confirm_all()
    assert opened.bodies() == [b"first"]


def test_a_fence_counts_what_the_worker_had_written(opened: OpenStore) -> None:
    """A follower goes on where the log ends, and what stands behind would be taken for log."""
    before = opened.store.status()
    files = opened.files
    assert isinstance(files, SimulatedFiles)
    unwritten = files.fingerprint()
    opened.append_all([Message(b"written")])
    while files.fingerprint() == unwritten:
        assert opened.turns.run_one()
    opened.store.fence("another leads", lambda: NotEnoughReplicas("gone", outcome="not_stored"))
    opened.turns.run()
    assert outcomes(opened) == ["unknown"]
    after = opened.store.status()
    assert after.written_end == after.flushed_end > before.written_end
    assert opened.bodies() == [b"first"]


def test_a_failed_sync_ends_those_before_it_too(opened: OpenStore, gate: HoldingGate) -> None:
    told: list[str] = []
    for flush in (FlushMode.ASYNC, FlushMode.SYNC):

        def tell(error: CurlewError | None, name: str = flush.name) -> None:
            told.append(f"{name} {error and error.outcome}")

        opened.store.append("orders", 0, [Message(b"x")], flush, tell)
        opened.turns.run()
        files = opened.files
        assert isinstance(files, SimulatedFiles)
        files.fault = Fault("sync", 1, errno.EIO)
    assert told == ["ASYNC unknown", "SYNC unknown"], "in the order of the log"
    gate.confirm_all()
    assert opened.bodies() == [b"first"]


def test_what_is_written_when_the_store_fails_is_not_confirmed_any_more(
    opened: OpenStore, gate: HoldingGate
) -> None:
    opened.append(b"being written")
    while not opened.store._writer._attempts:
        assert opened.turns.run_one()
    opened.store.fail("broken")
    gate.is_open = True
    opened.turns.run()
    assert outcomes(opened) == ["unknown"]
    assert opened.bodies() == [b"first"]


def test_a_shortage_leaves_what_is_written_waiting(opened: OpenStore, gate: HoldingGate) -> None:
    write(opened, b"second")
    files = opened.files
    assert isinstance(files, SimulatedFiles)
    files.fault = Fault("write", 1, errno.ENOSPC, lasting=True)
    write(opened, b"refused")
    assert [type(error) for error in opened.outcomes[1:]] == [DiskFull]
    files.fault = None
    write(opened, b"third")
    gate.confirm_all()
    assert opened.bodies() == [b"first", b"second", b"third"]


def test_a_topic_deleted_while_its_messages_wait_gives_no_offset_twice(
    opened: OpenStore, gate: HoldingGate
) -> None:
    """Two written, two refused, all of a topic that is deleted meanwhile."""
    write(opened, b"second", b"third")
    files = opened.files
    assert isinstance(files, SimulatedFiles)
    opened.append(b"refused")
    opened.append(b"refused, too")
    opened.store.delete_topic("orders")
    files.fault = Fault("write", 1, errno.ENOSPC, lasting=True)
    opened.turns.run()
    files.fault = None
    appended = opened.append(b"of another life")
    opened.turns.run()
    gate.confirm_all()
    assert appended.first_queue_offset == 5
    assert opened.bodies() == [b"of another life"]
    opened.store.begin_checkpoint().run()
    assert open_store(files.kill(), threads=False).bodies() == [b"of another life"]


def test_too_few_replicas_refuse_an_append_before_it_is_made(
    opened: OpenStore, gate: HoldingGate
) -> None:
    gate.too_few = "1 of 3"
    with pytest.raises(NotEnoughReplicas, match="1 of 3") as refused:
        opened.append(b"second")
    assert refused.value.outcome == "not_stored"
    gate.too_few = None
    assert opened.append(b"second").first_queue_offset == 1


def test_the_unconfirmed_tail_is_bounded(
    opened: OpenStore, gate: HoldingGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gating, "UNCONFIRMED_BYTES_MAX", 1000)
    write(opened, bytes(1000))
    with pytest.raises(NotEnoughReplicas, match="wait for other replicas"):
        opened.append(b"too much")
    gate.confirm_all()
    assert gate.unconfirmed_bytes == 0
    write(opened, b"again")


def test_one_who_raises_keeps_nobody_from_being_told(opened: OpenStore, gate: HoldingGate) -> None:
    def raises(_error: CurlewError | None) -> None:
        raise RuntimeError

    opened.store.append("orders", 0, [Message(b"second")], FlushMode.SYNC, raises)
    write(opened, b"third")
    gate.confirm_all()
    assert opened.bodies() == [b"first", b"second", b"third"]


def test_an_append_made_when_one_is_confirmed_waits_for_its_own_turn(
    opened: OpenStore, gate: HoldingGate
) -> None:
    def follow(_error: CurlewError | None) -> None:
        opened.append(b"third")

    opened.store.append("orders", 0, [Message(b"second")], FlushMode.SYNC, follow)
    opened.turns.run()
    gate.confirm_all()
    opened.turns.run()
    assert opened.bodies() == [b"first", b"second"]
    gate.confirm_all()
    assert opened.bodies() == [b"first", b"second", b"third"]


def test_a_time_out_told_as_a_failure_is_found_out() -> None:
    """Positive control: the block that was given up is confirmed all the same, and what comes
    behind it cannot be shown."""
    gate = HastyGate()
    opened = open_store(SimulatedFiles(), threads=False, gate=gate)
    write(opened, b"first")
    gate.time_out()
    write(opened, b"second")
    gate.confirm_all()
    assert [error and error.outcome for error in opened.outcomes] == ["unknown", "unknown"]
    assert "a queue is not what the log says" in (opened.store.status().failed or "")

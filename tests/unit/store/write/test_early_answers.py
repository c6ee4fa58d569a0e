"""Whoever is answered when this node has a block hears it once, and what hangs on `done` waits."""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from typing_extensions import override

from app.domain.errors import CurlewError, NotEnoughReplicas, StoreFailed
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import Appended, StepPart
from app.store.write import appender
from app.store.write import gate as gating
from app.store.write.gate import LogEnds, WrittenBlock
from tests.support.stores.held_back import HoldingGate
from tests.support.stores.simulated_files import Fault, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store


@dataclass
class Sender:
    """Notes what it hears, in its order."""

    opened: OpenStore
    heard: list[str] = field(default_factory=list)
    is_early: bool = True

    def here(self) -> None:
        self.heard.append("here")

    def done(self, error: CurlewError | None) -> None:
        self.heard.append("confirmed" if error is None else str(error.outcome))

    def append(self, *bodies: bytes, flush: FlushMode = FlushMode.SYNC) -> Appended:
        messages = [Message(body) for body in bodies]
        return self.opened.store.append("orders", 0, messages, flush, self.done, answer=self)


@pytest.fixture
def gate() -> HoldingGate:
    return HoldingGate()


@pytest.fixture
def opened(gate: HoldingGate) -> OpenStore:
    return open_store(SimulatedFiles(), threads=False, gate=gate)


def files_of(opened: OpenStore) -> SimulatedFiles:
    assert isinstance(opened.files, SimulatedFiles)
    return opened.files


@pytest.mark.parametrize("flush", list(FlushMode))
def test_this_node_has_it_before_it_is_confirmed(
    opened: OpenStore, gate: HoldingGate, flush: FlushMode
) -> None:
    sender = Sender(opened)
    sender.append(b"first", flush=flush)
    assert sender.heard == []
    opened.turns.run()
    assert sender.heard == ["here"]
    assert opened.bodies() == [], "nothing but the answer comes early"
    gate.confirm_all()
    assert sender.heard == ["here", "confirmed"]
    assert opened.bodies() == [b"first"]


def test_what_is_written_and_not_synced_yet_is_no_answer(
    opened: OpenStore, gate: HoldingGate
) -> None:
    sender, other = Sender(opened), Sender(opened)
    sender.append(b"first")
    other.append(b"second", flush=FlushMode.ASYNC)
    heard: list[tuple[list[str], list[str]]] = []
    note = gate._on_settled

    def look(blocks: Sequence[WrittenBlock], ends: LogEnds) -> None:
        note(blocks, ends)
        heard.append((list(sender.heard), list(other.heard)))

    gate._on_settled = look
    opened.turns.run()
    assert heard == [([], []), ([], ["here"])]
    assert sender.heard == other.heard == ["here"]


def _append_small_step(sender: Sender) -> None:
    parts = [StepPart("orders", 0, [Message(b"x")]), StepPart("bills", 0, [Message(b"y")])]
    sender.opened.store.append_step(parts, FlushMode.ASYNC, sender.done, answer=sender)


def _append_lone_step(sender: Sender) -> None:
    parts = [StepPart("orders", 0, [Message(b"x")])]
    sender.opened.store.append_step(parts, FlushMode.ASYNC, sender.done, answer=sender)


def _append_frame(sender: Sender) -> None:
    opened = sender.opened
    opened.append_frame([Message(b"a"), Message(b"b")], done=sender.done, answer=sender)


def _append_many(sender: Sender) -> None:
    sender.append(b"a", b"b")


@pytest.mark.parametrize(
    "append",
    [_append_small_step, _append_lone_step, _append_frame, _append_many],
)
def test_every_kind_of_block_is_told_of(
    opened: OpenStore, gate: HoldingGate, append: Callable[[Sender], None]
) -> None:
    sender = Sender(opened)
    append(sender)
    opened.turns.run()
    assert sender.heard == ["here"]
    gate.confirm_all()
    assert sender.heard == ["here", "confirmed"]


def test_a_step_that_the_worker_encodes_is_told_of(
    opened: OpenStore, gate: HoldingGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "ENCODED_HERE_MAX", 1)
    sender = Sender(opened)
    _append_small_step(sender)
    opened.turns.run()
    assert sender.heard == ["here"]
    gate.confirm_all()
    assert sender.heard == ["here", "confirmed"]


def test_a_failed_sync_is_no_answer(opened: OpenStore) -> None:
    sender = Sender(opened)
    files_of(opened).fault = Fault("sync", 1, errno.EIO)
    sender.append(b"first")
    opened.turns.run()
    assert sender.heard == ["unknown"]


def test_what_is_confirmed_in_the_same_turn_is_told_once(
    opened: OpenStore, gate: HoldingGate
) -> None:
    gate.is_open = True
    sender = Sender(opened)
    sender.append(b"first")
    opened.turns.run()
    assert sender.heard == ["confirmed"]


def test_without_a_gate_there_is_one_moment() -> None:
    opened = open_store(SimulatedFiles(), threads=False)
    sender = Sender(opened)
    sender.append(b"first")
    opened.turns.run()
    assert sender.heard == ["confirmed"]
    assert not opened.store.has_gate


def test_what_is_given_up_after_the_answer_is_told_to_done_alone(
    opened: OpenStore, gate: HoldingGate
) -> None:
    written, waits = Sender(opened), Sender(opened)
    written.append(b"written")
    opened.turns.run()
    waits.append(b"waits")
    opened.store.fail("broken")
    gate.confirm_all()
    opened.turns.run()
    assert written.heard == ["here", "unknown"]
    assert waits.heard == ["not_stored"]
    assert opened.bodies() == []


def test_a_refused_write_is_no_answer(opened: OpenStore, gate: HoldingGate) -> None:
    sender = Sender(opened)
    sender.append(b"first")
    opened.turns.run()
    files_of(opened).fault = Fault("write", 1, errno.ENOSPC, lasting=True)
    refused = Sender(opened)
    refused.append(b"refused")
    opened.turns.run()
    assert refused.heard == ["not_stored"]
    gate.confirm_all()
    assert sender.heard == ["here", "confirmed"]


def test_one_who_raises_keeps_nobody_from_hearing(opened: OpenStore, gate: HoldingGate) -> None:
    class Raising(Sender):
        @override
        def here(self) -> None:
            raise RuntimeError

        @override
        def done(self, error: CurlewError | None) -> None:
            super().done(error)
            raise RuntimeError

    raising, other = Raising(opened), Sender(opened)
    raising.append(b"first")
    other.append(b"second")
    opened.turns.run()
    assert other.heard == ["here"]
    gate.confirm_all()
    assert (raising.heard, other.heard) == (["confirmed"], ["here", "confirmed"])


def test_who_fails_the_store_when_he_hears_leaves_no_answer_for_those_behind(
    opened: OpenStore,
) -> None:
    class Failing(Sender):
        @override
        def here(self) -> None:
            super().here()
            opened.store.fail("broken")

    failing, behind = Failing(opened), Sender(opened)
    failing.append(b"first")
    behind.append(b"second")
    opened.turns.run()
    assert (failing.heard, behind.heard) == (["here", "unknown"], ["unknown"])


def test_too_few_replicas_refuse_what_is_answered_when_it_is_confirmed(
    opened: OpenStore, gate: HoldingGate
) -> None:
    gate.too_few = "1 of 3"
    early, late = Sender(opened), Sender(opened, is_early=False)
    with pytest.raises(NotEnoughReplicas, match="1 of 3") as refused:
        late.append(b"sync")
    assert refused.value.outcome == "not_stored"
    assert early.append(b"async").first_queue_offset == 0
    opened.turns.run()
    assert (early.heard, late.heard) == (["here"], [])
    gate.too_few = None
    gate.confirm_all()
    assert opened.bodies() == [b"async"]


def test_the_bound_of_what_waits_holds_for_all(
    opened: OpenStore, gate: HoldingGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gating, "UNCONFIRMED_BYTES_MAX", 1000)
    gate.too_few = "1 of 3"
    sender = Sender(opened)
    sender.append(bytes(1000))
    opened.turns.run()
    with pytest.raises(NotEnoughReplicas, match="wait for other replicas"):
        sender.append(b"too much")
    gate.confirm_all()
    sender.append(b"again")


def test_a_failed_store_refuses_early_ones_too(opened: OpenStore) -> None:
    opened.store.fail("broken")
    with pytest.raises(StoreFailed):
        Sender(opened).append(b"first")

"""What the owner of a directory tells for as long as it lasts."""

import asyncio
import errno
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from app.cluster.replication.events import Event, RoomSeen
from app.cluster.replication.terms import Term
from app.domain.limits import Limits
from app.replica import owner as owner_module
from app.replica.leadership import LeaderHooks
from app.replica.log_repairs import LogRepairs
from app.replica.owner import StoreOwner
from app.replica.ports import ColdState
from app.store.damage import DamageKind
from app.store.fs.files import DiskUsage
from app.store.replica.block_walk import BlocksRefused, BlocksUnreadable
from app.store.replica.replica_store import OpeningOptions, ReplicaDirectory
from app.store.write.writer import NO_ROOM
from tests.support.stores.clock import FakeClock
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL
from tests.unit.store.replica.test_replica_store import SHARD


async def nothing(*_: object) -> None:
    return


def nothing_of(_event: Event) -> None:
    """No driver is there."""


@pytest.fixture
def owner() -> Iterator[StoreOwner]:
    loop = asyncio.new_event_loop()
    directory = ReplicaDirectory(SimulatedFiles(), lambda: 1)
    options = OpeningOptions(SMALL, FakeClock(), lambda _call: None, Limits(), SHARD)
    opened = StoreOwner(
        directory, options, LeaderHooks(nothing, nothing), loop, lambda call: call()
    )
    opened.give = nothing_of
    nobody: Any = SimpleNamespace(log_view=lambda: None)
    opened.repairs = LogRepairs(nobody, (), nobody, lambda: 0, lambda call: call())
    opened.open()
    yield opened
    opened.close(is_clean=False)
    loop.close()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BlocksUnreadable("nothing at 7"), "BLOCKS_UNREADABLE"),
        (OSError(errno.EIO, "the disk"), "DISPATCH_FAILED"),
    ],
)
def test_what_cannot_be_dispatched_is_told_as_long_as_it_lasts(
    owner: StoreOwner, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    now_ms = 1_000

    def fail(_high_watermark: int) -> bool:
        raise error

    monkeypatch.setattr(owner_module, "_now_ms", lambda: now_ms)
    monkeypatch.setattr(owner.following, "advance", fail)
    assert not owner.advance()
    for now_ms in (2_000, 300_000):
        assert not owner.advance()
        owner.tick()
        assert owner.alarms[code].last_ms == now_ms
    owner.open_again()
    now_ms = 400_000
    owner.tick()
    assert owner.alarms[code].last_ms == 300_000, "it is over"


def test_the_log_of_a_follower_is_let_go_of_behind_each_event_and_not_of_who_leads(
    owner: StoreOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of the leader's store does it."""
    calls: list[bool] = []
    monkeypatch.setattr(owner.following, "let_go", lambda: calls.append(True))
    owner.between()
    owner.is_spoiled = True
    owner.between()
    assert calls == [True]
    owner.is_spoiled = False


SEGMENT = SMALL.segment_bytes


@pytest.mark.parametrize(
    ("usage", "refusal"),
    [
        (DiskUsage(100 * SEGMENT, 11 * SEGMENT), None),
        (DiskUsage(100 * SEGMENT, 9 * SEGMENT), "the disk is 91% full"),
        (
            DiskUsage(2 * SEGMENT, SEGMENT - 1),
            NO_ROOM,
        ),
    ],
)
def test_a_follower_says_whether_it_would_take_messages(
    owner: StoreOwner, monkeypatch: pytest.MonkeyPatch, usage: DiskUsage, refusal: str | None
) -> None:
    given: list[Event] = []
    monkeypatch.setattr(owner, "give", given.append)
    monkeypatch.setattr(SimulatedFiles, "disk_usage", lambda _files: usage)
    owner.tick()
    assert given == [RoomSeen(refusal is None)]
    alarm = owner.alarms.get("REPLICA_FULL")
    told = None if refusal is None else f"this replica takes no messages: {refusal}"
    assert (None if alarm is None else alarm.detail) == told


def test_a_disk_that_does_not_say_how_full_it_is_is_told_as_unknown(
    owner: StoreOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_files: SimulatedFiles) -> DiskUsage:
        raise OSError(errno.EIO, "the disk")

    given: list[Event] = []
    monkeypatch.setattr(owner, "give", given.append)
    monkeypatch.setattr(SimulatedFiles, "disk_usage", fail)
    owner.tick()
    assert given == [RoomSeen(None)]


def told(owner: StoreOwner, patch: pytest.MonkeyPatch, *used: int) -> list[bool | None]:
    """What is told of a disk that is so many percent full, one look after another."""
    given: list[Event] = []
    now_ms = owner._room_ms
    patch.setattr(owner_module, "_now_ms", lambda: now_ms)
    patch.setattr(owner, "give", given.append)
    for percent in used:
        usage = DiskUsage(1_000 * SEGMENT, (100 - percent) * 10 * SEGMENT)
        patch.setattr(SimulatedFiles, "disk_usage", lambda _files, usage=usage: usage)
        now_ms += owner_module.ROOM_MS
        owner.tick()
        owner._loop.run_until_complete(asyncio.sleep(0))
    return [each.has_room for each in given if isinstance(each, RoomSeen)]


def test_a_disk_that_was_full_has_room_when_there_is_some_to_spare(
    owner: StoreOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = told(owner, monkeypatch, 89, 90, 89, 88, 87, 89, 90)
    assert found == [True, False, False, False, True, True, False]


def test_who_is_elected_with_a_full_disk_says_so_in_its_term(
    owner: StoreOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new store looks at the disk ten seconds later, and would take messages until then."""
    assert told(owner, monkeypatch, 90) == [False]
    status = SimpleNamespace(refusal_here=None)
    monkeypatch.setattr(
        owner, "leading", SimpleNamespace(store=SimpleNamespace(status=lambda: status))
    )
    assert told(owner, monkeypatch, 90, 89) == [False, False]
    assert told(owner, monkeypatch, 87, 89) == [True, True]
    status.refusal_here = "the disk is 90% full"
    assert told(owner, monkeypatch, 80) == [False]


def test_when_all_is_put_right_nothing_is_the_matter_and_the_count_stays(
    owner: StoreOwner,
) -> None:
    damages = owner.following.parts.repair.damages
    damages.note(DamageKind.LOG, "9 bytes")
    damages.note(DamageKind.INDEX, "a file")
    owner.alarm("LOG_DAMAGED", "nobody has it")
    owner.is_mended(1)
    assert "LOG_DAMAGED" in owner.alarms
    assert damages.left() == {"log": 1, "index": 1}
    owner.is_mended(0)
    assert "LOG_DAMAGED" not in owner.alarms
    assert damages.left() == {"index": 1}
    assert damages.counts() == {"log": 1, "index": 1}
    damages.note(DamageKind.LOG, "9 bytes more")
    assert damages.left() == {"log": 1, "index": 1}


def test_a_follower_dispatches_up_to_the_damage_and_leads_over_it_when_nobody_helps(
    owner: StoreOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []

    def advance(end: int) -> bool:
        ends.append(end)
        return False

    monkeypatch.setattr(owner.following, "advance", advance)
    owner.move_watermark(900)
    assert not owner.advance()
    owner.repairs.found(700, 800)
    assert not owner.advance()
    assert ends == [900, 700]
    with pytest.raises(BlocksRefused, match="damaged at 700"):
        owner.append_term_start(Term(1, 1))
    assert not owner.is_spoiled
    for place in owner.repairs._places:
        place.has_failed, place.unasked = True, ("b",)
    with pytest.raises(BlocksRefused, match="damaged at 700"):
        owner.append_term_start(Term(1, 1))
    for place in owner.repairs._places:
        place.unasked = ()
    owner._refuse_to_lead_over_damage()


def test_who_leads_by_an_unclean_election_leads_over_what_others_may_have(
    owner: StoreOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.repairs.found(700, 800)
    owner.accept_loss(Term(3, 1))
    with pytest.raises(BlocksRefused, match="damaged at 700"):
        owner.append_term_start(Term(4, 1))
    monkeypatch.setattr(owner, "_end_checkpoint", lambda: 1 / 0)  # what comes next
    with pytest.raises(ZeroDivisionError):
        owner.append_term_start(Term(3, 1))


class Warm(ColdState):
    """Fails when it is to go on."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.ended = 0

    @override
    def advance(self) -> bool:
        raise self.error

    @override
    def tick(self, dispatched_end: int, flushed_end: int) -> None:
        raise self.error

    @override
    def end(self) -> None:
        self.ended += 1


def test_a_defect_of_what_is_kept_up_keeps_no_replica_from_following(owner: StoreOwner) -> None:
    owner._warm = warm = Warm(KeyError("TIMER_OUT_MS"))
    assert not owner.advance()
    assert not owner.advance()
    assert (warm.ended, owner.alarms) == (1, {})


def test_a_shortage_of_it_is_told_and_it_goes_on(owner: StoreOwner) -> None:
    owner._warm = warm = Warm(OSError(errno.EMFILE, "no descriptor"))
    assert not owner.advance()
    assert "DISPATCH_FAILED" in owner.alarms
    assert (owner._warm, owner._unreadable) == (warm, None)


def test_what_it_writes_down_keeps_no_replica_from_following_either(owner: StoreOwner) -> None:
    owner._warm = warm = Warm(OSError(errno.EIO, "the disk"))
    owner.tick()
    owner.tick()
    assert (owner._warm, owner.alarms["CHECKPOINT_FAILED"].count) == (warm, 2)
    owner._warm = warm = Warm(KeyError("a run"))
    owner.tick()
    owner.tick()
    assert warm.ended == 1

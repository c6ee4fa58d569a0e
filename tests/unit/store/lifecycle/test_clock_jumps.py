"""A wall clock that jumps ahead, and is set back: what retention, store times and keys do then.

Control: a retention that believes the clock at once expires everything.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from app.domain.limits import CLOCK_JUMP_HELD_S, CLOCK_JUMP_MS_MAX
from app.domain.message import Message
from app.store import OsFiles, RetentionPolicy
from app.store.age_clock import AgeClock
from tests.support.stores.clock import START_MS, FakeClock
from tests.support.stores.stores import SMALL, OpenStore, open_store

YEAR_MS = 365 * 86_400_000
JUMPS = (CLOCK_JUMP_MS_MAX + 1, YEAR_MS, 10 * YEAR_MS)
DAYS_3 = RetentionPolicy()


def ages(clock: FakeClock, age: AgeClock) -> tuple[int, int]:
    return age.now_ms() - START_MS, age.ahead_ms


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_jump_is_believed_after_a_day(jump_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    age = AgeClock(clock)
    clock.advance(s=60)
    clock.set_wall(clock.now_ms() + jump_ms)
    assert ages(clock, age) == (60_000, jump_ms)
    clock.advance(s=CLOCK_JUMP_HELD_S - 1)
    assert ages(clock, age) == ((60 + CLOCK_JUMP_HELD_S - 1) * 1_000, jump_ms)
    assert caplog.text.count("the clock has jumped ahead") == 1
    clock.advance(s=1)
    assert ages(clock, age) == (clock.now_ms() - START_MS, 0)
    assert "is believed" in caplog.text


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_a_clock_that_is_set_back_counts_at_once(jump_ms: int) -> None:
    clock = FakeClock()
    age = AgeClock(clock)
    clock.set_wall(START_MS + jump_ms)
    assert ages(clock, age) == (0, jump_ms)
    clock.set_wall(START_MS)
    assert ages(clock, age) == (0, 0)
    clock.set_wall(START_MS - jump_ms)
    assert ages(clock, age) == (-jump_ms, 0)


def test_usual_corrections_count_at_once() -> None:
    clock = FakeClock()
    age = AgeClock(clock)
    for _ in range(5):
        clock.set_wall(clock.now_ms() + CLOCK_JUMP_MS_MAX)
        assert age.now_ms() == clock.now_ms()
    clock.advance(s=10 * YEAR_MS / 1_000)  # nobody has asked for long
    assert age.now_ms() == clock.now_ms()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStore]:
    store = open_store(OsFiles(tmp_path))
    yield store
    store.store.close()


def send_keyed(opened: OpenStore, body: bytes) -> int:
    """Its store time."""
    opened.append_all([Message(body, keys=("k",))])
    opened.settle()
    assert opened.outcomes[-1] is None
    return opened.store.decode(last_record(opened)).store_time_ms


def last_record(opened: OpenStore) -> memoryview:
    end = opened.store.bounds("orders", 0).max_offset
    read = opened.store.read(
        "orders", 0, end - 1, max_messages=1, max_bytes=9_999, wait_for_disk=True
    )
    return memoryview(read.records[0])


def found(opened: OpenStore, begin_ms: int, end_ms: int) -> list[bytes]:
    keyed = opened.store.find_by_key(
        "orders", "k", begin_ms=begin_ms, end_ms=end_ms, max_messages=9, wait_for_disk=True
    )
    return [opened.store.decode(record).body for record in keyed]


def expired(store: OpenStore) -> int:
    return store.store.apply_retention(DAYS_3).expired_messages


@pytest.mark.parametrize("jump_ms", JUMPS[1:])
def test_no_message_expires_by_a_jump(opened: OpenStore, jump_ms: int) -> None:
    opened.send(b"a")
    opened.clock.set_wall(START_MS + jump_ms)
    opened.send(b"b")
    assert expired(opened) == 0
    assert opened.store.status().clock_jump_ms == jump_ms
    opened.clock.set_wall(START_MS)
    opened.send(b"c")
    assert expired(opened) == 0
    assert opened.store.status().clock_jump_ms == 0
    assert opened.bodies() == [b"a", b"b", b"c"]
    opened.clock.advance(s=4 * 86_400)
    assert expired(opened) == 1, "what is older than the jump grows old as ever"


def test_control_a_clock_that_is_believed_at_once_expires_everything(opened: OpenStore) -> None:
    opened.send(b"a")
    opened.clock.set_wall(START_MS + YEAR_MS)
    with mock.patch("app.store.age_clock.CLOCK_JUMP_HELD_S", 0):
        assert expired(opened) == 1


@pytest.mark.parametrize("jump_ms", JUMPS[1:])
@pytest.mark.parametrize("ends", ["stopped", "killed"])
def test_the_way_out_of_store_times_that_stand_still(
    tmp_path: Path, jump_ms: int, ends: str
) -> None:
    """A start that begins store times anew; search, keys and retention go on as ever."""
    files, clock = OsFiles(tmp_path), FakeClock()
    opened = open_store(files, clock=clock)
    send_keyed(opened, b"before")
    clock.set_wall(START_MS + jump_ms)
    send_keyed(opened, b"ahead")
    clock.set_wall(START_MS)
    clock.advance(s=3_600)
    send_keyed(opened, b"stands still")
    assert opened.store.status().clock_lead_ms == jump_ms - 3_600_000
    if ends == "killed":
        opened.store.fail("killed")
    opened.store.close()
    opened = open_store(files, replace(SMALL, store_time_from_clock=True), clock=clock)
    assert opened.store.status().clock_lead_ms == 0
    assert send_keyed(opened, b"anew") == START_MS + 3_600_000
    opened.store.close()
    opened = open_store(files, clock=clock)  # once is enough
    assert opened.store.status().clock_lead_ms == 0
    clock.advance(s=1)
    assert send_keyed(opened, b"later") == START_MS + 3_601_000
    assert found(opened, 0, START_MS + 3_600_000) == [b"before", b"anew"]
    assert found(opened, START_MS + jump_ms, START_MS + jump_ms) == [b"ahead", b"stands still"]
    assert found(opened, START_MS + 3_601_000, START_MS + 4_000_000) == [b"later"]
    clock.advance(s=4 * 86_400)
    assert expired(opened) == 5, "those of the future as well"
    opened.store.close()

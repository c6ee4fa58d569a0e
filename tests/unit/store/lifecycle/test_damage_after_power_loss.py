"""Bad bytes with good records behind them, after a power loss: a hole, or damage? (ADR 0011)"""

import pytest

from app.domain.positions import FlushMode
from tests.support.stores.simulated_files import Fault, SimulatedFiles
from tests.support.stores.stores import OpenStore, open_store

SEGMENT = f"commitlog/{0:020d}"


def bodies(opened: OpenStore) -> list[bytes]:
    return [body[:2] for body in opened.bodies()]


def loaded(*, synced_between: bool, power_lost: bool) -> tuple[SimulatedFiles, int]:
    """A store with messages a, b, c; b is about to turn bad. Returns where b begins."""
    files = SimulatedFiles()
    opened = open_store(files)
    opened.send(b"a ", flush=FlushMode.ASYNC)
    at = opened.store.status().written_end
    opened.send(b"b ", flush=FlushMode.SYNC if synced_between else FlushMode.ASYNC)
    opened.send(b"c ", flush=FlushMode.ASYNC)
    after = files.kill()
    opened.store.fail("gone")
    opened.store.close()
    if power_lost:
        after._boots += 1
    inode = after.names[SEGMENT]
    inode.sync()
    for content in (inode.seen, inode.safe):
        content[at + 20] ^= 0x10
    return after, at


@pytest.mark.parametrize(
    ("synced_between", "power_lost", "left"),
    [
        (True, True, [b"a ", b"GA", b"c "]),
        (False, True, [b"a "]),
        (False, False, [b"a ", b"GA", b"c "]),
        (True, False, [b"a ", b"GA", b"c "]),
    ],
    ids=["was synced: damage", "may be unwritten: the end", "killed: damage", "killed, synced"],
)
def test_a_record_behind_proves_damage(
    synced_between: bool, power_lost: bool, left: list[bytes]
) -> None:
    files, at = loaded(synced_between=synced_between, power_lost=power_lost)
    opened = open_store(files)
    recovery = opened.store.status().recovery
    assert bodies(opened) == left
    assert recovery.power_lost == power_lost
    assert (recovery.cut_bytes > 0) == (len(left) == 1)
    assert [damage.start for damage in recovery.damages] == ([at] if len(left) > 1 else [])
    assert opened.send(b"d ").first_queue_offset == len(left)
    assert bodies(opened)[-1] == b"d "
    opened.store.close()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_cut_that_is_interrupted_leaves_no_segment_missing_between_others(nth: int) -> None:
    files = SimulatedFiles()
    opened = open_store(files)
    for _ in range(8):
        opened.send(b"x" * 1900, flush=FlushMode.ASYNC)
    after = files.kill()
    opened.store.fail("gone")
    opened.store.close()
    after._boots += 1
    for name, inode in after.names.items():
        if name.startswith("commitlog/"):
            inode.sync()
    inode = after.names[SEGMENT]
    for content in (inode.seen, inode.safe):
        content[2100] ^= 0x10
    after.fault = Fault("unlink", nth)
    with pytest.raises(OSError, match="EIO"):
        open_store(after)
    again = open_store(after.kill())
    assert [body[:1] for body in again.bodies()] == [b"x"]
    assert again.store.status().segments == 1
    again.store.close()

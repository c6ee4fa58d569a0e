"""What was written a moment ago is dispatched from memory, in the order of the log, or read."""

from app.store.log.log_scan import ScannedBlock
from app.store.replica.fresh_blocks import FreshBlocks


def block(base: int, size: int) -> ScannedBlock:
    return ScannedBlock(b"." * size, [0], [size], base)


def test_a_range_is_there_once_and_when_all_of_it_is_confirmed() -> None:
    fresh = FreshBlocks()
    first, second = block(0, 10), block(10, 5)
    fresh.put(10, first)
    fresh.put(15, second)
    assert fresh.take(0, 9) is None, "the watermark stands within it"
    assert fresh.take(0, 15) == (10, first)
    assert fresh.take(0, 15) is None
    assert fresh.take(10, 15) == (15, second)


def test_what_was_read_meanwhile_is_let_go_of() -> None:
    fresh = FreshBlocks(bytes_max=20)
    fresh.put(10, block(0, 10))
    fresh.put(20, block(10, 10))
    fresh.put(30, third := block(20, 10))
    assert fresh.take(5, 99) is None
    assert fresh.take(20, 99) is None, "there was no room for it"
    fresh.put(30, third)
    assert fresh.take(20, 99) == (30, third)


def test_behind_a_cut_nothing_is_there() -> None:
    fresh = FreshBlocks()
    fresh.put(10, block(0, 10))
    fresh.clear()
    assert fresh.take(0, 99) is None
    for number in range(100):
        fresh.put(10 * number + 10, block(10 * number, 10))
    assert fresh.take(0, 10) is not None

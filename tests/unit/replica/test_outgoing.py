"""What a leader reads of its log for its followers."""

from typing import Any

import pytest

from app.cluster.replication.events import SendBlocks
from app.cluster.replication.terms import Term
from app.replica.outgoing import Outgoing
from app.store.replica.block_walk import BlockRange, BlocksRefused

TERM = Term(3, 7)


class Log:
    """Of which each byte is one block. It notes what is read and checked of it."""

    def __init__(self) -> None:
        self.read_ranges: list[tuple[int, int]] = []
        self.checked: list[int] = []
        self.is_damaged = False
        self.sent: list[tuple[str, bytes]] = []

    def read(self, start: int, end: int) -> BlockRange:
        self.read_ranges.append((start, end))
        return BlockRange(start, end, b"." * (end - start))

    read_new = read

    def check(self, blocks: BlockRange) -> None:
        self.checked.append(blocks.start)
        if self.is_damaged:
            raise BlocksRefused("it is damaged", blocks.start)

    def has_room(self, _node: str) -> bool:
        return True

    def send_blocks(self, node: str, _message: object, data: bytes) -> None:
        self.sent.append((node, data))


def outgoing(log: Log) -> Outgoing:
    anything: Any = log
    return Outgoing(anything, anything, tuple, log.check)


def offered(made: Outgoing, node: str, end: int, high_watermark: int = 0) -> None:
    made.offer(SendBlocks(node, 1, 0, end, 0, high_watermark), TERM)
    made.send(node)


def test_what_two_followers_get_is_read_once() -> None:
    log = Log()
    made = outgoing(log)
    for node in ("B", "C"):
        offered(made, node, 10)
    assert log.read_ranges == [(0, 10)]
    assert log.sent == [("B", b"." * 10), ("C", b"." * 10)]
    assert log.checked == []


def test_who_is_sent_less_is_not_sent_more() -> None:
    log = Log()
    made = outgoing(log)
    offered(made, "B", 10)
    offered(made, "C", 5)
    assert log.sent[-1] == ("C", b"." * 5)


def test_what_is_confirmed_is_checked_and_a_damaged_one_read_again() -> None:
    log = Log()
    made = outgoing(log)
    offered(made, "B", 10)
    log.is_damaged = True
    with pytest.raises(BlocksRefused):
        offered(made, "C", 10, high_watermark=10)
    log.is_damaged = False  # it was put right
    made.send("C")
    assert log.read_ranges == [(0, 10), (0, 10)]
    assert log.checked == [0, 0]


def test_behind_the_leadership_nothing_is_kept() -> None:
    log = Log()
    made = outgoing(log)
    offered(made, "B", 10)
    made.forget_all()
    offered(made, "B", 10)
    assert log.read_ranges == [(0, 10), (0, 10)]

"""What replicas say comes as it was said, in pieces of any size; what none of them says is told."""

import random
from collections.abc import Sequence

import msgspec
import pytest

from app.cluster.replication.messages import (
    AskBlocks,
    AskEnds,
    AskPromise,
    Blocks,
    BlocksNotGiven,
    Ends,
    EndsAnswer,
    GivenBlocks,
    Hello,
    PromiseAnswer,
    Watermark,
    Welcome,
)
from app.cluster.replication.terms import Member, Promise, Term, TermStart
from app.cluster.wire import codec as wire
from app.cluster.wire.codec import BadMessage, Goodbye, Heard, Reader, Said, encoded

A, B = Member("node-a", 7), Member("node-b", 1 << 62)
TERM = Term(3, 99)
PROMISE = Promise(TERM, 12, frozenset({A, B}))
HISTORY = (TermStart(Term(1, 5), 0), TermStart(TERM, 4_096))
SAID: list[Said] = [
    Hello(1, A, PROMISE, HISTORY, 5_000),
    Hello(0, A, Promise(), (), 0),
    Welcome(1, TERM, 12, frozenset({A, B}), 5_000, 4_900),
    Blocks(1, TERM, 5_000, 5_300, (TermStart(TERM, 5_000),), 5_100, 5_000),
    Ends(1, TERM, 5_300, 5_100, 12),
    Watermark(1, TERM, 5_300, 5_100, 12, frozenset()),
    AskEnds(8),
    EndsAnswer(8, B, PROMISE, TERM, 5_300),
    AskPromise(TERM, A, 11),
    PromiseAnswer(TERM, B, Promise(), is_given=True),
    AskBlocks(4, 4_096, 5_300, HISTORY),
    GivenBlocks(4, 4_096, 4_500),
    BlocksNotGiven(4, "it is damaged there, too"),
    Goodbye("a newer connection of node-a"),
]
WITH_BYTES = (Blocks, GivenBlocks)
BLOCKS = bytes(range(250)) + b"\0" * 50


def bytes_of(message: Said) -> bytes:
    parts = (memoryview(BLOCKS)[:100], BLOCKS[100:]) if isinstance(message, WITH_BYTES) else ()
    return b"".join(encoded(message, parts))


def said(data: Sequence[bytes]) -> list[tuple[Said, bytes]]:
    """What a reader hears from these pieces."""
    reader = Reader()
    heard = [each for piece in data for each in reader.feed(piece)]
    assert reader.is_between_messages
    return [(each.message, b"".join(each.blocks)) for each in heard]


WANTED = [(each, BLOCKS if isinstance(each, WITH_BYTES) else b"") for each in SAID]
WHOLE = b"".join(map(bytes_of, SAID))


def test_every_message_comes_as_it_was_said() -> None:
    assert said([WHOLE]) == WANTED
    assert {type(each) for each in SAID} == set(wire._KINDS)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12, 13, 100])
def test_pieces_of_any_size_are_put_together(size: int) -> None:
    assert said([WHOLE[at : at + size] for at in range(0, len(WHOLE), size)]) == WANTED


def test_bytes_of_blocks_are_said_as_they_are() -> None:
    blocks = memoryview(BLOCKS)
    _, *beside = encoded(SAID[3], [blocks])
    assert beside[0] is blocks


@pytest.mark.parametrize("size", [1, 5, 64, 150, 100_000])
def test_bytes_of_blocks_are_put_to_where_they_stay(size: int) -> None:
    """By whoever reads the connection: into the room that a reader gives, however much it is."""
    data, reader = memoryview(WHOLE), Reader()
    found: list[Heard] = []
    while data:
        room = reader.room()
        count = min(len(room), len(data), size)
        assert count
        room[:count] = data[:count]
        data = data[count:]
        found += reader.came(count)
    assert [(each.message, b"".join(each.blocks)) for each in found] == WANTED
    assert all(each.blocks[0].readonly for each in found if each.blocks)
    assert reader.is_between_messages


def test_blocks_come_to_their_place_without_a_copy() -> None:
    reader = Reader()
    reader.feed(bytes_of(SAID[3])[: -len(BLOCKS)])
    room = reader.room()
    room[:] = BLOCKS
    (heard,) = reader.came(len(BLOCKS))
    assert [part.obj for part in heard.blocks] == [room.obj]
    assert reader.room().obj is not room.obj


def test_a_reader_knows_whether_it_has_half_a_message() -> None:
    reader = Reader()
    data = bytes_of(SAID[3])
    for piece, is_whole in ((data[:5], False), (data[5:-1], False), (data[-1:], True)):
        reader.feed(piece)
        assert reader.is_between_messages == is_whole


def test_a_field_that_is_not_known_is_passed_over() -> None:
    text = msgspec.msgpack.encode({"question": 8, "from_tomorrow": [1]})
    data = wire.HEAD.pack(wire.VERSION, wire._KIND_OF[AskEnds], 0, len(text), 0) + text
    assert said([data]) == [(AskEnds(8), b"")]


def head(version: int = 1, kind: int = 1, zero: int = 0, length: int = 0, size: int = 0) -> bytes:
    return wire.HEAD.pack(version, kind, zero, length, size)


def broken(kind: type[Said], **fields: object) -> bytes:
    """A message with some fields put wrong."""
    (good,) = [each for each in SAID if type(each) is kind][:1]
    text = msgspec.msgpack.encode({**msgspec.to_builtins(good), **fields})
    size = len(BLOCKS) if kind in WITH_BYTES else 0
    return head(1, wire._KIND_OF[kind], 0, len(text), size) + text


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (head(version=2), "speaks version 2"),
        (b"GET / HTTP/1.1\r\n\r\n", "speaks version 71"),
        (head(kind=77), "kind 77"),
        (head(zero=1), "kind 1"),
        (head(length=1 << 30), "at most 1048576"),
        (head(kind=3, size=1 << 30), "bytes of blocks; at most"),
        (head(kind=1, size=5), "5 bytes beside a message of kind 1"),
        (head(kind=3, size=0), "0 bytes beside a message of kind 3"),
        (head(length=1) + b"\xc1", "cannot be read"),
        (head(length=1) + b"\x80", "missing required field"),
        (broken(Hello, end="far"), "Expected `int`"),
        (broken(Hello, end=-1), "a number is out of range|not in the order of the log"),
        (broken(Hello, end=1 << 63), "a number is out of range"),
        (broken(Hello, history=[[[1, 5], 9], [[3, 9], 9]]), "not in the order of the log"),
        (broken(Hello, history=[[[1, 5], 5_001]]), "not in the order of the log"),
        (broken(Hello, member=["", 7]), "name is empty or too long"),
        (broken(Hello, member=["x" * 256, 7]), "name is empty or too long"),
        (broken(Welcome, high_watermark=5_001), "its watermark is behind its end"),
        (broken(Welcome, in_sync=[[f"n{n}", 1] for n in range(33)]), "more than 32 members"),
        (broken(Blocks, start=5_001), "its bytes are not those of its ends"),
        (broken(Ends, flushed=5_301), "more is synced than written"),
        (broken(Watermark, sync_to=-1), "a number is out of range"),
        (broken(AskPromise, term=[-1, 0]), "a number is out of range"),
        (broken(AskBlocks, start=5_300), "it asks for nothing"),
        (broken(AskBlocks, end=4_000, start=1), "not in the order of the log"),
        (broken(GivenBlocks, end=4_200), "its bytes are not those of its ends"),
        (broken(GivenBlocks, question=-1), "a number is out of range"),
        (broken(BlocksNotGiven, reason="x" * 513), "its reason is too long"),
        (broken(Goodbye, reason="x" * 513), "its reason is too long"),
    ],
)
def test_what_no_replica_says_is_told(data: bytes, why: str) -> None:
    with pytest.raises(BadMessage, match=why):
        Reader().feed(data)


def test_whatever_comes_is_heard_or_told() -> None:
    """Fuzz: bytes of a good conversation with some put wrong, cut anywhere."""
    dice = random.Random(20_261_125)
    told = 0
    for _ in range(3_000):
        data = bytearray(WHOLE)
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        at = dice.randrange(len(data))
        reader = Reader()
        try:
            for piece in (bytes(data[:at]), bytes(data[at:])):
                for heard in reader.feed(piece):
                    encoded(heard.message, heard.blocks)
        except BadMessage:
            told += 1
    assert told > 1_000

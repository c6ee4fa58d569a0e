"""What replicas say to each other, as bytes: a head, the message, and bytes of blocks beside it.

    head      version u8 (1) · kind u8 · 0 u16 · length of the message u32 · length of the bytes u32
    message   msgpack: the fields by name, as in `messages`
    bytes     of `Blocks` and `GivenBlocks` only: the log from its `start` on, without filler

Numbers are big-endian. Who reads passes over fields that it does not know, so a message may get new
ones; what changes its meaning changes the version. Bytes of blocks are never joined or copied: they
are written as they were read from the log, and come from the connection to where they stay.
Pure.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec
import numpy as np

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
    PeerMessage,
    PromiseAnswer,
    RepairMessage,
    Watermark,
    Welcome,
)
from app.cluster.replication.terms import Member, Promise, TermStart
from app.domain.limits import (
    NODE_NAME_CHARS_MAX,
    REPLICA_BLOCKS_BYTES_MAX,
    REPLICA_MESSAGE_BYTES_MAX,
    REPLICAS_MAX,
    TERMS_MAX,
)

VERSION: Final = 1
HEAD: Final = Struct(">BBHII")
NUMBER_MAX: Final = (1 << 63) - 1
"""Of offsets, versions, sessions, epochs and grants."""


class Goodbye(msgspec.Struct, frozen=True):
    """Last on a connection: why it is closed."""

    reason: str


STOPS: Final = "the replica stops"
"""The reason of one that ends in order: who leads goes on without it at once."""

REASON_CHARS_MAX: Final = 512

BETWEEN_BYTES: Final = 64 << 10
"""Read at once, where no bytes of blocks are on their way; what comes of them is copied."""
_NOWHERE: Final = memoryview(bytearray())

Said = PeerMessage | Goodbye
Bytes = Sequence[bytes | memoryview]

_KINDS: Final[tuple[type[Said], ...]] = (
    Goodbye,
    Hello,
    Welcome,
    Blocks,
    Ends,
    Watermark,
    AskEnds,
    EndsAnswer,
    AskPromise,
    PromiseAnswer,
    AskBlocks,
    GivenBlocks,
    BlocksNotGiven,
)
"""A message's kind is its place here; new ones come behind."""
_WITH_BYTES: Final = (Blocks, GivenBlocks)
_KIND_OF: Final = {kind: number for number, kind in enumerate(_KINDS)}
_encode: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final[tuple[Callable[[bytes], Said], ...]] = tuple(
    msgspec.msgpack.Decoder(kind).decode for kind in _KINDS
)


class BadMessage(Exception):
    """The other side says what no replica of this version says; the text is for people."""


class Heard(NamedTuple):
    """A message, and what came beside it."""

    message: Said
    blocks: list[memoryview]
    """The bytes of `Blocks` or `GivenBlocks`, in one piece that nothing else uses; else empty."""


def encoded(message: Said, blocks: Bytes = ()) -> list[bytes | memoryview]:
    """The bytes of a message, to be written one behind the other; those of `blocks` as they are."""
    text = _encode(message)
    size = sum([len(part) for part in blocks])
    assert bool(size) == isinstance(message, _WITH_BYTES), "bytes go with blocks alone"
    assert len(text) <= REPLICA_MESSAGE_BYTES_MAX
    assert size <= REPLICA_BLOCKS_BYTES_MAX
    return [HEAD.pack(VERSION, _KIND_OF[type(message)], 0, len(text), size) + text, *blocks]


class Reader:
    """Puts together what one connection brings. Bytes of blocks come to where they stay."""

    def __init__(self) -> None:
        self._start = bytearray()
        """Head and message, as far as they have come."""
        self._message: Said | None = None
        """Whose blocks are on their way."""
        self._blocks = _NOWHERE
        """Of that message; so many bytes of them have come: `_filled`."""
        self._filled = 0
        self._between = memoryview(bytearray(BETWEEN_BYTES))

    @property
    def is_between_messages(self) -> bool:
        """Whether nothing of a message has come that has not come whole."""
        return not self._start and self._message is None

    def room(self) -> memoryview:
        """Where the next bytes are to be put; one at least. `came` tells how many were."""
        return self._between if self._message is None else self._blocks[self._filled :]

    def came(self, count: int) -> list[Heard]:
        """So many bytes stand in `room()`: as `feed`."""
        if self._message is None:
            return self.feed(self._between[:count])
        self._filled += count
        heard: list[Heard] = []
        self._end(heard)
        return heard

    def feed(self, data: bytes | memoryview) -> list[Heard]:
        """What is whole now, in order. Raises `BadMessage`; nothing may be fed after that."""
        heard: list[Heard] = []
        view, at = memoryview(data), 0
        while at < len(view):
            if self._message is None:
                at = self._take_start(view, at)
            else:
                part = view[at : at + len(self._blocks) - self._filled]
                self._blocks[self._filled : self._filled + len(part)] = part
                self._filled += len(part)
                at += len(part)
            self._end(heard)
        return heard

    def _end(self, heard: list[Heard]) -> None:
        if self._message is not None and self._filled == len(self._blocks):
            blocks = [self._blocks.toreadonly()] if self._filled else []
            heard.append(Heard(self._message, blocks))
            self._message, self._blocks, self._filled = None, _NOWHERE, 0

    def _take_start(self, view: memoryview, at: int) -> int:
        """Take what there is of head and message; where to go on."""
        start = self._start
        if len(start) < HEAD.size:
            end = min(at + HEAD.size - len(start), len(view))
            start += view[at:end]
            if len(start) < HEAD.size:
                return end
            at = end
        kind, length, size = _checked_head(start)
        end = min(at + HEAD.size + length - len(start), len(view))
        start += view[at:end]
        if len(start) == HEAD.size + length:
            self._message = _decoded(kind, bytes(start[HEAD.size :]), size)
            if size:  # not a bytearray, whose zeros would be written first
                self._blocks = np.empty(size, np.uint8).data
            start.clear()
        return end


def _checked_head(start: bytearray) -> tuple[int, int, int]:
    version, kind, zero, length, size = HEAD.unpack_from(start)
    if version != VERSION:
        raise BadMessage(f"it speaks version {version} of the replicas' language, not {VERSION}")
    if kind >= len(_KINDS) or zero:
        raise BadMessage(f"no replica sends messages of kind {kind}")
    if length > REPLICA_MESSAGE_BYTES_MAX:
        raise BadMessage(f"a message of {length} bytes; at most {REPLICA_MESSAGE_BYTES_MAX}")
    if size > REPLICA_BLOCKS_BYTES_MAX:
        raise BadMessage(f"{size} bytes of blocks; at most {REPLICA_BLOCKS_BYTES_MAX}")
    if bool(size) != (_KINDS[kind] in _WITH_BYTES):
        raise BadMessage(f"{size} bytes beside a message of kind {kind}")
    return kind, length, size


def _decoded(kind: int, text: bytes, size: int) -> Said:
    try:
        message = _DECODE[kind](text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # a ValidationError is one, too
        raise BadMessage(f"a message of kind {kind} that cannot be read: {error}") from None
    try:
        _check(message, size)
    except ValueError as error:
        raise BadMessage(f"a {type(message).__name__} that cannot be: {error}") from None
    return message


def _check(message: Said, size: int) -> None:
    """Raise `ValueError` for what no replica means."""
    if isinstance(message, Goodbye):
        _need(len(message.reason) <= REASON_CHARS_MAX, "its reason is too long")
    elif isinstance(message, AskEnds | EndsAnswer | AskPromise | PromiseAnswer):
        _check_election(message)
    elif isinstance(message, AskBlocks | GivenBlocks | BlocksNotGiven):
        _check_repair(message, size)
    else:
        _check_numbers(message.session)
        if isinstance(message, Hello):
            _check_hello(message)
        else:
            _check_stream(message, size)


def _check_hello(hello: Hello) -> None:
    _check_member(hello.member)
    _check_promise(hello.promise)
    _check_numbers(hello.end)
    _check_history(hello.history, hello.end)


def _check_stream(message: Welcome | Blocks | Ends | Watermark, size: int) -> None:
    _check_numbers(*message.term)
    match message:
        case Welcome():
            _check_set(message.in_sync)
            _check_numbers(message.in_sync_version, message.cut_to, message.high_watermark)
            _need(message.high_watermark <= message.cut_to, "its watermark is behind its end")
            _check_numbers(message.begins_at)
            _check_history(message.history, message.begins_at)
        case Blocks():
            _check_numbers(message.start, message.end, message.sync_to, message.high_watermark)
            _need(0 < size <= message.end - message.start, "its bytes are not those of its ends")
            _check_history(message.term_starts, message.end)
        case Ends():
            _check_numbers(message.written, message.flushed, message.noted_version)
            _need(message.flushed <= message.written, "more is synced than written")
        case Watermark():
            _check_set(message.in_sync)
            _check_numbers(message.high_watermark, message.sync_to, message.in_sync_version)
            _check_numbers(message.log_start)


def _check_election(message: AskEnds | EndsAnswer | AskPromise | PromiseAnswer) -> None:
    match message:
        case AskEnds():
            _check_numbers(message.question)
        case EndsAnswer():
            _check_member(message.member)
            _check_promise(message.promise)
            _check_numbers(message.question, *message.last_term, message.end, message.log_start)
        case AskPromise():
            _check_member(message.leader)
            _check_numbers(*message.term, message.settled_version)
        case PromiseAnswer():
            _check_member(message.member)
            _check_promise(message.former)
            _check_numbers(*message.term)


def _check_repair(message: RepairMessage, size: int) -> None:
    _check_numbers(message.question)
    if isinstance(message, BlocksNotGiven):
        _need(len(message.reason) <= REASON_CHARS_MAX, "its reason is too long")
        return
    _check_numbers(message.start, message.end)
    if isinstance(message, AskBlocks):
        _need(message.start < message.end, "it asks for nothing")
        _check_history(message.history, message.end)
    else:
        _need(0 < size <= message.end - message.start, "its bytes are not those of its ends")


def _need(is_so: bool, why: str) -> None:  # reads as a sentence
    if not is_so:
        raise ValueError(why)


def _check_numbers(*numbers: int) -> None:
    _need(all(0 <= number <= NUMBER_MAX for number in numbers), "a number is out of range")


def _check_member(member: Member) -> None:
    _need(0 < len(member.node) <= NODE_NAME_CHARS_MAX, "a node's name is empty or too long")
    _check_numbers(member.incarnation)


def _check_set(members: frozenset[Member]) -> None:
    _need(len(members) <= REPLICAS_MAX, f"its set has more than {REPLICAS_MAX} members")
    for member in members:
        _check_member(member)


def _check_promise(promise: Promise) -> None:
    _check_numbers(*promise.term, promise.in_sync_version)
    _check_set(promise.in_sync)


def _check_history(history: tuple[TermStart, ...], end: int) -> None:
    _need(len(history) <= TERMS_MAX, f"its history has more than {TERMS_MAX} terms")
    before = -1
    for entry in history:
        _check_numbers(*entry.term, entry.start)
        _need(before < entry.start <= end, "its history is not in the order of the log")
        before = entry.start

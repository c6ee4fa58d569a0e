"""Reading the rest of a body straight to where it will stay. Used by `protocol` only.

Piece by piece a body is copied by the event loop, by the parser and when it is joined, and each
piece pauses reading and wakes whoever waits. A body whose length is known needs none of that: while
it comes, the connection's bytes go into one piece of memory, and the parser does not see them.

Whoever announces much and sends little is given little: room for `FIRST_ROOM_BYTES` at first, and
then for as much again as has come. Event loop only.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from typing_extensions import override

from app.domain.errors import CurlewError
from app.domain.limits import MIB

FIRST_ROOM_BYTES: Final = 3 * MIB
"""For most frames, though not for those of Spark (ADR 0040); from 4 MiB on numpy asks for huge
pages, of which one byte takes 2 MiB."""


class Connection(Protocol):
    """Whose body it is."""

    def eof_received(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def body_grew(self, size: int) -> None:
        """So much more has come."""
        ...

    def body_ended(self) -> None:
        """All of it has come, or nothing more of it is wanted."""
        ...


class BodyReader(asyncio.BufferedProtocol):
    """Takes a connection's bytes until `size` of a body are there, and not one more."""

    def __init__(
        self,
        connection: Connection,
        first: bytes | bytearray,
        size: int,
        hold: Callable[[int], None],
    ) -> None:
        """`first` has come already, less than `size`. `hold` may refuse what comes."""
        self._connection = connection
        self._size = size
        self._hold = hold
        self._room = _room(min(size, max(FIRST_ROOM_BYTES, 2 * len(first))))
        self._room[: len(first)] = first
        self._got = len(first)
        self.refusal: CurlewError | None = None

    @property
    def is_whole(self) -> bool:
        return self._got == self._size

    def take(self) -> memoryview:
        """The body, once. The transport may keep this object, which must not keep the body."""
        body, self._room = self._room[: self._got], memoryview(b"")
        return body

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        if self._got == len(self._room):
            room = _room(min(self._size, 2 * self._got))
            room[: self._got] = self._room
            self._room = room
        return self._room[self._got :]

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self._got += nbytes
        try:
            self._hold(nbytes)
        except CurlewError as refusal:
            self.refusal = refusal
            self._connection.body_ended()
            return
        self._connection.body_grew(nbytes)
        if self._got == self._size:
            self._connection.body_ended()

    @override
    def eof_received(self) -> None:
        self._connection.eof_received()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    @override
    def pause_writing(self) -> None:
        self._connection.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._connection.resume_writing()


def _room(size: int) -> memoryview:
    """Not a bytearray, whose zeros would be written first."""
    return np.empty(size, np.uint8).data

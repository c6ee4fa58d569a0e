"""One connection between two replicas: messages both ways, in order, until either side ends it.

It ends with a reason, which the other side is told where it listens: a message that no replica
says, silence, a newer connection, a stop. Bytes of blocks are written and heard without being
copied. Event loop only.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol

from typing_extensions import override

from app.cluster.replication.messages import PeerMessage
from app.cluster.wire.codec import (
    REASON_CHARS_MAX,
    STOPS,
    BadMessage,
    Bytes,
    Goodbye,
    Heard,
    Reader,
    Said,
    encoded,
)
from app.domain.limits import REPLICA_UNDER_WAY_BYTES_MAX, REPLICA_UNSENT_BYTES_MAX

_LOG: Final = logging.getLogger(__name__)

GOODBYE_SECONDS: Final = 1.0
"""For what was said before an end to go out."""


class LinkOwner(Protocol):
    """Hears of a link, and may close it at any time."""

    def heard(self, link: "ReplicaLink", message: PeerMessage, blocks: list[memoryview]) -> None:
        """A message has come; with `Blocks` the bytes, one behind the other."""
        ...

    def has_room(self, link: "ReplicaLink") -> None:
        """It takes blocks again, after it had no `room`."""
        ...

    def is_over(self, link: "ReplicaLink", reason: str) -> None:
        """It has ended; called once, and the last call."""
        ...


class ReplicaLink(asyncio.BufferedProtocol):
    """A connection whose handshake is over. `node` is the other side."""

    def __init__(self, owner: LinkOwner, node: str, session: int, silence_s: float) -> None:
        """It ends when nothing has come for `silence_s`."""
        self.node = node
        self.session = session
        """Of two connections of a node the one with the larger number is newer."""
        self.is_open = True
        self.is_paused = False
        self._owner = owner
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._reader = Reader()
        self._farewell: str | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_other_stopped(self) -> bool:
        """Whether the other side has said that it stops."""
        return self._farewell == STOPS

    @property
    def room(self) -> int:
        """Bytes of blocks that it takes now; 0: wait for `has_room`."""
        if self._transport is None or not self.is_open:
            return 0
        return max(REPLICA_UNDER_WAY_BYTES_MAX - self._transport.get_write_buffer_size(), 0)

    def send(self, message: Said, blocks: Bytes = ()) -> None:
        """Say something, where it is open. The buffers of `blocks` must stay as they are.

        Blocks are for who looks at `room` first; one that is larger goes when there is some.
        """
        if self._transport is None or not self.is_open:
            return
        self._transport.writelines(encoded(message, blocks))
        unsent = self._transport.get_write_buffer_size()
        if unsent > REPLICA_UNSENT_BYTES_MAX:
            self._end(f"it takes nothing: {unsent} bytes are unsent")
            self._transport.abort()

    def close(self, reason: str) -> None:
        """End it, and tell the other side why. Idempotent."""
        if not self.is_open:
            return
        reason = reason[:REASON_CHARS_MAX]
        if self._transport is not None:
            self.send(Goodbye(reason))
            self._say_no_more(self._transport)
            self._loop.call_later(GOODBYE_SECONDS, self._transport.abort)
        self._end(reason)

    def _say_no_more(self, transport: asyncio.Transport) -> None:
        """Take what comes until the other side has ended it, too: the system resets a connection
        that is closed with something unread, and who writes to it then never reads the goodbye."""
        if transport.is_closing():
            return
        if not transport.can_write_eof():  # of TLS
            transport.close()
            return
        transport.write_eof()
        if self.is_paused:
            transport.resume_reading()

    def pause(self) -> None:
        """Read nothing more; what was read already is still heard. Idempotent, as `resume`."""
        if self._transport is not None and self.is_open and not self.is_paused:
            self.is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and self.is_open and self.is_paused:
            self.is_paused = False
            self._heard_s = self._loop.time()
            self._transport.resume_reading()

    # --- the transport

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        if not self.is_open:  # closed before it was there
            transport.close()
            return
        connection = transport.get_extra_info("socket")
        if connection is not None:  # asyncio does it only where the listener names its protocol
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        high = REPLICA_UNDER_WAY_BYTES_MAX
        transport.set_write_buffer_limits(high=high, low=high // 2)
        transport.pause_reading()  # uvloop goes on reading as for the protocol before
        transport.resume_reading()
        self._watch_silence()

    def came_before(self, data: bytes) -> None:
        """What the connection has brought before this link had it."""
        if self.is_open:
            self._hear(lambda: self._reader.feed(data))

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self.is_open:
            self._hear(lambda: self._reader.came(nbytes))

    def _hear(self, take: Callable[[], list[Heard]]) -> None:
        self._heard_s = self._loop.time()
        try:
            heard = take()
        except BadMessage as error:
            _LOG.warning("replica %s is not understood: %s", self.node, error)
            self.close(f"not understood: {error}")
            return
        for message, blocks in heard:
            if not self.is_open:
                return
            if isinstance(message, Goodbye):
                self._farewell = message.reason
            else:
                self._owner.heard(self, message, blocks)

    @override
    def resume_writing(self) -> None:
        if self.is_open:
            self._owner.has_room(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._farewell is not None:
            reason = f"the other side: {self._farewell}"
        elif not self._reader.is_between_messages:
            reason = "it broke off within a message"
        else:
            reason = "the connection is lost" if exc is None else f"the connection is lost: {exc}"
        self._end(reason)

    def _watch_silence(self) -> None:
        if self.is_paused:
            self._heard_s = self._loop.time()  # it is we who do not listen
        left = self._heard_s + self._silence_s - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch_silence)
        else:
            self.close(f"silent for {self._silence_s:g} s")

    def _end(self, reason: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        _LOG.info("the connection with replica %s has ended: %s", self.node, reason)
        self._owner.is_over(self, reason)

"""Credit of streams that another node answers, as far as it is used up by messages of this shard.

Such a node asks for messages with the id of its stream, and waits here to hear how many of them are
unsettled: its client may settle them through any node. A stream is known from its first message on
until none of it is unsettled, so that nothing is kept of one that has ended. Event loop only.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.broker.read.long_polls import Watch
from app.broker.streams.credit import Credit, Credits


class Unsettled(NamedTuple):
    """What a stream has of a shard."""

    epoch: int
    """Of the shard: what was given in an earlier one is not known any more."""
    version: int
    """Rises with each change, within an epoch."""
    messages: int
    """How many count."""
    left_ms: int
    """After so long none of them is leased, unless it is extended meanwhile."""


class _Share(Credit):
    """Of one stream."""

    __slots__ = ("changed", "stream", "version")

    def __init__(self, stream: str, on_room: Callable[[], None]) -> None:
        super().__init__(0, on_room)
        self.stream = stream
        self.version = 0
        self.changed: set[asyncio.Future[None]] = set()


class CreditElsewhere:
    """One per broker."""

    def __init__(
        self, of_streams: Credits, epoch: Callable[[], int], monotonic_s: Callable[[], float]
    ) -> None:
        self._credits = of_streams
        self._epoch = epoch
        self._monotonic_s = monotonic_s
        self._shares: dict[str, _Share] = {}
        self._version = 0
        self._is_closed = False

    def take(self, stream: str, handles: Sequence[str], until_s: float) -> None:
        """Messages are given to a stream: before it hears of them. `until_s`: the monotonic second
        at which their leases end."""
        share = self._shares.get(stream)
        if share is None:
            share = _Share(stream, lambda: self._changed(stream))
            self._shares[stream] = share
        self._credits.take(share, handles, until_s)
        self._changed(stream)

    def _changed(self, stream: str) -> None:
        share = self._shares[stream]
        self._version += 1
        share.version = self._version
        _end_all(share)
        if share.held == 0:
            del self._shares[stream]

    def unsettled(self, stream: str) -> Unsettled:
        """How it is now."""
        share = self._shares.get(stream)
        if share is None:
            return Unsettled(self._epoch(), self._version, 0, 0)
        left_ms = max(0, round((share.until_s - self._monotonic_s()) * 1_000))
        return Unsettled(self._epoch(), share.version, share.held, left_ms)

    async def wait(self, stream: str, known: int, wait_s: float, watch: Watch) -> Unsettled:
        """How it is as soon as it is another version than `known`, or after `wait_s` seconds, or
        when the client leaves or the node stops."""
        share = self._shares.get(stream)
        if share is None or share.version != known or self._is_closed:
            return self.unsettled(stream)
        loop = asyncio.get_running_loop()
        changed: asyncio.Future[None] = loop.create_future()
        share.changed.add(changed)
        timer = loop.call_later(wait_s, _end, changed)
        try:
            watch(lambda: _end(changed))
            await changed
        finally:
            timer.cancel()
            share.changed.discard(changed)
        return self.unsettled(stream)

    def close(self) -> None:
        """The node stops: nobody waits."""
        self._is_closed = True
        for share in self._shares.values():
            _end_all(share)


def _end_all(share: _Share) -> None:
    for each in tuple(share.changed):
        _end(each)


def _end(changed: asyncio.Future[None]) -> None:
    if not changed.done():
        changed.set_result(None)

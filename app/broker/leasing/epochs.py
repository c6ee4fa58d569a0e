"""The epoch of a store: a number that rises each time somebody begins to lead it. Kept in the log.

A node that starts begins the next epoch, and nobody gets a lease before the log has it, on the
medium. So a lease id says in which life of the node it was given, by no clock: ids of a later epoch
are higher. Event loop only.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from app.broker.context import Context
from app.broker.journal.append_future import AppendFuture
from app.broker.journal.journal import QUEUE, Journal
from app.domain.errors import (
    CurlewError,
    DiskFull,
    NotEnoughReplicas,
    StoreFailed,
    SystemBusy,
    TooManyRequests,
)
from app.domain.limits import MIB
from app.domain.names import EPOCHS_TOPIC
from app.domain.positions import FlushMode

LEASES_OF_EPOCH: Final = 1 << 40
"""Lease ids of one epoch: a hundred thousand leases a second for four months."""


RENEWED_AFTER_BYTES: Final = MIB
"""Of the log."""

CONFIRMED_SECONDS: Final = 3.0
"""How long an epoch that is not the term's waits for other replicas: less than a lease (5 s)."""


class LeaseIds:
    """Numbers for leases, rising, also over restarts: epoch · 2^40 + a counter."""

    __slots__ = ("next",)

    def __init__(self, epoch: int = 0) -> None:
        self.begin(epoch)

    def begin(self, epoch: int, counter: int = 0) -> None:
        """Go on with the ids of an epoch, before the first one is taken."""
        self.next = epoch * LEASES_OF_EPOCH + counter

    def take(self, count: int) -> int:
        """Return the first of `count` new ids."""
        first = self.next
        self.next = first + count
        return first


def epoch_of(lease_id: int) -> int:
    """The epoch in which a lease was given."""
    return lease_id // LEASES_OF_EPOCH


class EpochBegun(Struct, array_like=True, tag=1):
    """An entry: the store is led in this epoch from here on."""

    epoch: int
    since_ms: int
    """By the wall clock, epoch ms."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(EpochBegun).decode


class EpochState:
    """The newest epoch of the log; a `JournaledState`."""

    def __init__(self) -> None:
        self.newest: EpochBegun | None = None

    def clear(self) -> None:
        self.newest = None

    def apply(self, entry: bytes) -> None:
        begun = _decode(entry)
        if self.newest is None or begun.epoch > self.newest.epoch:
            self.newest = begun

    def load(self, chunk: bytes) -> None:
        self.apply(chunk)

    def dump(self) -> Iterable[bytes]:
        return [] if self.newest is None else [_encode(self.newest)]


class Epochs:
    """Of one store. `load`, then `begin`."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._clock = context.clock
        self._state = EpochState()
        self.journal = Journal(context.store, EPOCHS_TOPIC, self._state, context.readers)
        self.current = 0
        """0: none has begun."""
        self.since_ms = 0
        self._written_at = 0
        """End of the log when the epoch was written down last; what is before holds no segment."""

    async def load(self) -> None:
        """Read back what the log knows."""
        await self.journal.replay()

    @property
    def is_known(self) -> bool:
        """Whether the log has had an epoch, damaged or not. False: the store is new, or of a
        version without them."""
        return self._state.newest is not None or self._store.next_offset(EPOCHS_TOPIC, QUEUE) > 0

    async def begin(self, lease_ids: LeaseIds, floor: int = 0) -> None:
        """Lead the store in an epoch above all that were before; return when the medium has it.

        It is above `floor` too, the newest that others have heard of: of a term, the one before.

        On a full disk the node starts all the same: the entry waits for room, and comes before
        everything else that is appended. So it does where a write has failed: nothing is written
        then, but messages can be read. Should the node end before, the next start takes the same
        number; so does a store that was restored from a copy, or whose epochs are damaged. So the
        ids of each life are taken from a random place in it.

        Where other replicas confirm what is written, and the epoch is that of the term, it is not
        waited for: each later term has a higher one, and no lease is answered before what is behind
        the entry is confirmed, too. Where the log knows a later epoch, which is of another database
        or of one that was restored, it is waited for, and `NotEnoughReplicas` is raised when it is
        refused, or not confirmed in `CONFIRMED_SECONDS`: the replica resigns.
        """
        newest = 0 if self._state.newest is None else self._state.newest.epoch
        self.current = max(newest, floor) + 1
        self.since_ms = self._clock.now_ms()
        entry = EpochBegun(self.current, self.since_ms)
        part = self.journal.entry(_encode(entry))
        self._state.newest = entry
        lease_ids.begin(self.current, secrets.randbelow(LEASES_OF_EPOCH // 2))
        if self._store.has_gate and self.current == floor + 1:
            self._store.first_steps.append(part)
            return
        written = AppendFuture()
        try:
            (appended,) = self._store.append_step((part,), FlushMode.SYNC, written.done)
            await self._confirmed(written)
        except (DiskFull, SystemBusy, TooManyRequests, StoreFailed):
            self._store.first_steps.append(part)
        else:
            self._store.trim(EPOCHS_TOPIC, QUEUE, appended.first_queue_offset)
            self._written_at = self._store.written_end

    async def _confirmed(self, written: AppendFuture) -> None:
        """A lone node waits for its own disk, however long that takes."""
        by_s = asyncio.get_running_loop().time() + CONFIRMED_SECONDS
        if not await written.is_safe_by(by_s if self._store.has_gate else None):
            raise NotEnoughReplicas(
                f"no other replica has confirmed epoch {self.current} in {CONFIRMED_SECONDS:g} s",
                hint="start another replica; and see whether the database was restored",
                outcome="unknown",
            )

    async def renew(self) -> None:
        """Write the epoch down again when much was written behind it, or its entry would hold a
        segment that retention may want to delete."""
        end = self._store.written_end
        if end - self._written_at < RENEWED_AFTER_BYTES:
            return
        with contextlib.suppress(CurlewError):  # the next pass of retention tries again
            await self.journal.write_snapshot()
            self._written_at = end

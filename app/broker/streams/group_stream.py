"""A stream of messages leased to a group: at most `credit` unsettled ones at a time.

Settling them by the usual calls, from any connection, makes room. Event loop only.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from app.broker.leasing.holders import LEASES_QUOTA
from app.broker.ports import Group, Topic
from app.broker.results import Delivery, ReceiveRequest
from app.broker.streams.credit import Credit
from app.broker.streams.stream import SharedParts, Stream, StreamEnd, StreamEnded, StreamRequest
from app.domain.consumers.consumption import ConsumptionEffect
from app.domain.errors import ShuttingDown, TooManyRequests, TopicNotFound

_ROOM_LOOK_S: Final = 0.5
"""How often is looked whether another stream of the principal has given room."""


@dataclass(frozen=True, slots=True)
class GroupStreamRequest(StreamRequest):
    """How many unsettled messages at a time, and for how long each."""

    credit: int
    invisible_ms: int | None = None
    force: bool = False
    """Lease although members of the group read the topic: they lose it."""
    replace_subscription: bool = False
    """Read with this filter although the group reads the topic with another one."""


class GroupStream(Stream):
    """Messages leased to a group, as long as there is credit."""

    def __init__(
        self,
        shared: SharedParts,
        topic: Topic,
        group: Group,
        request: GroupStreamRequest,
        effects: Sequence[ConsumptionEffect] = (),
    ) -> None:
        super().__init__(shared, topic, request)
        self.effects = effects
        """What opening it has ended."""
        self._group = group
        self._request = request
        self._waiting: asyncio.Future[None] | None = None
        self.credit = Credit(request.credit, self.wake)

    @property
    def group_name(self) -> str:
        return self._group.name

    @property
    def filter(self) -> str | None:
        return self._request.filter

    @override
    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def next(self, wait_s: float) -> list[Delivery]:
        """What was leased, or nothing after `wait_s`. Raises `StreamEnded`, or receive's error.

        A call that is cancelled leases nothing: what it was being granted is given back.
        """
        deadline = self._loop.time() + wait_s
        while True:
            self._check()
            left = self._left_until(deadline)
            room = self._messages_max(self.credit.room)
            deliveries = await self._receive(room, max(left, 0.0)) if room > 0 else []
            if deliveries:
                self._count(len(deliveries))
                return deliveries
            if self._left_until(deadline) <= 0:
                return []
            if room <= 0:
                await self._wait_for_room(left)
            else:
                await asyncio.sleep(0)

    @override
    def _check(self) -> None:
        super()._check()
        group = self._shared.metadata.snapshot.groups.get(self._group.name)
        if group is None or group.created_ms != self._group.created_ms:
            raise StreamEnded(StreamEnd.GROUP_DELETED)

    async def _receive(self, room: int, wait_s: float) -> list[Delivery]:
        shared, request = self._shared, self._request
        limits = shared.limits
        asked = ReceiveRequest(
            max_messages=min(room, limits.receive_messages_max),
            max_bytes=limits.stream_chunk_bytes_max,
            wait_s=min(wait_s, limits.wait_seconds_max),
            invisible_ms=request.invisible_ms,
            filter=request.filter,
            principal=request.principal,
        )
        try:
            result = await shared.receive(
                self._topic.name,
                self._group.name,
                asked,
                gone=lambda: self.is_closed or self.is_refused,
                watch=self._watch,
            )
            self._end_wait = None
        except TooManyRequests as error:
            if error.quota is None or error.quota.name != LEASES_QUOTA:
                raise
            # Its principal holds as much as it may: something must be settled.
            await self._wait_for_room(min(wait_s, _ROOM_LOOK_S))
            return []
        except (ShuttingDown, TopicNotFound) as error:
            self._check()
            raise StreamEnded(StreamEnd.ERROR, error) from error
        deliveries = result.deliveries
        if deliveries:
            until_s = shared.monotonic_of(deliveries[0].invisible_until_ms)
            handles = [delivery.receipt_handle for delivery in deliveries]
            shared.credits.take(self.credit, handles, until_s)
        return deliveries

    async def _wait_for_room(self, wait_s: float) -> None:
        self._waiting = self._loop.create_future()
        timer = self._loop.call_later(wait_s, self.wake)
        try:
            await self._waiting
        finally:
            timer.cancel()
            self._waiting = None

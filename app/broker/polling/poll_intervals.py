"""Members that promised to poll: one that stays away for longer than it said is taken out.

A member may send heartbeats from a thread of its own while its work hangs. Who names
`max_poll_interval` in its polls is not kept alive by them: the time counts from the answer to one
poll to the next poll on this node. Who names none is not watched. In memory only: after a restart
the time counts from the next poll on. Event loop only.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from app.broker.context import Context
from app.broker.members.members import Members

_Names = tuple[str, str]
"""Group and client id."""
_UNPROMISED: Final = nullcontext()
"""For a poll that is not watched."""


class _Promise:
    """One member's. `polls` are under way now."""

    __slots__ = ("interval_s", "polls", "since_s")

    def __init__(self) -> None:
        self.interval_s = 0.0
        self.polls = 0
        self.since_s = 0.0


class PollIntervals:
    """One per broker; `turn` is a service's."""

    def __init__(self, context: Context, members: Members) -> None:
        self._clock = context.clock
        self._members = members
        self._promises: dict[_Names, _Promise] = {}

    @property
    def count(self) -> int:
        """Members that are watched."""
        return len(self._promises)

    def polling(
        self, group: str, client_id: str, interval_ms: int | None
    ) -> AbstractContextManager[None]:
        """A poll is under way."""
        if interval_ms is not None:
            return self._promised((group, client_id), interval_ms)
        self._promises.pop((group, client_id), None)
        return _UNPROMISED

    @contextmanager
    def _promised(self, names: _Names, interval_ms: int) -> Iterator[None]:
        promise = self._promises.get(names)
        if promise is None:
            promise = self._promises[names] = _Promise()
        promise.interval_s = interval_ms / 1_000
        promise.polls += 1
        try:
            yield
        finally:
            promise.polls -= 1
            promise.since_s = self._clock.monotonic_s()

    async def turn(self) -> None:
        """Take out who has stayed away. Raises `MetadataUnavailable`."""
        now_s = self._clock.monotonic_s()
        for names, promise in list(self._promises.items()):
            if promise.polls:
                continue
            if not self._members.is_member(*names):
                self._promises.pop(names, None)
            elif now_s - promise.since_s >= promise.interval_s:
                await self._members.expel(*names)
                self._promises.pop(names, None)

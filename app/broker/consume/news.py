"""Whether there may be something new for a group in a topic, for who waits at another node.

Such a one has looked and found too little. It waits here for a change of the state that it saw
before it looked, and is leased nothing meanwhile: when there is news it comes and looks again. It
stands in the line of receives; what wakes it wakes the next as well. Event loop only.
"""

from typing import Final

from app.broker.context import Context
from app.broker.groups.groups import Groups
from app.broker.leasing.epochs import epoch_of
from app.broker.read.long_polls import LongPolls, Watch

CLOSED: Final = "closed"
"""In place of a state: the node is stopping."""
ENDED: Final = "ended"
"""In place of a state: the topic or group was deleted meanwhile."""


class News:
    """One per broker."""

    def __init__(self, context: Context, long_polls: LongPolls, groups: Groups) -> None:
        self._bounds = context.store.bounds
        self._long_polls = long_polls
        self._groups = groups

    def state(self, topic: str, group: str) -> str:
        """Another text whenever there may be something new since the text before. It is ASCII, and
        has the epoch in front."""
        epoch = epoch_of(self._groups.lease_ids.next)
        subscription = self._groups.find(group, topic)
        if subscription is None:
            return f"{epoch}."
        ends = sum(
            self._bounds(queue.stored_topic, queue.stored_queue_id).max_offset
            for queue in subscription.sources
        )
        return f"{epoch}.{subscription.retry.first_lease_id}.{subscription.line.ring_count}.{ends}"

    async def wait(
        self, topic: str, group: str, known: str, wait_s: float, watch: Watch | None = None
    ) -> str:
        """The state, as soon as it is another one than `known`; or `CLOSED`, or `ENDED`. It is
        `known` when time is up or the client has left. Raises `TooManyRequests`."""
        state = self._state_for(topic, group, known)
        if state != known or wait_s <= 0:
            return state
        subscription = self._groups.find(group, topic)
        assert subscription is not None, "without one it has ended"
        line = subscription.line
        if await self._long_polls.wait_in_line(line, wait_s, 1, watch):
            line.wake_one()
        return self._state_for(topic, group, known)

    def _state_for(self, topic: str, group: str, known: str) -> str:
        if self._long_polls.closed:
            return CLOSED
        state = self.state(topic, group)
        is_without = state.endswith(".")
        return ENDED if is_without and known.startswith(state) else state

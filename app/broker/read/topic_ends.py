"""Where topics stand: bounds, sizes and generation of all their queues, in one look or by waiting.

For readers that plan by offsets over many queues, such as Spark: one call says all, and a call that
knows the state before waits until it is another one. Nothing is remembered for a caller; `state` is
a digest of what it was told. Who plans durably asks for ends that are on the medium: what was read
below them is still there after a power loss, and their offsets are not given again.

Event loop only.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.journal.append_future import flush_store
from app.broker.read.long_polls import LongPolls
from app.broker.read.puller import check_wait
from app.broker.read.start_offsets import start_offsets
from app.broker.results import QueuePosition, QueueRange
from app.broker.topic_lookup import find_topic
from app.domain.errors import InvalidRequest
from app.domain.limits import Limits
from app.domain.names import check_topic
from app.domain.settings import StartPosition

_SIZES_A_TURN: Final = 2_048
"""Queues of which one turn of the event loop samples the sizes; some milliseconds."""

_BOUNDS_A_TURN: Final = 8_192
"""Queues of which one turn reads the bounds; some milliseconds."""

_DIGEST_BYTES: Final = 12
_NEW_TOPIC: Final = -1
"""Stands for the queues of a topic that is waited for and does not exist yet."""


class QueueState(NamedTuple):
    """One queue. `average_bytes`: of its stored records, from a sample; None when it is empty."""

    queue_id: int
    min_offset: int
    max_offset: int
    average_bytes: int | None


class TopicState(NamedTuple):
    """One topic. `generation` grows when a topic is deleted and made anew under its name."""

    topic: str
    generation: int
    queues: list[QueueState]


class TopicStates(NamedTuple):
    """The topics that exist, those that do not, and a token for exactly this."""

    state: str
    topics: list[TopicState]
    missing: list[str]


def check_count(names: Sequence[str], limits: Limits) -> None:
    """Raise `InvalidRequest` for too many or none, and `IllegalTopic` for what is no name."""
    limit = limits.topics_per_look_max
    if not 1 <= len(names) <= limit:
        raise InvalidRequest(
            f"{len(names)} topics are asked for; from 1 to {limit} can be",
            hint="name them in one parameter, parted by commas",
            fields={"limit": limit},
        )
    for name in names:
        check_topic(name)


class TopicEnds:
    """Answers where topics stand. One per broker."""

    def __init__(self, context: Context, long_polls: LongPolls) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._limits = context.limits
        self._long_polls = long_polls
        self._readers = context.readers
        self._check_open = context.gate.check

    def bounds(self, topic: str) -> list[QueueRange]:
        """Readable offsets of each queue of a topic. Raises `TopicNotFound`."""
        view = find_topic(self._metadata, topic)
        bounds = self._store.bounds
        return [QueueRange(queue_id, *bounds(topic, queue_id)) for queue_id in range(view.queues)]

    async def offsets_at(self, topic: str, start: StartPosition) -> list[QueuePosition]:
        """An offset for each queue: the first, the end, or the first stored at or after a time."""
        self._check_open()
        view = find_topic(self._metadata, topic)
        bounds = [self._store.bounds(topic, queue_id) for queue_id in range(view.queues)]
        offsets = await start_offsets(self._store, self._readers, topic, bounds, start)
        return [QueuePosition(queue_id, offset) for queue_id, offset in enumerate(offsets)]

    async def look(
        self,
        names: Sequence[str],
        *,
        known: str | None = None,
        wait_s: float = 0.0,
        flushed: bool = False,
    ) -> TopicStates:
        """The topics' states now; with `known`, not before they differ from it or time is up.

        What counts as different: a queue's end, the number of queues, a generation, a topic that
        is made or deleted. With `flushed`, what is told is on the medium before it is told; raises
        `StoreFailed` when it cannot be brought there. Raises also `IllegalTopic`, `IllegalWait` or
        `InvalidRequest`.
        """
        check_count(names, self._limits)
        check_wait(wait_s, self._limits)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        # who waits must have looked in the turn in which it parks, or it would miss an arrival
        found = self._look(names) if wait_s else await self._look_in_turns(names)
        while wait_s and found.state == known and not self._long_polls.closed:
            left = deadline - loop.time()
            if left <= 0 or not await self._long_polls.wait_for_queues(_keys(found), left):
                break
            found = self._look(names)
        found = await self._with_sizes(found)
        if flushed:
            await self.flush()
        return found

    async def flush(self) -> None:
        """Bring to the medium all that is readable now."""
        status = self._store.status()
        if status.flushed_end < status.written_end:
            await flush_store(self._store)

    def _look(self, names: Iterable[str]) -> TopicStates:
        return _states({name: self._topic_state(name) for name in names})

    async def _look_in_turns(self, names: Iterable[str]) -> TopicStates:
        """The same, many queues in several turns. Each topic is as it was in one turn; one that is
        deleted or made meanwhile is told as it was found in its own."""
        found: dict[str, TopicState | None] = {}
        looked_at = 0
        for name in dict.fromkeys(names):
            found[name] = state = self._topic_state(name)
            looked_at += 1 if state is None else len(state.queues)
            if looked_at >= _BOUNDS_A_TURN:
                looked_at = 0
                await asyncio.sleep(0)
        return _states(found)

    def _topic_state(self, name: str) -> TopicState | None:
        """Without sizes; None when there is no such topic."""
        view = self._metadata.snapshot.topics.get(name)
        if view is None:
            return None
        queues = [
            QueueState(queue_id, *self._store.bounds(name, queue_id), None)
            for queue_id in range(view.queues)
        ]
        return TopicState(name, view.generation, queues)

    async def _with_sizes(self, found: TopicStates) -> TopicStates:
        """The same with a sample of the sizes, of many queues taken in several turns."""
        average = self._store.average_bytes
        sized: list[TopicState] = []
        looked_at = 0
        for topic in found.topics:
            looked_at += len(topic.queues)
            if looked_at > _SIZES_A_TURN:
                looked_at = 0
                await asyncio.sleep(0)
            queues = [
                each._replace(average_bytes=average(topic.topic, each.queue_id))
                for each in topic.queues
            ]
            sized.append(topic._replace(queues=queues))
        return found._replace(topics=sized)


def _states(found: Mapping[str, TopicState | None]) -> TopicStates:
    topics = [state for state in found.values() if state is not None]
    missing = [name for name, state in found.items() if state is None]
    return TopicStates(_digest(topics, missing), topics, missing)


def _digest(topics: Iterable[TopicState], missing: Iterable[str]) -> str:
    """The first offsets are left out: retention is no news for who waits for messages."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for topic in topics:
        ends = ",".join([str(queue.max_offset) for queue in topic.queues])
        digest.update(f"{topic.topic}/{topic.generation}/{ends};".encode())
    digest.update("|".join(missing).encode())
    return digest.hexdigest()


def _keys(found: TopicStates) -> list[tuple[str, int]]:
    keys = [(topic.topic, queue.queue_id) for topic in found.topics for queue in topic.queues]
    return keys + [(name, _NEW_TOPIC) for name in found.missing]

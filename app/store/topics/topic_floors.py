"""Which generation of a topic its queues hold, and where it begins: the floors. Kept in the log.

A name that is deleted and made again is another topic, with another generation, in the same queues:
offsets go on, so that they never name two messages. The floor of a queue is the first offset of the
generation that lives there, or what retention or a trim has left of it; what lies below is gone.
A floor is an entry of the system topic `rmq_sys_floors`, appended (and synced) when a topic is
deleted, right before the first message of a generation, and soon after messages have expired. So
the log alone tells after any crash what was deleted and what was not; checkpoints only spare the
work.

A generation is a positive integer. 0 stands for a name without generations: the broker's own
topics and retry topics. Of those only the floors are kept, and whether they live.

A name that was deleted is remembered: its floors say where the next generation begins. So there is
one state for each name that ever was. `app.broker.lifecycle.name_room` bounds how many names and
queues there may be. Event loop only.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from app.domain.errors import TopicNotFound
from app.domain.limits import ENDED_GENERATIONS_MAX
from app.domain.names import FLOORS_TOPIC, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX
from app.store.queues.consume_queue import ConsumeQueue
from app.store.queues.queue_table import QueueTable

QUEUE: Final = 0
UNBOUND: Final = -1
"""Generation of a queue that takes the next message only after a look at its topic's state."""

ENTRIES_MAX: Final = 4_096
"""Entries beyond one for each topic after which the states are written anew."""


class TopicState(msgspec.Struct, array_like=True, frozen=True):
    """An entry, and what is known of a topic: the newest entry counts."""

    topic: str
    generation: int
    is_ended: bool
    """Deleted: nothing of this generation is readable or comes any more."""
    floors: list[tuple[int, int]]
    """Queue id and first offset; queues that are not named begin at 0."""


encode_state: Final = msgspec.msgpack.Encoder().encode
decode_state: Final = msgspec.msgpack.Decoder(TopicState).decode


class TopicFloors:
    """The states of one store's topics. Knows no I/O: `MessageStore` writes the entries."""

    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues
        self._states: dict[str, TopicState] = {}
        self._ended: OrderedDict[tuple[str, int], None] = OrderedDict()
        """Ended in this life of the store, so that late appends are refused; the newest ones."""
        self.unwritten: dict[str, None] = {}
        """Topics whose newest state is not in the log: it could not be written."""
        self.unconfirmed: dict[str, int] = {}
        """Topic → how many of its states are being written."""
        self.deleted_names = 0
        """Names that are remembered though nothing of them lives."""
        self.deleted_queues = 0
        """Their queues that ever had a message."""

    def __len__(self) -> int:
        return len(self._states)

    # --- asking

    def generation(self, topic: str) -> int:
        """The generation that lives in the topic's queues; 0: none that is known."""
        state = self._states.get(topic)
        return 0 if state is None or state.is_ended else state.generation

    def is_gone(self, topic: str, generation: int) -> bool:
        """Whether this generation was deleted here, or another one lives in its place.

        To be asked about a generation that the metadata does not name: one that was made a moment
        ago is not known here before its first use.
        """
        state = self._states.get(topic)
        if not generation:  # not known: from before there were any
            return state is not None and state.generation != 0 and state.is_ended
        if (topic, generation) in self._ended:
            return True
        if state is None or state.generation == 0:
            return False
        return state.is_ended or state.generation != generation

    def hidden(self, known: Iterable[str]) -> list[str]:
        """Topics that were not deleted here and are not among `known`, by name.

        Not the broker's own, and no retry topics, which go with their group.
        """
        states, own = self._states, (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX)
        lives = [
            name
            for name, state in states.items()
            if not state.is_ended and (state.generation or self._has_messages(name))
        ]
        lives += [
            name for name in self._queues.topics if name not in states and self._has_messages(name)
        ]
        return sorted(name for name in set(lives).difference(known) if not name.startswith(own))

    def _has_messages(self, name: str) -> bool:
        queues = self._queues.of_topic(name)
        return any(queue.min_offset < queue.max_offset for queue in queues)

    @property
    def queue_total(self) -> int:
        """Queues of all names, living and deleted."""
        return len(self._queues)

    def queue_count(self, topic: str) -> int | None:
        """Queues of a name that ever had a message; None: the name is not known here."""
        queues = self._queues.of_topic(topic)
        return len(queues) if queues or topic in self._states else None

    def state(self, topic: str) -> TopicState:
        """Of a topic that has one."""
        return self._states[topic]

    def states(self) -> Iterator[TopicState]:
        """Every topic's."""
        return iter(self._states.values())

    # --- changing; the entry that is returned is to be appended in this turn

    def begin(self, topic: str, generation: int) -> TopicState | None:
        """Let a generation live in the topic's queues; None when nothing changes.

        Where nothing was deleted before, what is in the queues belongs to it. Raises
        `TopicNotFound` when this generation is gone. Generation 0: a retry topic is in use again.
        """
        state = self._states.get(topic)
        if not generation and (state is None or not state.is_ended):
            return None
        if state is not None and state.generation == generation and not state.is_ended:
            return state if topic in self.unwritten else None
        is_taken = state is not None and state.generation and not state.is_ended
        is_ended = state is not None and 0 != state.generation == generation
        if is_taken or is_ended or (topic, generation) in self._ended:
            raise _gone(topic)
        floors = state.floors if state is not None else []
        return self._keep(TopicState(topic, generation, False, floors))

    def end(self, topic: str, generation: int) -> TopicState | None:
        """Make everything of a generation unreadable, also what is not confirmed yet.

        None when it is gone already, and the log has it. Generation 0: of whatever is there.
        """
        if generation:
            self._note_ended(topic, generation)
            state = self._states.get(topic)
            lives = self.generation(topic)
            if state is not None and state.generation and lives != generation:
                is_safe = topic not in self.unwritten and topic not in self.unconfirmed
                return None if is_safe else state
        floors: list[tuple[int, int]] = []
        for queue in self._queues.of_topic(topic):
            queue.expire_below(queue.next_offset)
            queue.generation = UNBOUND if generation else 0
            if queue.next_offset:
                floors.append((queue.queue_id, queue.next_offset))
        return self._keep(TopicState(topic, generation, True, floors))

    def names(self) -> list[str]:
        """All topics whose queues may begin later than the states say. Those of the states
        themselves are trimmed when all are written."""
        return [topic for topic in self._queues.topics if topic != FLOORS_TOPIC]

    def risen(self, topics: Iterator[str], most: int) -> list[TopicState]:
        """The new states of the next of these topics whose queues begin later than the states say,
        as messages have expired or were trimmed; fewer than `most`: no topic is left."""
        found: list[TopicState] = []
        for topic in topics:
            state = self._states.get(topic)
            floors = {} if state is None else dict(state.floors)
            queues = [(queue.queue_id, queue.min_offset) for queue in self._queues.of_topic(topic)]
            risen = [(queue, low) for queue, low in queues if low > floors.get(queue, 0)]
            if risen:
                floors.update(risen)
                found.append(self._with_floors(topic, floors))
                if len(found) == most:
                    break
        return [*map(self._keep, found)]

    def _with_floors(self, topic: str, floors: dict[int, int]) -> TopicState:
        state = self._states.get(topic)
        generation, is_ended = (0, False) if state is None else (state.generation, state.is_ended)
        return TopicState(topic, generation, is_ended, sorted(floors.items()))

    def _keep(self, state: TopicState) -> TopicState:
        before = self._states.get(state.topic)
        for each, by in ((before, -1), (state, 1)):
            if each is not None and each.is_ended:
                self.deleted_names += by
                self.deleted_queues += by * len(each.floors)
        self._states[state.topic] = state
        return state

    def _note_ended(self, topic: str, generation: int) -> None:
        self._ended[topic, generation] = None
        if len(self._ended) > ENDED_GENERATIONS_MAX:
            self._ended.popitem(last=False)

    def bind(self, queue: ConsumeQueue, generation: int) -> TopicState | None:
        """Before a message of a generation goes to a queue that holds another, or none yet.

        Returns the entry to be appended before the message, if any. Raises `TopicNotFound` when
        the topic was deleted since the sender looked it up.
        """
        if not generation:
            return None
        entry = self.begin(queue.topic, generation)
        queue.generation = generation
        return entry

    def not_written(self, topic: str) -> None:
        """The append of the topic's newest state has failed: it is to be repeated."""
        self.unwritten[topic] = None
        for queue in self._queues.of_topic(topic):
            if queue.generation > 0:
                queue.generation = UNBOUND

    def confirmed(self, topic: str) -> None:
        """The log has answered for one of the topic's states that were being written."""
        self.unconfirmed[topic] -= 1
        if not self.unconfirmed[topic]:
            del self.unconfirmed[topic]

    # --- opening

    def take(self, state: TopicState) -> None:
        """An entry of the log, in order."""
        self._keep(state)
        for queue_id, floor in state.floors:
            queue = self._queues.get_or_make(state.topic, queue_id, first_offset=floor)
            queue.expire_below(floor)
            queue.extend(floor)

    def start(self) -> None:
        """All entries were taken: bind the queues to what lives in them."""
        for queue in self._queues:
            state = self._states.get(queue.topic)
            if state is None:
                if queue.generation > 0:  # the entry is damaged; the checkpoint knows it
                    self._states[queue.topic] = TopicState(queue.topic, queue.generation, False, [])
            elif state.generation:
                queue.generation = UNBOUND if state.is_ended else state.generation


class TakenFloors(NamedTuple):
    """The states as a replica took them while it followed: who begins to lead goes on there."""

    floors: TopicFloors
    next_offset: int
    """Entries below are in them."""


def _gone(topic: str) -> TopicNotFound:
    return TopicNotFound(
        f"topic {topic!r} was deleted while the request was under way",
        hint="if it was made again since, send again",
        outcome="not_stored",
    )

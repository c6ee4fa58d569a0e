"""The states of all queues of all groups, by their topic. Pure.

A mapping from (group, topic, queue) to `QueueState`. A topic's deletion takes out one entry here,
however many groups and queues it has; what hands out and settles looks up two in place of one.
"""

from collections.abc import Iterator, MutableMapping
from typing import TypeVar, overload

from typing_extensions import override

from app.broker.progress.progress_entries import Key
from app.broker.progress.queue_state import QueueState

_Default = TypeVar("_Default")


class QueueStates(MutableMapping[Key, QueueState]):
    """Of one broker. Iteration is by topic; what is taken out in between is the caller's."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[Key, QueueState]] = {}

    @overload
    def get(self, key: Key, default: None = None, /) -> QueueState | None: ...
    @overload
    def get(self, key: Key, default: QueueState | _Default, /) -> QueueState | _Default: ...
    @override
    def get(self, key: Key, default: object = None, /) -> object:
        states = self._topics.get(key[1])
        return default if states is None else states.get(key, default)

    @override
    def __getitem__(self, key: Key) -> QueueState:
        return self._topics[key[1]][key]

    @override
    def __setitem__(self, key: Key, state: QueueState) -> None:
        self._topics.setdefault(key[1], {})[key] = state

    @override
    def __delitem__(self, key: Key) -> None:
        states = self._topics[key[1]]
        del states[key]
        if not states:
            del self._topics[key[1]]

    @override
    def __iter__(self) -> Iterator[Key]:
        for states in self._topics.values():
            yield from states

    @override
    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    @override
    def clear(self) -> None:
        self._topics.clear()

    def of_topic(self, topic: str) -> dict[Key, QueueState]:
        """Those of one topic, of all groups; not to be changed."""
        return self._topics.get(topic, {})

    def of_pair(self, group: str, topic: str) -> dict[Key, QueueState]:
        """Those of a group in one topic."""
        return {key: state for key, state in self.of_topic(topic).items() if key[0] == group}

    def take(self, *, group: str | None, topic: str | None) -> list[dict[Key, QueueState]]:
        """Take out those of a topic, and those of a group."""
        taken = [] if topic is None else [self._topics.pop(topic, {})]
        if group is not None:
            for name, states in list(self._topics.items()):
                keys = [key for key in states if key[0] == group]
                taken.append({key: states.pop(key) for key in keys})
                if not states:
                    del self._topics[name]
        return taken

"""The states of all queues of all groups, by topic and group. Pure.

A mapping from (group, topic, queue) to `QueueState`. A topic's deletion takes out one entry here,
however many groups and queues it has, and who asks for pairs looks at no queue; what hands out and
settles looks up three in place of one.
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
        self._topics: dict[str, dict[str, dict[Key, QueueState]]] = {}
        """Topic → group → its queues; none of them empty."""

    @overload
    def get(self, key: Key, default: None = None, /) -> QueueState | None: ...
    @overload
    def get(self, key: Key, default: QueueState | _Default, /) -> QueueState | _Default: ...
    @override
    def get(self, key: Key, default: object = None, /) -> object:
        groups = self._topics.get(key[1])
        states = None if groups is None else groups.get(key[0])
        return default if states is None else states.get(key, default)

    @override
    def __getitem__(self, key: Key) -> QueueState:
        return self._topics[key[1]][key[0]][key]

    @override
    def __setitem__(self, key: Key, state: QueueState) -> None:
        self._topics.setdefault(key[1], {}).setdefault(key[0], {})[key] = state

    @override
    def __delitem__(self, key: Key) -> None:
        group, topic, _ = key
        states = self._topics[topic][group]
        del states[key]
        if not states:
            self._take_pair(group, topic)

    @override
    def __iter__(self) -> Iterator[Key]:
        for groups in self._topics.values():
            for states in groups.values():
                yield from states

    @override
    def __len__(self) -> int:
        return sum(len(states) for groups in self._topics.values() for states in groups.values())

    @override
    def clear(self) -> None:
        self._topics.clear()

    def pairs(self) -> list[tuple[str, str]]:
        """(group, topic) of all."""
        return [(group, topic) for topic, groups in self._topics.items() for group in groups]

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has begun."""
        return [topic for topic, groups in self._topics.items() if group in groups]

    def of_pair(self, group: str, topic: str) -> dict[Key, QueueState]:
        """Those of a group in one topic; the caller's own copy."""
        return dict(self._topics.get(topic, {}).get(group, {}))

    def take(self, *, group: str | None, topic: str | None) -> list[dict[Key, QueueState]]:
        """Take out those of a topic, and those of a group."""
        taken = [] if topic is None else list(self._topics.pop(topic, {}).values())
        if group is not None:
            taken += [self._take_pair(group, name) for name in self.topics_of(group)]
        return taken

    def _take_pair(self, group: str, topic: str) -> dict[Key, QueueState]:
        groups = self._topics[topic]
        states = groups.pop(group)
        if not groups:
            del self._topics[topic]
        return states

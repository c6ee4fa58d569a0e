"""What there is to read, asked of the service: topics, queues, their ends. Driver only.

Holds no state but plain options; each method asks anew. Called by `stream` and `batch`.
"""

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark_curlew.errors import OptionInvalid
from pyspark_curlew.http.client import CurlewClient, QueueState, TopicState
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.reading.offsets import Positions, TopicQueue
from pyspark_curlew.reading.positions_found import Lookups

_GUESSED_BYTES = 1024
"""Of a message in a queue that the service knows no size for."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The chosen queues as they are, and the service's token for that."""

    state: str
    earliest: Positions
    latest: Positions
    averages: Mapping[TopicQueue, int]
    """Bytes of a stored message."""
    generations: Mapping[str, int]


class Catalog:
    """The chosen topics and queues of one service."""

    def __init__(self, options: SourceOptions, client: CurlewClient) -> None:
        self._options = options
        self._client = client

    def topics(self) -> list[str]:
        """The chosen topics, by name; with a pattern, those that exist now."""
        choice = self._options.topics
        if choice.pattern is None:
            return list(choice.names)
        matching = re.compile(choice.pattern).fullmatch
        return sorted(name for name in self._client.topic_names() if matching(name))

    def standing(
        self,
        topics: Iterable[str],
        gone: Collection[str] = (),
        *,
        known: str | None = None,
        wait_ms: int = 0,
    ) -> Standing:
        """Where the chosen queues stand, at once or when it is another state than `known`.

        Topics of `gone` may have been deleted since; any other that is not there is an error.
        """
        names = list(topics)
        if not names:
            return Standing("", {}, {}, {}, {})
        found = self._client.positions(names, known, wait_ms)
        self._check_missing(sorted(found.missing - set(gone)))
        queues: dict[TopicQueue, QueueState] = {}
        for topic in sorted(found.topics):
            queues |= self._chosen(topic, found.topics[topic])
        return Standing(
            state=found.state,
            earliest={key: queue.min_offset for key, queue in queues.items()},
            latest={key: queue.max_offset for key, queue in queues.items()},
            averages={key: queue.average_bytes or _GUESSED_BYTES for key, queue in queues.items()},
            generations={topic: state.generation for topic, state in found.topics.items()},
        )

    def lookups(self) -> Lookups:
        """What `resolve` needs; times and commits are asked for when they are needed, once."""
        group = self._options.consumer_group

        def committed(topic: str) -> Mapping[int, int]:
            assert group is not None
            return self._client.committed(group, topic)

        standing = self.standing(self.topics())
        return Lookups(
            earliest=standing.earliest,
            latest=standing.latest,
            at_time=functools.cache(lambda topic, moment: self._client.offsets(topic, str(moment))),
            committed=committed,
        )

    def _check_missing(self, missing: Sequence[str]) -> None:
        if missing and self._options.topics.pattern is None:
            self._client.queue_count(missing[0])  # raises, with what the service suggests

    def _chosen(self, topic: str, state: TopicState) -> dict[TopicQueue, QueueState]:
        present = state.queues
        wanted = (self._options.topics.queues or {}).get(topic)
        strangers = sorted((wanted or frozenset()) - present.keys())
        if strangers:
            raise OptionInvalid(
                f"option 'queues' names queue {strangers[0]} of topic {topic!r}, which has"
                f" {len(present)} queues"
            )
        chosen = present.keys() if wanted is None else wanted
        return {TopicQueue(topic, queue): present[queue] for queue in sorted(chosen)}

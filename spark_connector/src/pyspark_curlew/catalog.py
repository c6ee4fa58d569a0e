"""What there is to read, asked of the service: topics, queues, their ends. Driver only.

Holds no state but plain options; each method asks anew. Called by `stream` and `batch`.
"""

import functools
import re
from collections.abc import Collection, Iterable, Mapping

from pyspark_curlew.client import CurlewClient, Pulled
from pyspark_curlew.errors import OptionInvalid, TopicNotFound
from pyspark_curlew.offsets import Positions, TopicQueue
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.resolving import Lookups

_SAMPLE_MESSAGES = 16
_SAMPLE_BYTES = 64 * 1024
_GUESSED_BYTES = 1024
"""Of a message, where no sample can be had."""


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

    def offsets(
        self, at: str, topics: Iterable[str], known: Collection[str] = ()
    ) -> dict[TopicQueue, int]:
        """The offsets of all chosen queues; topics of `known` may have gone since."""
        found: dict[TopicQueue, int] = {}
        for topic in topics:
            try:
                by_queue = self._client.offsets(topic, at)
            except TopicNotFound:
                if topic in known or self._options.topics.pattern is not None:
                    continue
                raise
            chosen = self._chosen(topic, by_queue)
            found |= {TopicQueue(topic, queue): by_queue[queue] for queue in sorted(chosen)}
        return found

    def lookups(self) -> Lookups:
        """What `resolve` needs; times and commits are asked for when they are needed, once."""
        topics = self.topics()
        group = self._options.consumer_group

        def committed(topic: str) -> Mapping[int, int]:
            assert group is not None
            return self._client.committed(group, topic)

        return Lookups(
            earliest=self.offsets("earliest", topics),
            latest=self.offsets("latest", topics),
            at_time=functools.cache(lambda topic, moment: self._client.offsets(topic, str(moment))),
            committed=committed,
        )

    def generations(self, topics: Iterable[str]) -> dict[str, int]:
        """A number for each topic that changes when it is deleted and made anew."""
        found: dict[str, int] = {}
        for topic in topics:
            try:
                found[topic] = self._client.topic(topic).generation
            except TopicNotFound:
                continue
        return found

    def average_bytes(self, start: Positions, end: Positions) -> dict[TopicQueue, int]:
        """The size of a stored message in each queue with a backlog, from a few of the next."""
        return {
            key: self._average(key, start[key], end[key])
            for key in sorted(end)
            if end[key] > start[key]
        }

    def _average(self, key: TopicQueue, start: int, end: int) -> int:
        answer = self._client.pull(
            key.topic,
            key.queue,
            start,
            end_offset=end,
            max_messages=_SAMPLE_MESSAGES,
            max_bytes=_SAMPLE_BYTES,
            wait_s=0,
        )
        if not isinstance(answer, Pulled) or answer.frame.records == 0:
            return _GUESSED_BYTES
        return -(-len(answer.frame.block) // answer.frame.records)

    def _chosen(self, topic: str, present: Mapping[int, int]) -> Collection[int]:
        wanted = (self._options.topics.queues or {}).get(topic)
        if wanted is None:
            return present.keys()
        strangers = sorted(wanted - present.keys())
        if strangers:
            raise OptionInvalid(
                f"option 'queues' names queue {strangers[0]} of topic {topic!r}, which has"
                f" {len(present)} queues"
            )
        return wanted

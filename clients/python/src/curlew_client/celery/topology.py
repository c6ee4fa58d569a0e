"""Exchanges, queues and bindings, as topics, groups and filters of a node.

An exchange is a topic, whose messages have the routing key as tag. A queue is a group, which reads
the topics that it is bound to: of a direct exchange what has its routing keys, by a filter that the
node keeps for all programs; of a fanout exchange all; of a topic exchange what the patterns of its
own program take. The default exchange sends to the topic of the queue's name: a queue that lasts
reads it, too, and so does one that is bound to nothing else.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from time import time_ns
from typing import Final

from curlew_client.celery.names import filter_of, stored_name, tag_of, tags_of, takes
from curlew_client.client import Client
from curlew_client.errors import Forbidden, NotFound, PreconditionFailed

EVERY: Final = "*"
SEEN_MS: Final = 60_000
"""A client that was seen so long ago counts as gone."""


@dataclass(slots=True)
class Source:
    """A topic that a queue reads, and which of its messages."""

    topic: str
    exchange: str
    kind: str
    routing_keys: set[str] = field(default_factory=set)

    def takes(self, routing_key: str) -> bool:
        """Whether the queue gets what was published so. Of a direct exchange the node chooses: it
        knows what other programs have bound the queue by."""
        if self.kind == "topic":
            return any(takes(pattern, routing_key) for pattern in self.routing_keys)
        return True


@dataclass(slots=True)
class Queue:
    """A queue as it was declared."""

    name: str
    group: str
    is_passing: bool
    """It goes with who uses it: exclusive, or deleted by itself."""
    is_new: bool
    """This program made its group."""
    sources: dict[str, Source] = field(default_factory=dict)
    """By topic."""


class Topology:
    """What a connection has declared. Every call may be repeated; several threads may make them."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._topics: set[str] = set()
        self.queues: dict[str, Queue] = {}

    def topic_to_send_to(self, exchange: str, routing_key: str) -> str | None:
        """The topic of an exchange, which is made when it is not there; for the default exchange
        that of the queue, and None when there is no such queue."""
        topic = stored_name(exchange or routing_key, self._prefix)
        if topic not in self._topics:
            if exchange:
                self._make(topic)
            elif not self.has_topic(routing_key):
                return None
            self._topics.add(topic)
        return topic

    def has_topic(self, name: str) -> bool:
        """Whether an exchange or queue of this name has its topic."""
        try:
            self._client.admin.get_topic(stored_name(name, self._prefix))
        except NotFound:
            return False
        except Forbidden:
            return True  # a send says it
        return True

    def _make(self, topic: str) -> None:
        # It may be there; and who may make none hears at the first send.
        with suppress(PreconditionFailed, Forbidden):
            self._client.admin.put_topic(topic, if_none_match="*")
        self._topics.add(topic)

    def declare(self, name: str, *, is_passing: bool) -> Queue:
        """A queue; its group is made when it is not there."""
        queue = self.queues.get(name)
        if queue is not None:
            return queue
        group = stored_name(name, self._prefix)
        is_new = True
        try:
            self._client.admin.put_group(group, if_none_match="*")
        except (PreconditionFailed, Forbidden):
            is_new = False
        queue = self.queues[name] = Queue(name, group, is_passing, is_new)
        if is_passing and not is_new:
            queue.is_new = not self._is_in_use(group)  # of one that died
        if not is_passing:
            self.bind(queue, "", "direct", name)
        return queue

    def _is_in_use(self, group: str) -> bool:
        """Whether somebody consumes it, so that it may not begin anew."""
        try:
            clients = self._client.admin.list_group_clients(group)
        except (NotFound, Forbidden):
            return True
        oldest_ms = time_ns() // 1_000_000 - SEEN_MS
        return any(each["last_seen_ms"] >= oldest_ms for each in clients)

    def is_there(self, name: str) -> bool:
        """Whether the queue's group exists."""
        try:
            self._client.admin.get_group(stored_name(name, self._prefix))
        except NotFound:
            return False
        return True

    def bind(self, queue: Queue, exchange: str, kind: str, routing_key: str) -> None:
        """Let the queue read what is published so from now on; a queue that lasts reads of a direct
        exchange also what its topic has already."""
        topic = stored_name(exchange or queue.name, self._prefix)
        self._make(topic)
        source = queue.sources.get(topic)
        is_first = source is None
        if source is None:
            source = queue.sources[topic] = Source(topic, exchange, kind)
        elif kind != "direct":
            source.kind = kind
        source.routing_keys.add(routing_key)
        self._keep_filter(queue, source, routing_key)
        if is_first and queue.is_new:
            to_end = queue.is_passing or kind != "direct"
            with suppress(Forbidden):
                self._client.admin.reset_group_offsets(
                    queue.group, topic, to="latest" if to_end else "earliest"
                )

    def unbind(self, queue: Queue, exchange: str, routing_key: str) -> None:
        """Let it not read that any more; what other programs have bound it by stays."""
        topic = stored_name(exchange, self._prefix)
        source = queue.sources.get(topic)
        if source is not None:
            source.routing_keys.discard(routing_key)
        kept = self._kept_filter(queue, topic)
        if kept is not None and kept != EVERY:
            self._put_filter(queue, topic, filter_of(tags_of(kept) - {tag_of(routing_key)}))

    def sources_of(self, queue: Queue) -> list[Source]:
        """What it reads; the topic of its own name when it is bound to nothing."""
        if not queue.sources:
            self.bind(queue, "", "direct", queue.name)
        return list(queue.sources.values())

    def _keep_filter(self, queue: Queue, source: Source, routing_key: str) -> None:
        """Add the routing key to those by which the queue is bound."""
        if source.kind != "direct":
            self._put_filter(queue, source.topic, EVERY)
            return
        kept = self._kept_filter(queue, source.topic)
        if kept == EVERY:
            return
        known = set() if kept is None else tags_of(kept)
        tag = tag_of(routing_key)
        if tag not in known:
            self._put_filter(queue, source.topic, filter_of(known | {tag}))

    def _kept_filter(self, queue: Queue, topic: str) -> str | None:
        try:
            return self._client.admin.get_group_subscription(queue.group, topic)["filter"]
        except (NotFound, Forbidden):
            return None

    def _put_filter(self, queue: Queue, topic: str, filter_text: str) -> None:
        with suppress(Forbidden):
            self._client.admin.put_group_subscription(queue.group, topic, filter=filter_text)

    def size(self, queue: Queue) -> int:
        """How many messages are ready in it."""
        return self._client.admin.get_lag(queue.group)["ready"] or 0

    def purge(self, queue: Queue) -> int:
        """Let it pass over what is ready; how many that are."""
        size = self.size(queue)
        for source in self.sources_of(queue):
            self._client.admin.reset_group_offsets(queue.group, source.topic, to="latest")
        return size

    def delete(self, queue: Queue) -> None:
        """A lasting queue is emptied: a group that is made anew would read again what is done. Of
        a passing one the group goes, and the topic that nobody but itself reads."""
        if not queue.is_passing:
            self.purge(queue)
            return
        self.queues.pop(queue.name, None)
        admin = self._client.admin
        with suppress(NotFound, Forbidden):
            admin.delete_group(queue.group)
        own = stored_name(queue.name, self._prefix)
        if list(queue.sources) == [own] and not queue.sources[own].exchange:
            with suppress(NotFound, Forbidden):
                admin.delete_topic(own)
            self._topics.discard(own)

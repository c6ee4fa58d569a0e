"""Whether the store has room for one more name: of a topic, a group, or a group's retries.

A name that was deleted is remembered for ever, or its successor would begin with its messages. So
names that are new to the store have a bound, and so have the queues that come with them. A name
that the store knows may always be made again, with as many queues as it had. Looked at in the turn
in which the making begins; event loop only.
"""

from app.broker.context import Context
from app.broker.ports import Topic
from app.domain.changes.merging import Named
from app.domain.errors import StateConflict
from app.domain.names import dead_letter_topic, retry_topic
from app.domain.settings import default_topic_settings


class NameRoom:
    """One per broker. The checks raise `StateConflict`."""

    def __init__(self, context: Context) -> None:
        self._names = context.store.names
        self._metadata = context.metadata
        self._limits = context.limits

    def check_topic(self, name: str, named: Named) -> None:
        """Before a topic is made or gets these settings."""
        present = self._metadata.snapshot.topics.get(name)
        default = default_topic_settings(self._limits).queues
        queues = named.get("queues", default if present is None else present.queues)
        queues = queues if isinstance(queues, int) else default  # or it is refused for what it is
        if present is None:
            self._check(name, queues)
        elif queues > present.queues:
            self._check_queues(name, queues)

    def check_group(self, name: str) -> None:
        """Before a group is made: its dead letters have a queue."""
        if name not in self._metadata.snapshot.groups:
            self._check(dead_letter_topic(name), 1)

    def check_retries(self, group: str, topic: str) -> None:
        """Before a group begins in a topic: its retries of it have a queue."""
        self._check(retry_topic(group, topic), 1)

    def _check(self, stored: str, queues: int) -> None:
        most = self._limits.deleted_names_max
        deleted = self._names.deleted_names
        if deleted >= most and self._names.queue_count(stored) is None:
            raise _no_room(
                f"the node remembers {deleted} names of deleted topics and groups, and takes no"
                " name that it has not had before",
                "deleted_names_max",
                most,
            )
        self._check_queues(stored, queues)

    def _check_queues(self, stored: str, queues: int) -> None:
        known = self._names.queue_count(stored) or 0
        most = self._limits.deleted_queues_max
        if queues <= known or self._names.queue_total < most:
            return
        deleted = self._names.deleted_queues + self._left_queues()
        if deleted >= most:
            raise _no_room(
                f"the node remembers {deleted} queues of deleted topics and groups, and"
                f" {queues - known} new ones would come",
                "deleted_queues_max",
                most,
            )

    def _left_queues(self) -> int:
        """Of topics that were made again with fewer queues than they had."""
        return sum(map(self._queues_beyond, self._metadata.snapshot.topics.values()))

    def _queues_beyond(self, topic: Topic) -> int:
        return max((self._names.queue_count(topic.name) or 0) - topic.queues, 0)


def _no_room(text: str, bound: str, limit: int) -> StateConflict:
    return StateConflict(
        text,
        hint="use the name of a topic or group that was deleted, which is always taken again with"
        f" as many queues as it had, or let the operator raise {bound}",
        fields={"limit": limit, "bound": bound},
    )

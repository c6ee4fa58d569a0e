"""Finding the topic and queue that a request names, with a helpful error when there is none."""

from app.broker.ports import Group, Metadata, Topic
from app.domain.errors import (
    GroupNotFound,
    NoPermission,
    NotLeader,
    QueueNotFound,
    TopicNotFound,
)
from app.domain.message import queue_for_sharding_key
from app.domain.names import check_topic, did_you_mean, suggest_similar


def find_topic(metadata: Metadata, name: str) -> Topic:
    """Return the topic or raise `IllegalTopic` or `TopicNotFound`."""
    topics = metadata.snapshot.topics
    topic = topics.get(name)
    if topic is not None:
        return topic
    check_topic(name)
    error = TopicNotFound(
        f"topic {name!r} does not exist", hint=f"make it with PUT /v1/topics/{name}"
    )
    raise suggest_similar(error, "topic", name, topics, did_you_mean)


def check_current(metadata: Metadata, topic: Topic, group: Group | None = None) -> None:
    """Raise `TopicNotFound` or `GroupNotFound` when what was looked up a while ago is no more the
    one of its name. To be called behind an await, before anything is kept under the name."""
    snapshot = metadata.snapshot
    present = snapshot.topics.get(topic.name)
    if present is not topic and (present is None or present.generation != topic.generation):
        raise TopicNotFound(
            f"topic {topic.name!r} was deleted while the request was under way",
            hint="if it was made again since, ask again",
        )
    if group is not None:
        now = snapshot.groups.get(group.name)
        if now is not group and (now is None or now.generation != group.generation):
            raise GroupNotFound(
                f"consumer group {group.name!r} was deleted while the request was under way",
                hint="if it was made again since, ask again",
            )


def readable_topic(metadata: Metadata, name: str) -> Topic:
    """As `find_topic`; raises `NoPermission` when its messages may not be read."""
    topic = find_topic(metadata, name)
    if not topic.is_readable:
        raise unreadable(topic)
    return topic


def unreadable(topic: Topic) -> NoPermission:
    """What to tell who wants to read a topic that gives no messages."""
    return NoPermission(
        f"topic {topic.name!r} gives no messages: its permission is {topic.permission.value}",
        hint="PATCH the topic with permission rw or r",
        fields={"permission": topic.permission.value},
    )


def check_queue(topic: Topic, queue_id: int) -> None:
    """Raise `QueueNotFound` when the topic has no such queue."""
    if not 0 <= queue_id < topic.queues:
        raise QueueNotFound(
            f"topic {topic.name!r} has no queue {queue_id}",
            hint=f"its queues are 0 to {topic.queues - 1}",
            fields={"queues": topic.queues},
        )


def check_here(topic: Topic, queue_id: int) -> None:
    """As `check_queue`; raises `NotLeader` when the queue is in another node's shard."""
    check_queue(topic, queue_id)
    shard = topic.shard_of(queue_id)
    if shard is not None:
        raise NotLeader(f"queue {queue_id} of topic {topic.name!r}", shard)


def queue_of_key_here(topic: Topic, sharding_key: str) -> int | None:
    """The queue in this node's shard that a key has, or had before it moved as a shard drains: for
    what is in this shard and can go to no other. None: it is in another one's."""
    found = queue_for_sharding_key(sharding_key, topic.write_queues)
    here = topic.writable_here
    return next((each for each in (found, topic.queue_of_key(sharding_key)) if each in here), None)

"""What a topic's type takes: a declaration, checked on each send. Pure."""

from typing import Final

from app.broker.ports import Topic
from app.domain.errors import TopicTypeConflict
from app.domain.message import Message
from app.domain.settings import TopicType
from app.store.formats.frame.batch_frame import RequestFrame

_WANTED: Final = {
    TopicType.FIFO: ("a sharding key", "send MQ-Sharding-Key"),
    TopicType.DELAY: ("a delivery time", "send MQ-Delay or MQ-Deliver-At"),
    TopicType.TRANSACTION: ("a transaction", "send MQ-Transaction"),
}


def check_type(
    topic: Topic,
    message: Message | None,
    *,
    is_delayed: bool = False,
    is_transactional: bool = False,
) -> None:
    """Raise `TopicTypeConflict` when the topic's type does not take such a message.

    `normal`, the default, takes everything. The others take one kind only, so that what was
    forgotten is noticed. `message` is None for frames, whose sharding keys are not looked at.
    """
    kind = topic.type
    if kind is TopicType.NORMAL:
        return
    has_key = message is None or message.sharding_key is not None
    lacks = {
        TopicType.FIFO: not has_key,
        TopicType.DELAY: not is_delayed,
        TopicType.TRANSACTION: not is_transactional,
    }[kind]
    if lacks:
        wanted, hint = _WANTED[kind]
        raise _conflict(topic, f"wants {wanted} with every message", hint)
    if is_delayed and kind is not TopicType.DELAY:
        raise _conflict(topic, "takes no delayed messages", "leave out the delay")
    if is_transactional and kind is not TopicType.TRANSACTION:
        raise _conflict(topic, "takes no transactions", "leave out MQ-Transaction")


def check_type_of_frame(topic: Topic, frame: RequestFrame) -> None:
    """The same of a frame, for every record but for sharding keys."""
    times = frame.delivery_times
    is_delayed = times is not None
    if times is not None and topic.type is TopicType.DELAY:
        is_delayed = bool(times.all())
    check_type(topic, None, is_delayed=is_delayed)


def _conflict(topic: Topic, what: str, hint: str) -> TopicTypeConflict:
    return TopicTypeConflict(
        f"topic {topic.name!r} has the type {topic.type.value}: it {what}",
        hint=f"{hint}, or use a topic of another type (normal takes everything)",
        fields={"type": topic.type.value},
    )

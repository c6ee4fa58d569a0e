"""The types of an aim. `api.aims` says how they are used."""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from app.api.aims.places import Places
from app.api.http.request_context import RequestContext
from app.broker.ports import Topic


class Asks(Enum):
    """What an aim may say in place of a shard."""

    BODY = "the body says it"
    NEWS = "another node may have made the queue a moment ago"


BODY: Final = Asks.BODY
NEWS: Final = Asks.NEWS
HERE: Final = None

Names = tuple[str, ...]
Shard = str | None
"""A name; `HERE`: the shard of this node."""


class Aim(NamedTuple):
    """How an operation finds the shard that it is for."""

    head: Callable[[RequestContext, Names, Places], "Shard | Asks"]
    body: Callable[[RequestContext, Names, Places, bytes], Shard | Asks] | None = None
    """Asked when `head` says `BODY`."""


def at_queue(places: Places, topic: Topic | None, queue_id: int) -> Shard | Asks:
    """The shard of a queue that a request names; `NEWS` when the topic has it not as far as is
    known here."""
    if topic is not None and queue_id >= topic.queues:
        return NEWS
    return places.of_queue(topic, queue_id)

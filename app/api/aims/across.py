"""How an operation is done that is of several shards. Pure; moves no bytes.

An `Operation` says it as `across`, next to its handler. The node that was asked carries it out by
one call for each shard, its own as well (`api.relay.over_shards`). Each call is the same operation
at the node that leads the shard, which does it for its shard alone.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from app.domain.errors import IllegalPage
from app.domain.limits import DEFAULT_PAGE_SIZE

Document = dict[str, object]
"""An answer in JSON."""
Documents = Mapping[str, Document]
"""Answers by the shard that gave them, that of the node that was asked first."""
Owner = Callable[[str, int], str | None]
"""The shard of a queue, by the topic as clients write it and the number of the queue."""

PARTIAL: Final = "partial"
"""In a merged document, the shards that did not answer. Not there when all did, but in documents
that always have it."""
_MARK: Final = "s1:"


class Together(NamedTuple):
    """All shards are asked at once, and `merge` makes one document of theirs."""

    merge: Callable[[Documents, Owner], Document]
    waits: bool = False
    """With `known` and `wait` the first shard that has news ends the wait of all."""
    is_everywhere: bool = False
    """What one shard has all have: one that has it no more is missing."""
    again: Callable[[Documents], Mapping[str, str]] | None = None
    """Shards that are asked once more, and what for, by what all have said: their second answer
    counts, where there is one."""


class InOrder(NamedTuple):
    """A list in pages: all of the first shard, then all of the next, by name."""

    rows: str
    """The member that is the list."""
    cursor: str = "page_token"
    """The parameter that says where to go on."""
    following: str = "next_page_token"
    """The member that says where the next page begins."""
    page_size: int = DEFAULT_PAGE_SIZE
    """Rows of a page where the request does not say it."""
    shard: str = ""
    """The member of a row that says where it is; empty: none does."""


class Split(NamedTuple):
    """A body whose entries are of several shards: each shard is given its own, and the results come
    in the order of the request."""

    lists: tuple[str, ...]
    """The members that have the entries, in the order of their results."""
    action: str = ""
    """What is done with handles; empty: each list has its own, or it is a batch of messages."""


class InEach(NamedTuple):
    """A change that each shard makes of what it has, and `merge` makes one document of theirs. When
    a shard does not answer the status is 207."""

    merge: Callable[[Documents], Document]
    tries_first: bool = False
    """All are asked first what the change would be: when one refuses it, none makes it."""
    topics: str = ""
    """The member of the body that says for which topics; in one without it are then those of all
    shards."""
    forgets_first_use: bool = False
    """The path names a group and a topic, whose first use is forgotten as it was before any shard
    is asked: one that comes while some have done it stays."""
    begins_work: bool = False
    """Each shard begins work that outlives the request, under one name that all are told."""


class Closed(NamedTuple):
    """The epoch of a producer is closed in each shard, when all together have what was sent in it.
    When a shard does not answer, the request is asked again."""


class Ended(NamedTuple):
    """A producer sends no more: the highest epoch that any shard knows is closed in each. When a
    shard does not answer, the request is asked again."""


class Committed(NamedTuple):
    """The body has offsets of queues: each shard is told its own, tried in all of them first. When
    a shard does not answer the status is 207, and its rows are told with the reason."""


class InTurn(NamedTuple):
    """Messages are leased from one shard at a time, and all are waited for."""


class Gathered(NamedTuple):
    """What is to be decided is taken from each shard in turn, and all are waited for."""


class Polled(NamedTuple):
    """What a member has done goes to all shards, before it is told of its share and its queues are
    read in all of them."""


class Kept(NamedTuple):
    """The node that was asked keeps a member alive, and each shard says where its queues begin."""


class Followed(NamedTuple):
    """What all shards tell goes on as one stream, whose place is one in all queues."""


class Leased(NamedTuple):
    """One stream of what is leased from one shard at a time, whose credit is that of all."""


class Copied(NamedTuple):
    """The node that was asked does it with what SQL has of all shards, which each brings up to date
    first. Of a shard that does not answer it is some seconds old."""


Changed = InEach | Closed | Ended | Committed
"""Done in each shard."""
Consumed = InTurn | Gathered | Polled | Kept | Followed | Leased
"""Done over all shards for one consumer."""
Across = Together | InOrder | Split | Changed | Consumed | Copied


class Place(NamedTuple):
    """Where a list goes on: in a shard, behind what its node said; empty: at its beginning."""

    shard: str
    cursor: str


def written(place: Place) -> str:
    """As clients get it."""
    text = f"{_MARK}{place.shard}\n{place.cursor}"
    return base64.urlsafe_b64encode(text.encode()).decode("ascii")


def read(text: str) -> Place:
    """Raises `IllegalPage` for what `written` did not give."""
    try:
        found = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        found = ""
    shard, end, cursor = found.removeprefix(_MARK).partition("\n")
    if not found.startswith(_MARK) or not end:
        raise IllegalPage(
            "where to go on was not said by this cluster",
            hint="begin again at the first page",
        )
    return Place(shard, cursor)

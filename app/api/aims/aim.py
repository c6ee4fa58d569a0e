"""The types of an aim. `api.aims` says how they are used."""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from app.api.aims.places import Places
from app.api.http.request_context import RequestContext


class Asks(Enum):
    """What an aim may say in place of a shard."""

    BODY = "the body says it"


BODY: Final = Asks.BODY
HERE: Final = None

Names = tuple[str, ...]
Shard = str | None
"""A name; `HERE`: the shard of this node."""


class Aim(NamedTuple):
    """How an operation finds the shard that it is for."""

    head: Callable[[RequestContext, Names, Places], "Shard | Asks"]
    body: Callable[[RequestContext, Names, Places, bytes], Shard] | None = None
    """Asked when `head` says `BODY`."""

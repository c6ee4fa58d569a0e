"""What tells a topic or group from another one of its name: the generation. Pure.

Generations are random, so that a name which is made again, on whatever node or from whatever copy
of the database, never meets the traces of an earlier one under its number. Nothing follows from
their order.
"""

import secrets
from enum import StrEnum
from typing import NamedTuple

from app.domain.limits import GENERATION_MAX


class Kind(StrEnum):
    """What has generations."""

    TOPIC = "topic"
    GROUP = "group"


class Deletion(NamedTuple):
    """One generation of a name was deleted."""

    kind: Kind
    name: str
    generation: int


def new_generation() -> int:
    """From 1 to `GENERATION_MAX`."""
    return 1 + secrets.randbelow(GENERATION_MAX)

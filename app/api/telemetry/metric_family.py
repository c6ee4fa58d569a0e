"""A metric with all its samples."""

from collections.abc import Iterable
from typing import NamedTuple


class Family(NamedTuple):
    """What stands under one name."""

    name: str
    kind: str
    help: str
    samples: Iterable[tuple[str, float]]
    """Labels (with braces, or empty) and value. Those of a histogram begin with the suffix."""


def one(name: str, kind: str, text: str, value: float) -> Family:
    """A metric without labels."""
    return Family(name, kind, text, [("", value)])

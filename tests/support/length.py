"""How long the sweeps are: short in `make test`, at their full length in `make test-long`.

A short sweep visits a fixed selection of the same points by the same code, and its checks and
positive controls are the same, so that it can fail for everything that the long one can fail for.
"""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

Point = TypeVar("Point")

IS_FULL: Final = os.environ.get("CURLEW_TESTS_AT_LENGTH") == "1"


def count(short: int, full: int) -> int:
    """How often a sweep repeats."""
    return full if IS_FULL else short


def selection(points: Sequence[Point], short: Sequence[Point]) -> Sequence[Point]:
    """All points, or those of `short`, each of which must be one of them."""
    unknown = [point for point in short if point not in points]
    assert not unknown, f"the full sweep does not visit {unknown}"
    return points if IS_FULL else short

"""One line of the table."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `measure(seconds)` gives (baseline, ours) in the same unit."""

    name: str
    unit: str
    baseline: str
    target: str
    measure: Callable[[float], tuple[float, float]]
    runs: int | None = None
    """Of rows that take long; None: as asked."""
    missing: Callable[[], list[str]] = list
    """What the row needs and this machine does not have: Debian packages, and what pip installs."""

"""What is told of a bound that a client has run into, or soon will. Pure."""

from typing import Literal, NamedTuple

QuotaUnit = Literal["concurrent-requests", "content-bytes", "requests"]


class Quota(NamedTuple):
    """A bound: its name, how much it is, and how much is left."""

    name: str
    limit: int
    unit: QuotaUnit
    left: int
    window_s: int | None = None
    """Of a rate; None: the bound is on what is in flight at a time."""
    reset_s: int | None = None
    """Seconds until there is some again, where that is known."""

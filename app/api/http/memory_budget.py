"""Bytes in flight over HTTP: request bodies held in memory, and answers that are not read yet.

A connection by itself is bounded: one request at a time, whose body is at most `batch_bytes_max`,
and one answer; a pipelined request waits until the one before is answered. What is bounded here is
the sum over all connections. Bodies count as they come, part by part, so that a
client which announces much and sends little takes nothing away from others; what arrives in one
piece with its head (up to 64 KiB) is not counted, and neither is an answer that the socket takes at
once: the hot path pays nothing.

Over the bound, a body is refused with `SystemBusy`, of which nothing is stored, and reads are
refused before they lease or read. One principal holds no more than its part of the bodies, so that
who sends slowly on many connections leaves others room. Event loop only. One per server.
"""

from typing import Final

from app.domain.errors import SystemBusy
from app.domain.limits import Limits
from app.domain.quotas.quota import Quota

_PART_NUMERATOR: Final = 3
_PART_DENOMINATOR: Final = 4
"""Three quarters of the bound for bodies are one principal's, and never less than a packed batch
has while it is unpacked."""
_NEAR_NUMERATOR: Final = 4
_NEAR_DENOMINATOR: Final = 5
"""From four fifths of a bound on, answers tell how much of it is left."""


class MemoryBudget:
    """The sums of one server. Public numbers are read by the metrics."""

    __slots__ = (
        *("_answers_max", "_bodies_max", "_of_principal", "_part_max"),
        *("answer_bytes", "body_bytes", "refused_count"),
    )

    def __init__(self, limits: Limits) -> None:
        self._bodies_max = limits.bodies_in_flight_bytes_max
        part = self._bodies_max * _PART_NUMERATOR // _PART_DENOMINATOR
        self._part_max = max(part, 2 * limits.batch_bytes_max)
        self._of_principal: dict[str, int] = {}
        self._answers_max = limits.answers_in_flight_bytes_max
        self.body_bytes = 0
        self.answer_bytes = 0
        self.refused_count = 0

    @property
    def bodies(self) -> Quota:
        """How much more of request bodies may come."""
        left = max(0, self._bodies_max - self.body_bytes)
        return Quota("bodies", self._bodies_max, "content-bytes", left)

    @property
    def are_bodies_near(self) -> bool:
        return is_near(self.body_bytes, self._bodies_max)

    @property
    def is_clogged(self) -> bool:
        """Readers leave so much unread that nothing more should be read for them."""
        return self.answer_bytes > self._answers_max

    def hold(self, size: int, principal: str | None = None) -> None:
        """A part of a body has come; raises `SystemBusy` when it is too much, in all or of this
        principal. `release` it."""
        if self.body_bytes + size > self._bodies_max:
            raise self._too_much(f"{self.body_bytes} bytes of request bodies are in flight")
        if principal is not None:
            own = self._of_principal.get(principal, 0)
            if own + size > self._part_max:
                raise self._too_much(
                    f"{own} bytes of request bodies of principal {principal!r} are in flight"
                )
            self._of_principal[principal] = own + size
        self.body_bytes += size

    def release(self, size: int, principal: str | None = None) -> None:
        """Give back what was held for the same principal."""
        self.body_bytes -= size
        if principal is not None:
            left = self._of_principal.get(principal, 0) - size
            if left > 0:
                self._of_principal[principal] = left
            else:
                self._of_principal.pop(principal, None)

    def _too_much(self, detail: str) -> SystemBusy:
        self.refused_count += 1
        return SystemBusy(
            detail,
            hint="send again after a pause, or smaller batches",
            quota=self.bodies,
            retry_after_s=1,
        )

    def add_unread(self, size: int) -> None:
        """A connection holds so much more (or less) that its client has not read."""
        self.answer_bytes += size

    def refuse_reads(self) -> None:
        """Raise `SystemBusy` while clients leave too many bytes of answers unread."""
        if self.is_clogged:
            self.refused_count += 1
            raise SystemBusy(
                f"{self.answer_bytes} bytes of answers wait for clients to read them",
                hint="read answers as they come, then ask again",
                quota=Quota("answers", self._answers_max, "content-bytes", 0),
                retry_after_s=1,
            )


def is_near(used: int, limit: int) -> bool:
    """Whether so much of a bound is used that clients should know."""
    return used * _NEAR_DENOMINATOR >= limit * _NEAR_NUMERATOR

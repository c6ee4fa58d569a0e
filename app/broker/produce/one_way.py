"""One-way sends: nobody waits for them, so what fails later is only counted.

Names, topic and limits are looked at as for any send, and what the log refuses is told. Event loop
only.
"""

from functools import partial

from app.broker.journal.append_future import AppendFuture
from app.domain.errors import CurlewError


class OneWay:
    """Takes the place of a deadline in a send. One per broker."""

    def __init__(self) -> None:
        self.dropped: dict[str, int] = {}
        """Code of the error → messages that were answered for and not stored, or perhaps not."""

    def leave(self, confirmation: AppendFuture, messages: int) -> None:
        """Wait no longer for an append of so many messages; count them if it fails."""
        confirmation.at_end(partial(self._count, messages))

    def _count(self, messages: int, error: CurlewError | None) -> None:
        if error is not None:
            self.dropped[error.code] = self.dropped.get(error.code, 0) + messages

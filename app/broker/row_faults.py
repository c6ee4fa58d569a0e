"""Rows of background work that fail, each by itself: what is wrong is logged once and shown.

Services go over many rows: subscriptions, timers, transactions, schedules, groups. A row that
raises is noted here and must not keep the others from being dealt with. It is logged when it begins
to fail and when its cause changes, not in every turn. Event loop only.
"""

import logging
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager
from typing import Final

from app.domain.errors import CurlewError, InvalidRequest, ShardUnavailable
from app.domain.limits import ROW_FAULTS_MAX

_LOG: Final = logging.getLogger(__name__)


class RowFaults:
    """The faults of one service. `what` names its rows, such as "failed deliveries"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._faults: dict[Hashable, tuple[type[Exception], str]] = {}

    @property
    def count(self) -> int:
        """Rows that fail; beyond `ROW_FAULTS_MAX` they are not told apart."""
        return len(self._faults)

    @property
    def problem(self) -> str | None:
        """One of the faults, and how many there are; None when there is none."""
        if not self._faults:
            return None
        row, (_, text) = next(iter(self._faults.items()))
        others = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return f"{self._what} of {_named(row)}: {text}{others}"

    def note(self, row: Hashable, error: Exception) -> None:
        """The row fails. Logged unless it has failed for the same cause before."""
        known = self._faults.get(row)
        text = error.detail if isinstance(error, CurlewError) else repr(error)
        if known is None and len(self._faults) >= ROW_FAULTS_MAX:
            return
        self._faults[row] = type(error), text
        if known is None or known[0] is not type(error):
            trace = None if isinstance(error, CurlewError) else error
            _LOG.error("%s of %s: %s", self._what, _named(row), text, exc_info=trace)

    def clear(self, row: Hashable) -> None:
        """The row was dealt with, or is gone."""
        self._faults.pop(row, None)

    def keep_only(self, rows: Collection[Hashable]) -> None:
        """Forget all rows but these: the others do not fail any more, or are gone."""
        for row in [row for row in self._faults if row not in rows]:
            del self._faults[row]

    @contextmanager
    def guard(self, row: Hashable, *, passing: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """Note what the block raises and go on behind it; clear the row when it raises nothing.

        What all rows would meet (`passing`) is raised on.
        """
        try:
            yield
        except passing:
            raise
        except Exception as error:  # noqa: BLE001 - one row must not stop the others
            self.note(row, error)
        else:
            self.clear(row)


def is_of_message(error: Exception) -> bool:
    """Whether an error is one of the message at hand, not one of the store that takes nothing now,
    which every other message would meet as well. So is a record that may be whole at a replica
    alone that does not answer."""
    own = InvalidRequest, ShardUnavailable
    return not isinstance(error, CurlewError) or isinstance(error, own)


def _named(row: Hashable) -> str:
    return "/".join(map(str, row)) if isinstance(row, tuple) else str(row)

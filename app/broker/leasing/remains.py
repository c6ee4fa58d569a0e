"""What closed tables of leases leave behind, let go over many turns of the event loop.

A group may hold 20,000 messages, and a topic may have many groups: to let go all of their leases in
the turn in which the topic is deleted would keep everybody waiting. From the caller's side they are
gone at once; what clients and principals are counted to hold follows within some turns. Event loop
only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

_PIECES_A_TURN: Final = 16
"""Of 256 leases each (`lease_table`): about a millisecond, whatever was closed in the turn."""


class Remains:
    """One per broker."""

    def __init__(self) -> None:
        self._left: deque[Iterator[None]] = deque()
        self._is_spent = False
        """This turn has had its pieces."""

    def take(self, pieces: Iterator[None], then: Callable[[], object] | None = None) -> None:
        """Go through `pieces`, each step of which lets go some, the first ones now where nothing
        was closed in this turn; then call `then`."""
        self._left.append(_and_then(pieces, then))
        if not self._is_spent:
            self._go_on()

    def _go_on(self) -> None:
        self._is_spent = True
        asyncio.get_running_loop().call_soon(self._begin_turn)
        self._let_go_some()

    def _begin_turn(self) -> None:
        self._is_spent = False
        if self._left:
            self._go_on()

    def _let_go_some(self) -> None:
        for _ in range(_PIECES_A_TURN):
            if not self._left:
                return
            try:
                next(self._left[0])
            except StopIteration:
                self._left.popleft()


def _and_then(pieces: Iterator[None], then: Callable[[], object] | None) -> Iterator[None]:
    yield from pieces
    if then is not None:
        then()

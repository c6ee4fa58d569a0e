"""Whose turn it is in one queue of a group in order: one message of a sharding key at a time. Pure.

Messages enter in the order of the queue. The first of a key has its turn at once; the ones behind
it wait in line until it is done. Messages without a key are of one key together: the queue's.

Invariants: the one that has its turn is the lowest open offset of its key; every offset that
entered and is not done either has its turn or waits. The caller bounds `size`.
"""

from collections import deque
from typing import NamedTuple

Key = str | None


class Turn(NamedTuple):
    """A message that waits, or whose turn it is; `earlier` is how often it was delivered before."""

    offset: int
    earlier: int


class KeyOrder:
    """One per queue of a group in order. Event loop only."""

    __slots__ = ("_keys", "_lines", "waiting_count")

    def __init__(self) -> None:
        self._keys: dict[int, Key] = {}
        """Offset → key, of those that have their turn."""
        self._lines: dict[Key, deque[Turn]] = {}
        self.waiting_count = 0

    @property
    def size(self) -> int:
        """Messages that are known here."""
        return len(self._keys) + self.waiting_count

    def has_turn(self, offset: int) -> bool:
        """Whether a message is known here and has its turn."""
        return offset in self._keys

    def key_of(self, offset: int) -> Key:
        """The key of a message that has its turn."""
        return self._keys[offset]

    def enter(self, offset: int, key: Key, earlier: int) -> bool:
        """Take in the next message of the queue; True: it has its turn."""
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = deque()
            self._keys[offset] = key
            return True
        line.append(Turn(offset, earlier))
        self.waiting_count += 1
        return False

    def done(self, offset: int) -> Turn | None:
        """A message is done; return the one whose turn it is now."""
        if offset not in self._keys:
            return None
        key = self._keys.pop(offset)
        line = self._lines[key]
        if not line:
            del self._lines[key]
            return None
        turn = line.popleft()
        self.waiting_count -= 1
        self._keys[turn.offset] = key
        return turn

    def skip_to(self, offset: int) -> list[Turn]:
        """Everything below `offset` is done; return those whose turn it is now."""
        turns: list[Turn] = []
        for held in [held for held in self._keys if held < offset]:
            turn = self.done(held)
            while turn is not None and turn.offset < offset:
                turn = self.done(turn.offset)
            if turn is not None:
                turns.append(turn)
        return turns

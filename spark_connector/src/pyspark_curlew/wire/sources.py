"""Where a body's bytes come from: a connection (see `reply`) or memory. Called by `frame`."""

from typing import Protocol

Buffer = bytes | memoryview


class Source(Protocol):
    """Bytes, one behind the other. For one thread; what can go wrong is each source's own."""

    def take(self, size: int) -> Buffer:
        """The next `size` bytes."""
        ...

    def take_into(self, target: memoryview) -> None:
        """The next `len(target)` bytes."""
        ...


class InMemory:
    """All bytes have come. Must not be asked for more than there are."""

    def __init__(self, data: Buffer) -> None:
        self._left = memoryview(data)

    def take(self, size: int) -> Buffer:
        taken, self._left = self._left[:size], self._left[size:]
        return taken

    def take_into(self, target: memoryview) -> None:
        target[:] = self.take(len(target))

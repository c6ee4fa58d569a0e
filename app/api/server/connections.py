"""All open connections of one server: how many from where, and which of them are late.

One timer for all of them instead of one per connection: a request that arrives whole sets nothing.
The timer runs only while connections are open. Event loop only.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from app.api.http.errors import TooManyConnections
from app.api.http.memory_budget import MemoryBudget
from app.api.quotas.failures import HANDSHAKES_FAILED_PER_SECOND, Failures
from app.api.server.file_sending import FileAnswers
from app.domain.errors import CurlewError
from app.domain.limits import Limits

NEVER: Final = float("inf")
_SWEEP_SECONDS_MAX: Final = 1.0
_SWEEP_SECONDS_MIN: Final = 0.01


class Connection(Protocol):
    """What is watched."""

    deadline: float
    """Loop time after which `on_late` is due; `NEVER` while the server is the one to act."""

    def on_late(self, now: float) -> None: ...

    def check_reader(self, now: float) -> None:
        """Give up on a client that does not take its answer."""
        ...


class Connections:
    """The registry. Made once per server by the composition root."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pressure = MemoryBudget(limits)
        self.refused_count = 0
        self.late_count = 0
        self.handshakes_failed_count = 0
        self.failures = Failures(time.monotonic)
        """Wrong keys."""
        self.failed_handshakes = Failures(time.monotonic, HANDSHAKES_FAILED_PER_SECOND)
        self.file_answers = FileAnswers(limits.file_answers_max)
        self._open: set[Connection] = set()
        self._handshakes_count = 0
        self._by_address: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        shortest_ms = min(
            limits.first_byte_ms_max,
            limits.request_head_ms_max,
            limits.request_body_ms_max,
            limits.linger_ms_max,
        )
        self._interval_s = min(max(shortest_ms / 4_000, _SWEEP_SECONDS_MIN), _SWEEP_SECONDS_MAX)

    @property
    def open_count(self) -> int:
        """Connections, and TLS handshakes that are not over."""
        return len(self._open) + self._handshakes_count

    def has_room_for(self, address: str) -> bool:
        """Whether a handshake may begin; what may not is counted as refused."""
        if self._refusal(address) is None:
            return True
        self.refused_count += 1
        return False

    @contextmanager
    def handshake(self, address: str) -> Iterator[Callable[[], None]]:
        """Counts a handshake like a connection until the block ends, or until it calls."""
        self._handshakes_count += 1
        self._by_address[address] += 1
        is_counted = True

        def is_over() -> None:
            nonlocal is_counted
            if is_counted:
                is_counted = False
                self._handshakes_count -= 1
                self._forget(address)

        try:
            yield is_over
        finally:
            is_over()

    def enter(self, connection: Connection, address: str) -> CurlewError | None:
        """Count `connection` in; the refusal when it is one too many."""
        refusal = self._refusal(address)
        if refusal is not None:
            self.refused_count += 1
        self._open.add(connection)
        self._by_address[address] += 1
        if self._timer is None:
            self._arm()
        return refusal

    @property
    def is_overrun(self) -> bool:
        """Whether more connections are open than are accepted and refused with an answer."""
        limits = self.limits
        return len(self._open) > limits.connections_max + limits.refused_connections_max

    def leave(self, connection: Connection, address: str) -> None:
        """Count `connection` out."""
        self._open.discard(connection)
        self._forget(address)

    def _forget(self, address: str) -> None:
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]

    def _refusal(self, address: str) -> CurlewError | None:
        limits = self.limits
        if self.open_count >= limits.connections_max:
            return TooManyConnections(
                f"the server has {self.open_count} connections open",
                fields={"limit_connections": limits.connections_max},
            )
        if self._by_address[address] >= limits.connections_per_address_max:
            return TooManyConnections(
                f"{address} has {self._by_address[address]} connections open",
                hint="keep connections open and use them again",
                fields={"limit_connections": limits.connections_per_address_max},
            )
        return None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self._open if each.deadline <= now]:
            self.late_count += 1
            connection.on_late(now)
        for connection in tuple(self._open):
            connection.check_reader(now)
        if self._open:
            self._arm()

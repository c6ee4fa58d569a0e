"""Accepts connections and shakes hands, in place of the event loop's own server: for TLS.

The loop's server tells nobody of a handshake before it is over. Here each is counted as a
connection from its first moment, so that half-open handshakes take nothing away from others than
connections would; it has `HANDSHAKE_SECONDS`. Event loop only.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from typing_extensions import override

from app.api.server.connections import Connections
from app.api.server.refusal_log import RefusalLog
from app.domain.shortages import shortage_of

_log: Final = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 5.0
GOODBYE_SECONDS: Final = 120.0
"""How long a client may take to read the rest of its last answer and to end the connection, too."""
_ACCEPTED_AT_ONCE: Final = 64
_SHORTAGE_SECONDS: Final = 1.0
"""Pause of accepting when the process has no descriptor for another connection."""

ContextSource = Callable[[], ssl.SSLContext]


class _Handover(asyncio.Protocol):
    """Has the transport until the handshake is over, and gives it to the served protocol."""

    def __init__(
        self, make_protocol: Callable[[], asyncio.Protocol], is_over: Callable[[], None]
    ) -> None:
        self._make_protocol = make_protocol
        self._is_over = is_over

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._is_over()
        protocol = self._make_protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class TlsListener:
    """What `uvicorn.Server` needs of a server: `close` and `wait_closed`."""

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        connections: Connections,
        context: ContextSource,
        failures: RefusalLog | None = None,
        handshakes_max: int | None = None,
    ) -> None:
        """`failures`: where failed handshakes are logged; None: for debugging only. Of more
        handshakes than `handshakes_max` the oldest ends; None: as many as there may be
        connections."""
        listener.setblocking(False)
        self._listener = listener
        self._make_protocol = make_protocol
        self._connections = connections
        self._context = context
        self._failures = failures
        self._loop = asyncio.get_running_loop()
        self._handshakes_max = handshakes_max
        self._tasks: dict[asyncio.Task[None], None] = {}
        """Handshakes, the oldest first."""
        self._is_open = False

    def start(self) -> None:
        self._is_open = True
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Accept no more, and give up the handshakes that are not over. Idempotent."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._listener)
        for task in self._tasks:
            task.cancel()
        if self._failures is not None:
            self._failures.end()

    async def wait_closed(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            address = str(peer[0])
            if self._connections.has_room_for(address):
                self._begin(connection, address)
            else:
                connection.close()  # nothing can be said before there is TLS

    def _pause(self, error: OSError) -> None:
        if shortage_of(error) is None:
            _log.error("no connection can be accepted for now: %s", error.strerror)
        self._loop.remove_reader(self._listener)
        self._loop.call_later(_SHORTAGE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if self._is_open:
            self._loop.add_reader(self._listener, self._accept)

    def _begin(self, connection: socket.socket, address: str) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._handshakes_max is not None and len(self._tasks) >= self._handshakes_max:
            next(task for task in self._tasks if not task.cancelling()).cancel()
        task = self._loop.create_task(self._shake(connection, address))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _shake(self, connection: socket.socket, address: str) -> None:
        """Encrypt the connection; the served protocol has it from then on."""
        connections = self._connections
        with connections.handshake(address) as is_over:
            delay_s = connections.failed_handshakes.delay_s(address)
            if delay_s:
                try:
                    await asyncio.sleep(delay_s)
                except asyncio.CancelledError:  # nobody else has it yet
                    connection.close()
                    raise
            try:
                await self._loop.connect_accepted_socket(
                    partial(_Handover, self._make_protocol, is_over),
                    connection,
                    ssl=self._context(),
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                    ssl_shutdown_timeout=GOODBYE_SECONDS,
                )
            except OSError as error:  # TLS errors and time-outs are such
                if self._failures is None:
                    _log.debug("no TLS with %s: %s", address, error)
                else:
                    self._failures.note(address, error)
                connections.handshakes_failed_count += 1
                connections.failed_handshakes.note(address)
                connection.close()

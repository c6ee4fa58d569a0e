"""A server whose answers are bytes that a test has written, whatever is asked."""

import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress

Script = Sequence[bytes | None]
"""Of one connection: what is sent after each request; None: the connection is closed at once."""

_PATIENCE_S = 20


class Scripted:
    """What came, by connection. `port` is where it listens."""

    def __init__(self, port: int, unread: bool) -> None:
        self.port = port
        self.unread = unread
        self.heads: list[list[bytes]] = []
        self.bodies: list[bytes] = []
        self.open: list[socket.socket] = []

    @property
    def requests(self) -> list[int]:
        """How many on each connection."""
        return [len(heads) for heads in self.heads]


@contextmanager
def run_scripted(
    *scripts: Script, tls: ssl.SSLContext | None = None, unread: bool = False
) -> Iterator[Scripted]:
    """One script for each connection, in the order in which they are made. `unread`: bodies are
    not read before they are answered.

    Connections are served one after the other, each until its script is done and the client closes.
    """
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(_PATIENCE_S)
        server = Scripted(listener.getsockname()[1], unread)
        thread = threading.Thread(target=_serve, args=(listener, scripts, server, tls), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            for connection in (listener, *server.open):
                with suppress(OSError):  # it is closed
                    connection.shutdown(socket.SHUT_RDWR)
            thread.join(_PATIENCE_S)


def _serve(
    listener: socket.socket,
    scripts: Sequence[Script],
    server: Scripted,
    tls: ssl.SSLContext | None,
) -> None:
    for script in scripts:
        try:
            accepted, _ = listener.accept()
        except OSError:  # the test is over
            return
        accepted.settimeout(_PATIENCE_S)
        server.heads.append([])
        try:
            connection = accepted if tls is None else tls.wrap_socket(accepted, server_side=True)
            with closing(connection):
                server.open.append(connection)
                _answer(connection, script, server)
        except OSError:
            accepted.close()


def _answer(connection: socket.socket, script: Script, server: Scripted) -> None:
    for answer in script:
        if answer is None:
            return
        with connection.makefile("rb") as incoming:
            head = b""
            while (line := incoming.readline()) != b"\r\n":
                if not line:  # the client has closed
                    return
                head += line
            server.heads[-1].append(head)
            length = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
            if length and not server.unread:
                server.bodies.append(incoming.read(int(length[0].partition(b":")[2])))
        connection.sendall(answer)
    connection.recv(1)

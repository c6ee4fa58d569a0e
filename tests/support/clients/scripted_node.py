"""A server that does what a test says, request by request, and keeps what it was asked.

For what a real node does not do on demand: break a connection, hang, forget, answer nonsense.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Step = Callable[[socket.socket], None]


@dataclass
class Asked:
    """A request."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def number(self) -> tuple[str, str]:
        """Lane and number of a send."""
        return self.headers["mq-producer-id"], self.headers["mq-producer-seq"]


@dataclass
class ScriptedNode:
    """Serves at `url`. Each request takes the next of `steps`; behind the last one all is well."""

    url: str
    steps: list[Step] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    route: Step | None = None
    """The answer to whoever asks for a route, which takes no step; None: there is none."""
    routes_asked: list[Asked] = field(default_factory=list)
    otherwise: Step | None = None
    """What is done behind the last step; None: answer as to a send that was stored."""

    @property
    def sends(self) -> list[Asked]:
        """Requests that are no goodbye of a client."""
        return [each for each in self.asked if each.line.startswith("POST")]


def stored(offset: int = 0, status: int = 201) -> Step:
    """Answer as to a send that was stored."""
    place = {"message_id": "A1", "topic": "orders", "queue_id": 0, "queue_offset": offset}
    return answered(status, {"status": "SEND_OK", **place, "store_time_ms": 1})


def answered(status: int, document: object, *headers: str) -> Step:
    """Answer with a document, as a node."""
    return raw(status, json.dumps(document).encode(), "MQ-Request-Id: r1", *headers)


def refused(status: int, code: str, *headers: str, **members: object) -> Step:
    """Answer with a problem document."""
    return answered(status, {"code": code, "detail": "no", "status": status, **members}, *headers)


def raw(status: int, body: bytes, *headers: str) -> Step:
    """Answer with anything."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return said("\r\n".join(lines).encode() + body)


def said(data: bytes) -> Step:
    """Write these bytes."""
    return lambda connection: connection.sendall(data)


def broken(connection: socket.socket) -> None:
    """Close the connection without an answer."""
    connection.close()


def hung(connection: socket.socket) -> None:
    """Say nothing until the client leaves."""
    with suppress(OSError):
        while connection.recv(65_536):
            pass


@contextmanager
def scripted(*steps: Step) -> Iterator[ScriptedNode]:
    """A server on a free port of 127.0.0.1."""
    listener = socket.create_server(("127.0.0.1", 0))
    node = ScriptedNode(f"http://127.0.0.1:{listener.getsockname()[1]}", list(steps))
    threads: list[threading.Thread] = []
    live: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            for asked in _requests(connection):
                if asked.line.endswith("/route HTTP/1.1"):
                    node.routes_asked.append(asked)
                    step = node.route or refused(404, "TOPIC_NOT_FOUND")
                    step(connection)
                    continue
                node.asked.append(asked)
                step = node.steps.pop(0) if node.steps else node.otherwise or stored()
                step(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                node.connections += 1
                live.append(connection)
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield node
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        _end(live)
        for thread in threads:
            thread.join()


def _end(connections: Sequence[socket.socket]) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _requests(connection: socket.socket) -> Iterator[Asked]:
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            part = connection.recv(65_536)
            if not part:
                return
            data += part
        head, _, data = data.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        fields = [each.partition(":") for each in lines]
        headers = {name.lower(): value.strip() for name, _, value in fields}
        length = int(headers.get("content-length", "0"))
        while len(data) < length:
            data += connection.recv(65_536)
        yield Asked(line, headers, data[:length])
        data = data[length:]

"""A proxy before a node, byte by byte, that stops in the middle of requests or of answers.

What it holds then it has taken: a client that gives up does not take it back, and the node gets it
when the proxy goes on. It is not for TLS, and understands no HTTP.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, Literal

CHUNK_BYTES: Final = 65_536

Place = Literal["requests", "answers"]


class _Pair:
    """A client's connection, and the one to the node for it."""

    def __init__(self, client: socket.socket, node: socket.socket) -> None:
        self.client = client
        self.node = node
        self.is_hung = self.has_hung = False
        self.is_over = False


class HangingProxy:
    """Listens on `port` of 127.0.0.1, until `close`. Its methods are for one thread."""

    def __init__(self, node_port: int) -> None:
        self._node_port = node_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self._hangs_in: Place | None = None
        self._pairs: list[_Pair] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def hung(self) -> int:
        """Connections that hold half of what they have read."""
        with self._changed:
            return sum(pair.is_hung for pair in self._pairs)

    def hang(self, place: Place) -> None:
        """Forward half of the next bytes of each connection there, and then nothing, either way."""
        with self._changed:
            self._hangs_in = place

    def go_on(self) -> None:
        """Forward what is held, and everything that comes."""
        with self._changed:
            self._hangs_in = None
            for pair in self._pairs:
                pair.is_hung = False
            self._changed.notify_all()

    def be_replaced(self) -> None:
        """As when another one takes its place: all connections end, what is held is lost."""
        with self._changed:
            self._hangs_in = None
            for pair in self._pairs:
                self._end(pair)
            self._changed.notify_all()

    def close(self) -> None:
        """End everything."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        self.be_replaced()
        for thread in self._threads[1:]:
            thread.join()
        for pair in self._pairs:
            pair.client.close()
            pair.node.close()

    def _start(self, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=work, name="hanging-proxy"))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                node = socket.create_connection(("127.0.0.1", self._node_port))
                pair = _Pair(client, node)
                with self._changed:
                    self._pairs.append(pair)
                self._start(partial(self._forward, pair, "requests"))
                self._start(partial(self._forward, pair, "answers"))

    def _forward(self, pair: _Pair, place: Place) -> None:
        source, sink = pair.client, pair.node
        if place == "answers":
            source, sink = sink, source
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                held = self._held(pair, place, data)
                sink.sendall(data[: len(data) - len(held)])
                if self._may_go_on(pair):
                    sink.sendall(held)
        with self._changed:
            if place == "answers" or not pair.has_hung:  # else the node may answer yet
                self._end(pair)

    def _held(self, pair: _Pair, place: Place, data: bytes) -> bytes:
        with self._changed:
            if pair.is_hung:
                return data
            pair.is_hung = self._hangs_in == place
            pair.has_hung |= pair.is_hung
            return data[len(data) // 2 :] if pair.is_hung else b""

    def _may_go_on(self, pair: _Pair) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: pair.is_over or not pair.is_hung)
            return not pair.is_over

    def _end(self, pair: _Pair) -> None:
        """Close both; whoever reads from them is woken."""
        if pair.is_over:
            return
        pair.is_over, pair.is_hung = True, False
        for each in (pair.client, pair.node):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def hanging_proxy(node_port: int) -> Iterator[HangingProxy]:
    """One for the length of a block."""
    proxy = HangingProxy(node_port)
    try:
        yield proxy
    finally:
        proxy.close()

"""A connection to a node that blocks its thread. Its asyncio twin has the same names."""

import select
import socket
import threading
import time
from time import monotonic
from typing import TYPE_CHECKING

from curlew_client.errors import NotCurlew, TimedOut, TooMuchUnderWay
from curlew_client.options import Node
from curlew_client.producing.attempts import lost
from curlew_client.wire.http1 import Answer, AnswerParser, MalformedAnswer

_READ_BYTES = 256 * 1024

if TYPE_CHECKING:
    import ssl


class BlockingConnection:
    """One request at a time. After an error it is closed, and not used again."""

    def __init__(self, url: str, sock: socket.socket) -> None:
        self._url = url
        self._socket = sock
        self._parser = AnswerParser()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    @classmethod
    def open(
        cls, node: Node, tls: "ssl.SSLContext | None", timeout_s: float
    ) -> "BlockingConnection":
        """Connect. Raises `ConnectionFailed`, with nothing stored."""
        return cls(node.url, connected(node, tls, timeout_s))

    @property
    def is_stale(self) -> bool:
        """Whether the node has closed it."""
        return bool(self._poll.poll(0))

    def exchange(self, data: bytes, deadline_s: float, begins_by_s: float | None = None) -> Answer:
        """Send a request, and wait for its answer until `deadline_s` of the monotonic clock; until
        `begins_by_s` while no byte of it has come. Raises `TimedOut`, among others."""
        silent_s = deadline_s if begins_by_s is None else min(begins_by_s, deadline_s)
        try:
            self._wait_until(deadline_s)
            self._socket.sendall(data)
            while True:
                self._wait_until(deadline_s if self._parser.has_begun else silent_s)
                part = self._socket.recv(_READ_BYTES)
                answer = self._parser.feed(part) if part else self._parser.end()
                if answer is not None:
                    return answer
                if not part:
                    raise ConnectionError("the node closed it")
        except TimeoutError:
            raise TimedOut(f"{self._url} did not answer in time", "unknown") from None
        except OSError as error:
            raise lost(error, self._url, has_written=True) from error
        except MalformedAnswer as error:
            raise NotCurlew(
                f"{self._url} does not speak HTTP as a Curlew node does: {error}"
            ) from error

    def _wait_until(self, deadline_s: float) -> None:
        self._socket.settimeout(max(deadline_s - monotonic(), 0.001))

    def close(self) -> None:
        """Close at once."""
        self._socket.close()


def connected(node: Node, tls: "ssl.SSLContext | None", timeout_s: float) -> socket.socket:
    """A socket to a node. Raises `ConnectionFailed`, with nothing stored."""
    try:
        sock = socket.create_connection((node.host, node.port), timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if node.is_tls:
            import ssl

            context = tls or ssl.create_default_context()
            sock = context.wrap_socket(sock, server_hostname=node.host)
    except OSError as error:
        raise lost(error, node.url, has_written=False) from error
    return sock


class BlockingSlots:
    """So many at once; others wait for their turn."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    def acquire(self, deadline_s: float) -> None:
        """Take one. Raises `TooMuchUnderWay` at `deadline_s`."""
        if not self._free.acquire(timeout=max(deadline_s - monotonic(), 0)):
            raise TooMuchUnderWay(
                "all connections of the client were busy until the time was over; raise "
                "connections or timeout, or send less at once"
            )

    def release(self) -> None:
        self._free.release()


def pause(seconds: float) -> None:
    """Let the time pass."""
    time.sleep(seconds)

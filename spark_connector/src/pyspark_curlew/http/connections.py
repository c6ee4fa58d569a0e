"""Connections to the service, by the standard library, kept for a process.

Spark forks its workers, and a socket must not be shared by two of them. Safe to use from several
threads: a connection that is taken is nobody else's. Called by `transport`.
"""

import atexit
import functools
import os
import select
import socket
import ssl
from typing import Final
from urllib.parse import urlsplit

from pyspark_curlew.errors import OptionInvalid
from pyspark_curlew.http.http_options import TlsOptions

KEPT_MAX: Final = 16
"""Idle connections of a process to one address; more are closed."""

_PORTS: Final = {"http": 80, "https": 443}

Kept = tuple[int, str, TlsOptions]
_idle: dict[Kept, list[socket.socket]] = {}
"""By process id too: a forked worker finds its parent's entries and must not use them."""


class Connections:
    """To one base address."""

    def __init__(self, endpoint: str, tls: TlsOptions) -> None:
        self._endpoint = endpoint
        self._tls = tls

    def take(self, connect_timeout_s: float, timeout_s: float) -> socket.socket:
        """A connection on which nothing waits to be read: an idle one, or a new one.

        `timeout_s` is for each step of what is done with it. Raises `OSError`, or `OptionInvalid`
        where a file of the TLS options cannot be used.
        """
        idle = self._of_process()
        while idle:
            try:
                sock = idle.pop()
            except IndexError:  # another thread was faster
                break
            if _is_quiet(sock):
                sock.settimeout(timeout_s)
                return sock
            sock.close()
        sock = self._new(connect_timeout_s)
        sock.settimeout(timeout_s)
        return sock

    def keep(self, sock: socket.socket) -> None:
        """Take a connection back whose last answer was read whole."""
        idle = self._of_process()
        if len(idle) < KEPT_MAX:
            idle.append(sock)
        else:
            sock.close()

    def _of_process(self) -> list[socket.socket]:
        return _idle.setdefault((os.getpid(), self._endpoint, self._tls), [])

    def _new(self, timeout_s: float) -> socket.socket:
        url = urlsplit(self._endpoint)
        host, port = url.hostname or "", url.port or _PORTS[url.scheme]
        context = _tls_context(self._tls) if url.scheme == "https" else None
        sock = socket.create_connection((host, port), timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(sock, server_hostname=host) if context else sock
        except BaseException:
            sock.close()
            raise


def _is_quiet(sock: socket.socket) -> bool:
    """Whether the connection has neither ended nor bytes behind the last answer."""
    if not hasattr(select, "poll"):  # Windows
        return not select.select([sock], [], [], 0)[0]
    poll = select.poll()  # makes no descriptor, as `epoll` does
    poll.register(sock, select.POLLIN)
    return not poll.poll(0)


@functools.lru_cache(maxsize=16)
def _tls_context(tls: TlsOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except OSError as error:  # ssl.SSLError is one
        raise OptionInvalid(
            f"a file of options 'tls.ca', 'tls.cert' and 'tls.key' cannot be used on this machine"
            f" ({type(error).__name__}: {error})"
        ) from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@atexit.register
def _close_idle() -> None:
    for connections in _idle.values():
        while connections:
            connections.pop().close()

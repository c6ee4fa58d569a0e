"""Connections to the service: made by urllib3, with its TLS and timeouts, and kept for a process.

Spark forks its workers, and a socket must not be shared by two of them. Safe to use from several
threads: a connection that is taken is nobody else's. Called by `transport`.
"""

import atexit
import functools
import os
import socket
from typing import Final, NamedTuple, cast

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import parse_url

from pyspark_curlew.http_options import TlsOptions

KEPT_MAX: Final = 16
"""Idle connections of a process to one address; more are closed."""


class Address(NamedTuple):
    """A base address, taken apart."""

    scheme: str
    host: str
    port: int | None
    path: str
    """In front of each request's path; without a slash at its end."""
    named: str
    """The `Host` header."""


Kept = tuple[int, str, TlsOptions]
_idle: dict[Kept, list[HTTPConnection]] = {}
"""By process id too: a forked worker finds its parent's entries and must not use them."""


@functools.lru_cache(maxsize=64)
def address_of(endpoint: str) -> Address:
    """What `http_options` has checked, with its path in the form in which it is sent."""
    url = parse_url(endpoint)
    host, scheme = url.host or "", url.scheme or "http"
    default = 443 if scheme == "https" else 80
    named = host if url.port in {None, default} else f"{host}:{url.port}"
    return Address(scheme, host.strip("[]"), url.port, (url.path or "").rstrip("/"), named)


class Connections:
    """To one address."""

    def __init__(self, endpoint: str, tls: TlsOptions) -> None:
        self._endpoint = endpoint
        self._tls = tls

    def take(self, connect_timeout_s: float, timeout_s: float) -> HTTPConnection:
        """A connection on which nothing waits to be read: an idle one, or a new one.

        `timeout_s` is for each step of what is done with it. Raises `OSError` or urllib3's errors.
        """
        idle = self._of_process()
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.is_connected:  # neither ended nor with bytes behind the last answer
                socket_of(connection).settimeout(timeout_s)
                return connection
            connection.close()
        connection = self._new(connect_timeout_s)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        socket_of(connection).settimeout(timeout_s)
        return connection

    def keep(self, connection: HTTPConnection) -> None:
        """Take a connection back whose last answer was read whole."""
        idle = self._of_process()
        if len(idle) < KEPT_MAX:
            idle.append(connection)
        else:
            connection.close()

    def _of_process(self) -> list[HTTPConnection]:
        return _idle.setdefault((os.getpid(), self._endpoint, self._tls), [])

    def _new(self, connect_timeout_s: float) -> HTTPConnection:
        address, tls = address_of(self._endpoint), self._tls
        if address.scheme == "http":
            return HTTPConnection(address.host, address.port, timeout=connect_timeout_s)
        return HTTPSConnection(
            address.host,
            address.port,
            timeout=connect_timeout_s,
            cert_reqs="CERT_REQUIRED" if tls.verify else "CERT_NONE",
            ca_certs=tls.ca,
            cert_file=tls.cert,
            key_file=tls.key,
        )


def socket_of(connection: HTTPConnection) -> socket.socket:
    """The socket of a connection that is made."""
    return cast("socket.socket", connection.sock)


@atexit.register
def _close_idle() -> None:
    for connections in _idle.values():
        while connections:
            connections.pop().close()

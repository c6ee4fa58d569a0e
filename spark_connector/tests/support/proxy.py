"""A proxy in front of a node that does with each request what a test wants done with it."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import urllib3


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def body_digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    @property
    def is_send(self) -> bool:
        return self.method == "POST" and "/messages:batch" in self.path


@dataclass(frozen=True)
class Given:
    """An answer."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str]


REFUSED = Given(503, "application/json", b'{"code": "NOT_TODAY"}', {})

Rule = Callable[[Asked, Callable[[], Given]], Given | None]
"""Answers a request, having passed it on or not; None: the connection ends without an answer."""


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    target: str
    rule: Rule
    pool: urllib3.PoolManager


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Proxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name != "Host"}
        proxy = self.server

        def pass_on() -> Given:
            address = proxy.target + self.path
            answer = proxy.pool.request(
                self.command, address, body=body, headers=headers, retries=False
            )
            kind = answer.headers.get("Content-Type", "text/plain")
            found = {name: text for name, text in answer.headers.items() if name[:3] == "mq-"}
            return Given(answer.status, kind, answer.data, found)

        try:
            given = proxy.rule(Asked(self.command, self.path, headers, body), pass_on)
        except urllib3.exceptions.HTTPError:
            given = None
        if given is None:
            self.close_connection = True
            return
        self.send_response(given.status)
        for name, text in given.headers.items():
            self.send_header(name, text)
        self.send_header("Content-Type", given.content_type)
        self.send_header("Content-Length", str(len(given.body)))
        self.end_headers()
        self.wfile.write(given.body)

    do_GET = do_POST  # noqa: N815 - the base class's name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def run_proxy(target: str, rule: Rule) -> Iterator[str]:
    """An address in front of `target`. The rule is called by several threads at once."""
    server = _Proxy(("127.0.0.1", 0), _Handler)
    server.target, server.rule, server.pool = target, rule, urllib3.PoolManager(maxsize=16)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Dropping:
    """A rule: of one in `every` sends the answer is dropped. Stored, and nobody knows."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._sends = 0
        self._lock = threading.Lock()
        self.dropped = threading.Event()

    def __call__(self, asked: Asked, pass_on: Callable[[], Given]) -> Given | None:
        given = pass_on()
        if not asked.is_send:
            return given
        with self._lock:
            self._sends += 1
            if self._sends % self._every:
                return given
        self.dropped.set()
        return None


class Holding:
    """A rule: the answer to a send is held back, and dropped when it is let go.

    At the moment of `held` the query is in the middle of a batch, for certain: one request of it is
    stored, and its task does not know.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._at: int | None = None
        self._sends = 0
        self._lock = threading.Lock()
        self.held = threading.Event()
        self._gate = threading.Event()

    def hold_after(self, sends: int) -> None:
        """Hold the answer after so many further sends."""
        with self._lock:
            self.held.clear()
            self._gate = threading.Event()
            self._at = self._sends + sends

    def let_go(self) -> None:
        self._gate.set()

    def __call__(self, asked: Asked, pass_on: Callable[[], Given]) -> Given | None:
        given = pass_on()
        if not (asked.is_send and self._path in asked.path):
            return given
        with self._lock:
            self._sends += 1
            is_it, gate = self._sends == self._at, self._gate
        if not is_it:
            return given
        self.held.set()
        gate.wait()
        return None

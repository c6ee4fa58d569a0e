"""A proxy that passes requests on and then drops some of the answers: stored, and nobody knows."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import urllib3


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    target: str
    every: int
    sends: int
    dropped: threading.Event
    pool: urllib3.PoolManager


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Proxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name != "Host"}
        proxy = self.server
        answer = proxy.pool.request(
            self.command, proxy.target + self.path, body=body, headers=headers, retries=False
        )
        if self.command == "POST":
            proxy.sends += 1
            if proxy.sends % proxy.every == 0:
                proxy.dropped.set()
                self.close_connection = True
                return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
        self.send_header("Content-Length", str(len(answer.data)))
        self.end_headers()
        self.wfile.write(answer.data)

    do_GET = do_POST  # noqa: N815 - the base class's name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def dropping_proxy(target: str, every: int) -> Iterator[tuple[str, threading.Event]]:
    """An address in front of `target`, and whether an answer was dropped; one of `every` is."""
    server = _Proxy(("127.0.0.1", 0), _Handler)
    server.target, server.every, server.sends = target, every, 0
    server.dropped, server.pool = threading.Event(), urllib3.PoolManager()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.dropped
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

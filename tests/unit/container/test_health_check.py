"""What a container asks to know whether its node lives."""

import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typing_extensions import override

from app.health_check import main, url_of
from tests.support.clients.tls import TlsPlace


class Living(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    @override
    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving(place: TlsPlace | None = None) -> Iterator[int]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Living)
    if place is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(place.cert_file, place.key_file)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_environment_says_where() -> None:
    assert url_of({}) == "http://127.0.0.1:8710/healthz"
    settings = {"CURLEW_PORT": "9", "CURLEW_TLS_CERT_FILE": "cert.pem"}
    assert url_of(settings) == "https://127.0.0.1:9/healthz"


def test_one_that_lives_is_well_and_one_that_does_not_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as port:
        assert main({"CURLEW_PORT": str(port)}) == 0
    with serving(TlsPlace(tmp_path)) as port:
        assert main({"CURLEW_PORT": str(port), "CURLEW_TLS_CERT_FILE": "x"}) == 0
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    assert main({"CURLEW_PORT": str(port)}) == 1
    assert "healthz" in capsys.readouterr().err

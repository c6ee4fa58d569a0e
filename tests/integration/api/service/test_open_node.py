"""What a web page of somebody else gets out of an open node: nothing, by any operation."""

import re
import socket
from typing import Any, Final

import httpx
import msgspec
import pytest

from tests.support.nodes.node import ROOT, RunningNode

CROSS: Final = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
DOCUMENT: Final[dict[str, Any]] = msgspec.json.decode((ROOT / "openapi/openapi.json").read_bytes())
METHODS: Final = {"get", "put", "post", "delete", "patch", "head"}
OPERATIONS: Final = [
    (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    for method in methods
    if method in METHODS
]
BESIDE_THE_DOCUMENT: Final = [
    ("GET", "/openapi.json"),
    ("GET", "/nowhere"),
    ("POST", "/ui/"),
    ("GET", "/ui/static/curlew.css"),
    ("OPTIONS", "/v1/topics/{topic}/messages"),
    ("TRACE", "/v1/topics"),
]


def filled(path: str) -> str:
    names = {"topic": "victim", "group": "victims", "queue": "0"}
    return re.sub(r"{(\w+)}", lambda match: names.get(match[1], "x"), path)


@pytest.mark.parametrize(("method", "path"), [*OPERATIONS, *BESIDE_THE_DOCUMENT])
def test_another_page_reaches_no_operation(http: httpx.Client, method: str, path: str) -> None:
    answer = http.request(method, filled(path), headers=CROSS)
    assert answer.status_code == 403
    if method != "HEAD":
        assert answer.json()["code"] == "FORBIDDEN"
        assert answer.headers["content-type"] == "application/problem+json"


def test_all_operations_were_asked() -> None:
    assert len(OPERATIONS) > 80


def test_nothing_is_made_or_leased_by_an_image(http: httpx.Client, topic: str) -> None:
    http.post(f"/v1/topics/{topic}/messages", content=b"secret").raise_for_status()
    stream = f"/v1/topics/{topic}/groups/of-{topic}/stream?invisible=12h"
    for headers in (CROSS, CROSS | {"Sec-Fetch-Site": "same-site"}):
        assert http.get(stream, headers=headers).status_code == 403
    typed = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert http.get(stream, headers=typed).status_code == 403
    assert http.get(f"/v1/groups/of-{topic}").status_code == 404


def test_an_offer_of_a_websocket_is_a_request_like_another(node: RunningNode) -> None:
    for kind in (b"Sec-Fetch-Site: cross-site", b"Origin: http://evil.example"):
        with socket.create_connection(("127.0.0.1", node.port), 20) as connection:
            connection.sendall(
                b"GET /v1/topics/orders/groups/g/stream HTTP/1.1\r\nHost: localhost\r\n"
                b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + kind + b"\r\n\r\n"
            )
            assert connection.recv(65_536).startswith(b"HTTP/1.1 403 ")


def test_two_authorizations_are_refused(node: RunningNode) -> None:
    with socket.create_connection(("127.0.0.1", node.port), 20) as connection:
        connection.sendall(
            b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n"
            b"Authorization: Bearer a\r\nAUTHORIZATION: Bearer b\r\n\r\n"
        )
        answer = connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"MALFORMED_REQUEST" in answer


def test_html_that_somebody_sent_does_not_run_as_our_page(http: httpx.Client, topic: str) -> None:
    sent = http.post(
        f"/v1/topics/{topic}/messages",
        content=b"<script>fetch('/v1/topics')</script>",
        headers={"Content-Type": "text/html"},
    ).json()
    message = f"/v1/topics/{topic}/messages/{sent['message_id']}"
    for form in ({"params": {"format": "raw"}}, {"headers": {"Accept": "text/html"}}):
        answer = http.get(message, **form)  # type: ignore[arg-type]
        assert answer.headers["content-type"] == "text/html"
        assert answer.headers["content-security-policy"] == "sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"

"""Answers over real sockets, byte by byte: good ones, strange ones, and those of an enemy."""

import socket
import ssl
import subprocess
from collections.abc import Sequence
from http.client import HTTPResponse
from pathlib import Path

import pytest
from pyspark_curlew.errors import AccessDenied, OptionInvalid
from pyspark_curlew.http import connections
from pyspark_curlew.http import reply as module
from pyspark_curlew.http.http_options import HttpOptions, TlsOptions
from pyspark_curlew.http.reply import Answer
from pyspark_curlew.http.retry import RetryPolicy, TryLater
from pyspark_curlew.http.transport import Buffer, Request, Transport

from spark_connector.tests.support.scripted import Script, run_scripted
from tests.support.nodes.waiting import wait_until

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ANOTHER = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nanother"
LARGE = bytes(range(256)) * 4096
SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(LARGE) + LARGE


def transport_to(
    port: int, scheme: str = "http", path: str = "", tls: TlsOptions | None = None, **given: object
) -> Transport:
    options = HttpOptions(
        (f"{scheme}://127.0.0.1:{port}{path}",),
        connect_timeout_ms=5000,
        read_timeout_ms=int(str(given.get("timeout_ms", 10_000))),
        retry_timeout_ms=0,
        load_timeout_ms=0,
        tls=tls or TlsOptions(),
        headers=(("X-Mine", "1"),),
    )
    return Transport(options, RetryPolicy(0))


def asked(*body: Buffer) -> Request:
    method = "POST" if body else "GET"
    return Request(method, "/v1/things", {"a": "b c"}, {"Accept": "x/y"}, body or None)


def answers(scripts: Sequence[Script], requests: int = 1) -> tuple[list[Answer], list[int]]:
    """What the transport makes of the scripts, and how many requests each connection had."""
    with run_scripted(*scripts) as server:
        transport = transport_to(server.port)
        return [transport.once(asked()) for _ in range(requests)], server.requests


def answer_to(raw: bytes, *, closes: bool = False) -> Answer:
    """The one answer to `raw`; the next request must be answered too, whatever `raw` was."""
    script = [raw, None] if closes else [raw, GOOD]
    ((first, second), _) = answers([script, [GOOD]], requests=2)
    assert bytes(second.body) == b"ok"
    return first


def refusal_of(raw: bytes, *, closes: bool = True) -> str:
    """Why `raw` is no answer. Its connection is not used again: the next request has its own."""
    with run_scripted([raw, None] if closes else [raw, GOOD], [GOOD]) as server:
        transport = transport_to(server.port)
        with pytest.raises(TryLater) as failure:
            transport.once(asked())
        assert bytes(transport.once(asked()).body) == b"ok"
        assert server.requests == [1, 1]
    return failure.value.reason


def test_what_is_sent() -> None:
    with run_scripted([GOOD, GOOD, GOOD]) as server:
        transport = transport_to(server.port, path="/base")
        transport.once(asked())
        transport.once(asked(b"whole"))
        transport.once(asked(b"in ", memoryview(b"pieces")))
        first, second, third = (head.split(b"\r\n") for head in server.heads[0])
    assert first == [
        b"GET /base/v1/things?a=b+c HTTP/1.1",
        b"User-Agent: pyspark-curlew",
        b"Accept-Encoding: identity",
        b"X-Mine: 1",
        b"Accept: x/y",
        b"Host: 127.0.0.1:%d" % server.port,
        b"",
    ]
    assert second[0] == b"POST /base/v1/things?a=b+c HTTP/1.1"
    assert b"Content-Length: 5" in second
    assert b"Content-Length: 9" in third
    assert server.bodies == [b"whole", b"in pieces"]


def test_a_large_body_both_ways() -> None:
    with run_scripted([SIZED, SIZED]) as server:
        transport = transport_to(server.port)
        for _ in range(2):
            assert bytes(transport.once(asked(b"head", LARGE, memoryview(LARGE))).body) == LARGE
        assert server.bodies == [b"head" + LARGE + LARGE] * 2
        assert server.requests == [2], "one connection"


def test_headers_are_found_by_lower_case_names() -> None:
    answer = answer_to(
        b"HTTP/1.1 200 OK\r\nMQ-Next-Offset:7\r\nVary: a\r\nX:\t y \r\nvary: b\r\nEmpty:\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    assert answer.headers == {
        "mq-next-offset": "7",
        "vary": "a, b",
        "x": "y",
        "empty": "",
        "content-length": "0",
    }


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status: int) -> None:
    found, requests = answers([[b"HTTP/1.1 %d No\r\n\r\n" % status, GOOD]], requests=2)
    assert [bytes(answer.body) for answer in found] == [b"", b"ok"]
    assert requests == [2]


def test_a_redirection_is_an_answer_and_not_followed() -> None:
    raw = b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    assert answer_to(raw).status == 307


def test_interim_answers_are_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    found, requests = answers([[interim + GOOD, GOOD]], requests=2)
    assert [bytes(answer.body) for answer in found] == [b"ok", b"ok"]
    assert requests == [2]


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"


def test_a_body_in_chunks_as_proxies_send_it() -> None:
    raw = CHUNKED + b"3\r\nabc\r\n0A ; x=y\r\n0123456789\r\n1\r\nz\r\n0\r\nTrailer: t\r\n\r\n"
    found, requests = answers([[raw, GOOD]], requests=2)
    assert [bytes(answer.body) for answer in found] == [b"abc0123456789z", b"ok"]
    assert requests == [2]


def test_a_large_body_in_chunks() -> None:
    size = 100_003
    parts = [LARGE[at : at + size] for at in range(0, len(LARGE), size)]
    raw = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    assert bytes(answer_to(raw + b"0\r\n\r\n").body) == LARGE


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_a_connection_that_may_end_is_not_used_again(head: bytes) -> None:
    _, requests = answers([[head + b"ok", GOOD], [GOOD]], requests=2)
    assert requests == [1, 1]


def wait_for_what_is_behind(port: int) -> None:
    """Until each idle connection has ended or has something to be read."""
    idle = [kept for (_, address, _), kept in connections._idle.items() if f":{port}" in address]
    wait_until(lambda: not any(connections._is_quiet(each) for kept in idle for each in kept))


def test_a_connection_that_the_service_has_closed_is_not_used() -> None:
    with run_scripted([GOOD, None], [GOOD, None], [GOOD]) as server:
        transport = transport_to(server.port)
        for _ in range(3):
            assert transport.once(asked()).body == b"ok"
            if len(server.requests) < 3:
                wait_for_what_is_behind(server.port)
        assert server.requests == [1, 1, 1]


@pytest.mark.parametrize("raw", [GOOD + b"x", GOOD + GOOD, GOOD + LARGE])
def test_bytes_behind_an_answer_are_nobodys_answer(raw: bytes) -> None:
    """Whoever can put them there must not answer the next request with them."""
    with run_scripted([raw, ANOTHER], [ANOTHER]) as server:
        transport = transport_to(server.port)
        assert transport.once(asked()).status == 200
        assert transport.once(asked()).body == b"another"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "closed connection"),
        (b"hello\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "no length"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "LineTooLong"),
        (GOOD[:-1], "ends after 1 bytes of 2"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + b"x" * 400_000, "400000 bytes of"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "closed connection"),
        (CHUNKED + b"5\r\nab", "IncompleteRead"),
        (CHUNKED + b"2\r\nab\r\n", "IncompleteRead"),
        (CHUNKED + b"zz\r\nab", "IncompleteRead"),
    ],
)
def test_an_answer_that_is_cut_is_an_error(raw: bytes, reason: str) -> None:
    assert reason in refusal_of(raw)


def test_a_body_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_BYTES_MAX", 100_000)
    assert "100000 are the most" in refusal_of(SIZED, closes=False)
    chunks = b"186a0\r\n" + LARGE[:100_000] + b"\r\n186a0\r\n" + LARGE[:100_000]
    assert "100000 are the most" in refusal_of(CHUNKED + chunks, closes=False)


def test_a_service_that_says_nothing_is_given_up() -> None:
    silent = run_scripted([b"HTTP/1.1 200 OK\r\n"])
    with silent as server, pytest.raises(TryLater, match="timed out"):
        transport_to(server.port, timeout_ms=50).once(asked())


def test_a_refusal_that_comes_before_the_end_of_the_body() -> None:
    """The service need not read what it refuses; the client must not wait for it to."""
    raw = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    with run_scripted([raw, None], unread=True) as server:
        assert transport_to(server.port).once(asked(LARGE * 16)).status == 413


def test_a_header_with_a_line_break_is_never_sent() -> None:
    request = Request("GET", "/", {}, {"X": "a\r\nY: b"})
    with run_scripted() as server, pytest.raises(ValueError, match="line break"):
        transport_to(server.port).once(request)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    folder: Path = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=here"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def server_tls(certificate: tuple[str, str], *, asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if asks:
        context.load_verify_locations(certificate[0])
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_a_certificate_of_nobody_is_refused_unless_that_is_wanted(
    certificate: tuple[str, str],
) -> None:
    with run_scripted([GOOD], [GOOD], tls=server_tls(certificate)) as server:
        with pytest.raises(AccessDenied, match=r"not trusted .*tls.ca"):
            transport_to(server.port, "https").once(asked())
        unverified = transport_to(server.port, "https", tls=TlsOptions(verify=False))
        assert unverified.once(asked()).body == b"ok"


def test_a_certificate_of_the_client(certificate: tuple[str, str]) -> None:
    cert, key = certificate
    with run_scripted([GOOD], tls=server_tls(certificate, asks=True)) as server:
        tls = TlsOptions(ca=cert, cert=cert, key=key)
        assert transport_to(server.port, "https", tls=tls).once(asked()).body == b"ok"
    tls = TlsOptions(ca=cert, cert="/nowhere/cert.pem", key=key)
    with run_scripted([GOOD], tls=server_tls(certificate)) as server, pytest.raises(OptionInvalid):
        transport_to(server.port, "https", tls=tls).once(asked())


def test_only_heads_that_are_not_plain_are_left_to_http_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes five times as long."""
    asked_for = []
    whole = module.HTTPResponse

    def note(sock: socket.socket) -> HTTPResponse:
        asked_for.append(sock)
        return whole(sock)

    monkeypatch.setattr(module, "HTTPResponse", note)
    assert bytes(answer_to(GOOD).body) == b"ok"
    assert not asked_for
    twice = b"HTTP/1.1 200 OK\r\nVary: a\r\nVary: b\r\nContent-Length: 2\r\n\r\nok"
    assert answer_to(twice).headers["vary"] == "a, b"
    assert answer_to(b"HTTP/1.1 200 OK\r\nConnection: x\r\nContent-Length: 0\r\n\r\n").body == b""
    assert len(asked_for) == 2

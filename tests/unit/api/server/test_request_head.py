"""Request heads beyond what the parser checks; the whole table is tested over raw sockets."""

import pytest

from app.api.http.errors import MalformedRequest
from app.api.server.head import check_head
from app.domain.limits import Limits

HOST = (b"host", b"localhost:8710")
CODING = (b"transfer-encoding", b"chunked")
EXPECT = (b"expect", b"100-Continue")


@pytest.mark.parametrize("host", [b"a", b"a:1", b"[::1]:8710", b"127.0.0.1", b"", b"a_b.c-d"])
def test_a_usual_head_passes(host: bytes) -> None:
    assert not check_head(b"/", "1.1", [(b"host", host), (b"accept", b"*/*")], Limits())


@pytest.mark.parametrize(
    "host", [b"a b", b"a/b", b"u@a", b"a:b", b"a,b@c", b"[::1", b"a\\b", b"a#"]
)
def test_what_is_not_a_host_is_refused(host: bytes) -> None:
    for rest in ([], [CODING]):
        with pytest.raises(MalformedRequest, match="not a host name"):
            check_head(b"/", "1.1", [(b"host", host), *rest], Limits())


def test_an_expectation_is_met_in_http_1_1_only() -> None:
    assert check_head(b"/", "1.1", [HOST, EXPECT], Limits())
    assert not check_head(b"/", "1.0", [HOST, EXPECT], Limits())


def test_a_coding_is_left_to_the_parser_in_http_1_1_only() -> None:
    assert not check_head(b"/", "1.1", [CODING, HOST], Limits())
    with pytest.raises(MalformedRequest):
        check_head(b"/", "1.0", [CODING, HOST], Limits())


@pytest.mark.parametrize("value", [b"gzip, chunked", b"chunked, chunked", b"identity", b""])
def test_no_other_coding_is_read(value: bytes) -> None:
    """The parser takes each that ends with chunks, and the rest would be stored as it came."""
    with pytest.raises(MalformedRequest, match="chunked"):
        check_head(b"/", "1.1", [HOST, (b"transfer-encoding", value)], Limits())
    with pytest.raises(MalformedRequest, match="chunked"):
        check_head(b"/", "1.1", [HOST, CODING, CODING], Limits())


@pytest.mark.parametrize("hosts", [[], [HOST, HOST], [(b"host", b"other")]])
def test_a_whole_address_names_the_host_of_the_head(hosts: list[tuple[bytes, bytes]]) -> None:
    assert not check_head(b"http://LOCALHOST:8710/x", "1.0", [HOST], Limits())
    with pytest.raises(MalformedRequest):
        check_head(b"http://localhost:8710/x", "1.0", hosts, Limits())

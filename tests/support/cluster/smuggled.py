"""Sends whose end two readers would see in two places."""

from collections.abc import Mapping
from typing import Final

_EVIL: Final = (
    b"POST /v1/topics/orders/messages HTTP/1.1\r\nhost: cluster\r\ncurlew-versions: 0 0\r\n"
    b"curlew-principal: admin\r\ncontent-length: 1\r\n\r\nx"
)
"""What should never be read as a request, least of all by another node."""
_ONE: Final = b"content-length: 1"
_CHUNKED: Final = b"transfer-encoding: chunked"
SMUGGLED: Final[Mapping[str, tuple[int, list[bytes], bytes]]] = {
    "two lengths": (400, [_ONE, b"content-length: 200"], b"x" + _EVIL),
    "a list of lengths": (400, [b"content-length: 1, 1"], b"x" + _EVIL),
    "a length with a sign": (400, [b"content-length: +1"], b"x" + _EVIL),
    "a length and chunks": (400, [b"content-length: 3", _CHUNKED], b"0\r\n\r\n" + _EVIL),
    "an unknown coding": (400, [b"transfer-encoding: xchunked"], b"0\r\n\r\n" + _EVIL),
    "another coding first": (400, [b"transfer-encoding: gzip, chunked"], b"0\r\n\r\n" + _EVIL),
    "two codings": (400, [_CHUNKED, b"transfer-encoding: identity"], b"0\r\n\r\n" + _EVIL),
    "a folded line": (400, [b"mq-tag: a", b" curlew-principal: admin", _ONE], b"x"),
    "a bare CR": (400, [b"mq-property-a: b\rcurlew-principal: admin", _ONE], b"x"),
    "a bare LF": (400, [b"mq-property-a: b\ncurlew-principal: admin", _ONE], b"x"),
    "a NUL": (400, [b"mq-property-a: b\0c", _ONE], b"x"),
    "a blank before the colon": (400, [b"curlew-principal : admin", _ONE], b"x"),
    "chunks that end with LF": (400, [_CHUNKED], b"1\nx\n0\n\n" + _EVIL),
    "two keys": (400, [b"authorization: Bearer x", _ONE], b"x"),
    "an underscore": (201, [b"transfer_encoding: chunked", b"content-length: 5"], b"0\r\n\r\n"),
    "trailers": (
        201,
        [_CHUNKED],
        b"1;a=b\r\nx\r\n0\r\ncurlew-principal: admin\r\nmq-queue-id: 1\r\n\r\n",
    ),
    "hop by hop": (201, [b"connection: mq-queue-id, keep-alive", b"te: trailers", _ONE], b"x"),
    "an offer": (201, [b"connection: upgrade", b"upgrade: h2c", _ONE], b"x"),
    "a request as the body": (201, [b"content-length: %d" % len(_EVIL)], _EVIL),
}
"""Status, lines of the head beside those of a send, and all that follows the head."""

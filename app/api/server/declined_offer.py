"""What goes on after an offer of another protocol (`Upgrade: h2c`) that is not taken.

The parser ends the request at its head then, and takes its body for the other protocol's. RFC 9110
lets a server pass an offer over: the request counts as it is, with its body. So another parser
reads on behind a head that says only how long the body is.
"""

from collections.abc import Sequence

from app.api.server.head import Headers

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


def has_body(headers: Headers) -> bool:
    """Whether a request with this head has a body."""
    return any(name in _FRAMING for name, _ in headers)


def head_of_body(headers: Sequence[tuple[bytes, bytes]], *, keep_alive: bool) -> bytes:
    """A head that makes a parser read the same body, and keep or close the connection alike."""
    framing = [name + b": " + value for name, value in headers if name in _FRAMING]
    lines = [b"POST / HTTP/1.1", *framing, *([] if keep_alive else [b"connection: close"])]
    return b"\r\n".join(lines) + b"\r\n\r\n"


class AfterOffer:
    """Stands between a parser and the protocol: lets nothing of the head through until it is told
    to, and everything afterwards."""

    def __init__(self, protocol: object) -> None:
        self._protocol = protocol
        self.is_in_head = True
        self.on_body = protocol.on_body  # type: ignore[attr-defined]
        self.on_message_complete = protocol.on_message_complete  # type: ignore[attr-defined]

    def on_message_begin(self) -> None:
        if not self.is_in_head:
            self._protocol.on_message_begin()  # type: ignore[attr-defined]

    def on_url(self, url: bytes) -> None:
        if not self.is_in_head:
            self._protocol.on_url(url)  # type: ignore[attr-defined]

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_in_head:
            self._protocol.on_header(name, value)  # type: ignore[attr-defined]

    def on_headers_complete(self) -> None:
        if not self.is_in_head:
            self._protocol.on_headers_complete()  # type: ignore[attr-defined]

"""What a request head must be like beyond what the parser checks. Pure.

The parser (llhttp, strict) refuses by itself: bare LF, folded lines, NUL, both lengths at once,
repeated or odd `Content-Length`, bodies that do not end with chunks. Here is what it lets pass.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

import httptools

from app.api.http.errors import (
    ExpectationFailed,
    MalformedRequest,
    TargetTooLong,
)
from app.domain.limits import Limits

_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(?::[0-9]*)?")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
_RARE: Final = frozenset({b"expect", b"transfer-encoding"})
_WATCHED: Final = _RARE | {b"host"}
_VERSIONS: Final = ("1.1", "1.0")

Headers = Sequence[tuple[bytes, bytes]]


def check_head(target: bytes, version: str, headers: Headers, limits: Limits) -> bool:
    """Whether the client waits for `100 Continue`; raises when the head is to be refused."""
    named = dict(headers)
    host = named.get(b"host")
    is_odd = target[:1] != b"/" or len(target) > limits.request_target_bytes_max
    is_rare = version != "1.1" or len(named) != len(headers) or not _RARE.isdisjoint(named)
    if is_odd or is_rare or host is None:
        watched = [header for header in headers if header[0] in _WATCHED]
        if is_odd:
            _check_target(target, watched, limits)
        return _check_rare(watched, version)
    if not _is_host(host):
        raise MalformedRequest("the Host header is not a host name")
    return False


def split_target(target: bytes) -> tuple[bytes, str, bytes]:
    """Raw path, path and query of a request target."""
    if target[:1] == b"/" and b"#" not in target:
        raw_path, _, query = target.partition(b"?")
    else:
        url = httptools.parse_url(target)
        raw_path, query = url.path or b"/", url.query or b""
    path = raw_path.decode("ascii")
    return raw_path, unquote(path) if "%" in path else path, query


def _check_target(target: bytes, watched: Headers, limits: Limits) -> None:
    """A target that is long, or has an authority: it must name what the Host header names."""
    if len(target) > limits.request_target_bytes_max:
        raise TargetTooLong(
            f"the request target has {len(target)} bytes",
            hint="send long values in headers or in the body",
            fields={"limit_bytes": limits.request_target_bytes_max},
        )
    match = _ABSOLUTE.match(target)
    if match is None:
        raise MalformedRequest("the request target is not a path")
    if [match[1].lower()] != [value.lower() for name, value in watched if name == b"host"]:
        raise MalformedRequest("the request target and the Host header name different hosts")


def _check_rare(watched: Headers, version: str) -> bool:
    """Heads with more or less than one Host, an expectation, a coding, or another version."""
    if version not in _VERSIONS:
        raise MalformedRequest(f"HTTP/{version} is not spoken here", hint="use HTTP/1.1")
    hosts = [value for name, value in watched if name == b"host"]
    if len(hosts) > 1 or (not hosts and version != "1.0"):
        raise MalformedRequest(f"{len(hosts) or 'no'} Host headers; exactly one is needed")
    if hosts and not _is_host(hosts[0]):
        raise MalformedRequest("the Host header is not a host name")
    codings = [value.strip().lower() for name, value in watched if name == b"transfer-encoding"]
    if version == "1.0" and codings:
        raise MalformedRequest("HTTP/1.0 has no transfer codings: the body's length is unknown")
    if codings and codings != [b"chunked"]:
        raise MalformedRequest(
            "the only transfer coding that is read is chunked", hint="pack with Content-Encoding"
        )
    expected = [value.strip().lower() for name, value in watched if name == b"expect"]
    if expected and expected != [b"100-continue"]:
        raise ExpectationFailed("the only expectation that can be met is 100-continue")
    return bool(expected) and version != "1.0"


@lru_cache(maxsize=256)
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None

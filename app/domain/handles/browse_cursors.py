"""Cursors of a browse: a direction and a place of the log, opaque and URL-safe. Pure.

One number is enough for all queues, since within a node the log orders them. The store's id is in
it, so that a cursor of another node is refused and not taken for a place here.
"""

import base64
import binascii
import struct
from typing import Final, NamedTuple

from app.domain.errors import IllegalPage

_LAYOUT: Final = struct.Struct(">cc4sQ")
_VERSION: Final = b"1"
_FORWARD: Final = b"f"
_BACKWARD: Final = b"b"


class BrowseCursor(NamedTuple):
    """Forward: from `position` on. Backward: before `position`."""

    is_forward: bool
    position: int


def encode_browse_cursor(cursor: BrowseCursor, store_id: bytes) -> str:
    """The text for clients."""
    way = _FORWARD if cursor.is_forward else _BACKWARD
    packed = _LAYOUT.pack(_VERSION, way, store_id, cursor.position)
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def decode_browse_cursor(text: str, store_id: bytes) -> BrowseCursor:
    """What `encode_browse_cursor` was given, or `IllegalPage`."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        packed = base64.b64decode(padded, altchars=b"-_", validate=True)
        version, way, store, position = _LAYOUT.unpack(packed)
    except (binascii.Error, UnicodeError, struct.error) as error:
        raise _foreign() from error
    if version != _VERSION or way not in (_FORWARD, _BACKWARD) or store != store_id:
        raise _foreign()
    return BrowseCursor(way == _FORWARD, position)


def _foreign() -> IllegalPage:
    return IllegalPage(
        "the cursor was not issued by this node", hint="begin again without a cursor"
    )

"""How a body reads: as text, JSON, hexadecimal or base64. Pure.

JSON is indented anew without touching what stands in it: numbers keep every digit, and nothing is
parsed in a browser.
"""

import base64
from codecs import getincrementaldecoder
from typing import Any, Final, NamedTuple

import msgspec

from app.domain.limits import KIB

FORMS: Final = ("json", "text", "hex", "base64")
SHOWN_BYTES_MAX: Final = 256 * KIB
HEX_BYTES_MAX: Final = 16 * KIB
_ROW: Final = 16
_SPACES: Final = str.maketrans("\t\r\n", "   ")
PREVIEW_CHARS: Final = 160
_PREVIEW_ENCODED: Final = 4 * (4 * PREVIEW_CHARS // 3 + 2)
"""Of base64: so many characters, of up to four bytes each."""
_UTF_8: Final = getincrementaldecoder("utf-8")


class ShownBody(NamedTuple):
    """A body in one form."""

    form: str
    text: str
    size: int
    shown_bytes: int
    """Less than `size`: the rest is left out."""


def shown_body(body: bytes, form: str) -> ShownBody:
    """In `form`, or, when that is none of the forms, in the one that suits it best."""
    if form not in FORMS:
        form = _best_form(body)
    limit = HEX_BYTES_MAX if form == "hex" else SHOWN_BYTES_MAX
    part = body[:limit]
    if form == "json":
        return _json(body, limit)
    if form == "text":
        text = part.decode("utf-8", "replace")
    elif form == "hex":
        text = _hex(part)
    else:
        text = base64.b64encode(part).decode("ascii")
    return ShownBody(form, text, len(body), len(part))


def with_preview(message: dict[str, Any]) -> dict[str, Any]:
    """A message that was asked for with `body=base64`: in place of its body, which may be JSON that
    nothing here can read, how it begins."""
    shown = {**message, "preview": preview(message.get("body_base64", ""))}
    shown.pop("body_base64", None)
    return shown


def preview(encoded: str) -> str:
    """The beginning of a body on one line, as it was sent; of one that is no text, its base64."""
    part = base64.b64decode(encoded[:_PREVIEW_ENCODED])
    try:
        text = _UTF_8().decode(part, len(encoded) <= _PREVIEW_ENCODED)
    except UnicodeDecodeError:
        text = encoded
    cut = " ".join(text[: PREVIEW_CHARS + 1].split())
    return f"{cut[:PREVIEW_CHARS]}…" if len(cut) > PREVIEW_CHARS else cut


def _best_form(body: bytes) -> str:
    """By the part that is shown: a whole body may take longer than a turn of the event loop."""
    is_whole = len(body) <= SHOWN_BYTES_MAX
    if body[:1] in {b"{", b"["} and is_whole and _indented(body) is not None:
        return "json"
    try:
        text = _UTF_8().decode(body[:SHOWN_BYTES_MAX], is_whole)
    except UnicodeDecodeError:
        return "hex"
    return "text" if text.translate(_SPACES).isprintable() else "hex"


def _indented(body: bytes) -> str | None:
    try:
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _json(body: bytes, limit: int) -> ShownBody:
    """As it is when it is no JSON."""
    text = _indented(body) if len(body) <= limit else None
    if text is None:
        part = body[:limit]
        return ShownBody("json", part.decode("utf-8", "replace"), len(body), len(part))
    return ShownBody("json", text, len(body), len(body))


def _hex(part: bytes) -> str:
    rows = []
    for start in range(0, len(part), _ROW):
        row = part[start : start + _ROW]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        rows.append(f"{start:08x}  {row.hex(' '):<{_ROW * 3 - 1}}  {letters}")
    return "\n".join(rows)

"""How a body reads: as text, JSON, hexadecimal or base64. Pure.

JSON is indented anew without touching what stands in it: numbers keep every digit, and nothing is
parsed in a browser.
"""

import base64
from typing import Final, NamedTuple

import msgspec

from app.domain.limits import KIB

FORMS: Final = ("json", "text", "hex", "base64")
SHOWN_BYTES_MAX: Final = 256 * KIB
HEX_BYTES_MAX: Final = 16 * KIB
_ROW: Final = 16
PREVIEW_CHARS: Final = 160


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


def preview(message: dict[str, object]) -> str:
    """The beginning of a body as the API has it, on one line."""
    if "text" in message:
        text = str(message["text"])
    elif "body_base64" in message:
        text = str(message["body_base64"])
    else:
        text = msgspec.json.encode(message.get("body")).decode()
    cut = " ".join(text[: PREVIEW_CHARS + 1].split())
    return f"{cut[:PREVIEW_CHARS]}…" if len(cut) > PREVIEW_CHARS else cut


def _best_form(body: bytes) -> str:
    if body[:1] in {b"{", b"["} and _indented(body) is not None:
        return "json"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "hex"
    is_text = all(each.isprintable() or each in "\t\r\n" for each in text[:SHOWN_BYTES_MAX])
    return "text" if is_text else "hex"


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

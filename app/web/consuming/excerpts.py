"""The beginning of a body in a row of a table, as it was sent: no number is parsed. Pure."""

from base64 import b64decode
from typing import Final

from app.web.serving.api import Json

EXCERPT_CHARS: Final = 160


def with_excerpt(message: Json) -> Json:
    """A message that was asked for with `body=base64`, with its `excerpt` (None: no text),
    `body_bytes`, and what is left out of it when it is empty."""
    body = b64decode(message.get("body_base64", ""))
    try:
        text = body.decode()
    except UnicodeDecodeError:
        excerpt = None
    else:
        cut = text[:EXCERPT_CHARS]
        excerpt = cut if len(text) <= EXCERPT_CHARS else f"{cut}\N{HORIZONTAL ELLIPSIS}"
    return {"tag": "", "reason": None, **message, "excerpt": excerpt, "body_bytes": len(body)}

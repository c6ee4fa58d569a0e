"""Which replica of a shard may answer a read: `MQ-Read`, in a header or the query. Pure."""

from typing import Final

from app.api.formats.mq_headers import OF_EVERY_REQUEST, refuse_mq_headers
from app.api.http.request_context import Headers
from app.domain.errors import InvalidRequest

READ_HEADERS: Final = {b"mq-read": "read"}
"""Header → query alias."""
STALE: Final = (b"mq-stale", b"true")
"""On an answer of a replica of a shard that nobody leads: the messages are confirmed, and others
may have been, too."""

SUGGEST: Final = (b"mq-suggest-read", b"any")
"""On an answer that came from the disk of the leader, far behind: `MQ-Read: any` would spare it."""
ASKS_STALE: Final = "stale"
"""What another node asks a replica for, as nobody leads the shard."""

_KNOWN: Final = frozenset({*READ_HEADERS, *OF_EVERY_REQUEST})
_CHOICES: Final = ("leader", "any")


def reads_any_of(mq_headers: Headers, alias: str | None) -> bool:
    """Whether any replica in sync may answer; `alias` is what the query says. Raises
    `UnknownParameter` for other headers, and `InvalidRequest`."""
    if not mq_headers and alias is None:
        return False
    refuse_mq_headers(mq_headers, _KNOWN)
    given = {value.decode("latin-1") for name, value in mq_headers if name in READ_HEADERS}
    if alias is not None:
        given.add(alias)
    if len(given) > 1 or not given.issubset(_CHOICES):
        said = " and ".join(sorted(map(repr, given)))
        raise InvalidRequest(
            f"read is {said}; it must be leader or any",
            hint="leave it out to read from the leader",
            fields={"parameter": "read"},
        )
    return given == {"any"}

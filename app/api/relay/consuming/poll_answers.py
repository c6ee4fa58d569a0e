"""The answers of several shards to one poll, as one: in JSON, or in frames. Pure."""

import secrets
from collections.abc import Iterator
from typing import Final, cast

import msgspec

from app.api.aims.across import PARTIAL, Document
from app.api.dataplane.polling.poll_parts import POLLED, Polled
from app.api.formats import media
from app.api.http.request_context import Headers
from app.api.relay.calls import CallAnswer
from app.api.relay.consuming.poll_entries import Done, Raws

_STORE_ID: Final = b"mq-store-id"
_OF_PARTS: Final = (POLLED, b"preference-applied")
"""Headers that the whole has not, or says itself."""
_AT_THE_END: Final = ("settled", "paused", PARTIAL)

_encode: Final = msgspec.json.encode
_members: Final = msgspec.json.Decoder(Raws).decode
_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_document: Final = msgspec.json.Decoder(dict[str, object]).decode


class PartAnswer:
    """What one shard has answered to a look."""

    def __init__(self, answer: CallAnswer, polled: Polled) -> None:
        self.polled = polled
        self.headers = [each for each in answer.own_headers if each[0] not in _OF_PARTS]
        kind = answer.header(b"content-type") or b""
        self.is_framed = kind.startswith(b"multipart/mixed")
        self.frames: list[bytes] = []
        body = answer.body
        if self.is_framed:
            boundary = kind.partition(b"boundary=")[2]
            body, *self.frames = _parts(body, boundary, answer.header(_STORE_ID) or b"")
        self._members = _members(body)
        self.retries = self.list_of("retries")
        self.assignment_id = cast("str", self.value("assignment_id"))

    @property
    def members(self) -> Raws:
        """Of the document."""
        return self._members

    def list_of(self, name: str) -> list[msgspec.Raw]:
        """Of a member that is a list; empty without it."""
        return _list(self._members[name]) if name in self._members else []

    def value(self, name: str) -> object:
        """Of another one; None without it."""
        return msgspec.json.decode(self._members[name]) if name in self._members else None

    def without_queues(self) -> None:
        """Forget what was read: it is of another share."""
        self.frames = []
        for name in ("assigned", "messages", "queues"):
            self._members[name] = msgspec.Raw(b"[]")


def merged(
    own: PartAnswer,
    parts: list[PartAnswer],
    retries: list[msgspec.Raw],
    done: Done,
    missing: list[str],
    *,
    is_waiting: bool,
) -> tuple[Headers, bytes]:
    """Headers and body. `parts` are in the order of the queues' next turns, with `own`, which says
    what is of the group."""
    found: Document = dict(own.members)
    for name in _AT_THE_END:
        found.pop(name, None)
    assigned = [_document(raw) for part in parts for raw in part.list_of("assigned")]
    found["assigned"] = sorted(assigned, key=lambda each: (each["topic"], each["queue_id"]))
    for name in ("effects", "queues"):
        found[name] = [raw for part in parts for raw in part.list_of(name)]
    messages = [raw for part in parts for raw in part.list_of("messages")]
    found |= {"messages": messages, "retries": retries}
    found |= {"committed": done.committed, "refused": done.refused}
    is_paused = any(part.value("paused") for part in parts)
    if is_waiting and not is_paused:
        found["poll_again_ms"] = 0
    else:
        found["poll_again_ms"] = min(cast("int", part.value("poll_again_ms")) for part in parts)
    if done.settled:
        found["settled"] = done.settled
    if is_paused:
        found["paused"] = True
    if missing:
        found[PARTIAL] = missing
    body = _encode(found) + b"\n"
    headers = [each for each in own.headers if each[0] != b"content-type"]
    if not own.is_framed:
        return [*headers, media.JSON_HEADER], body
    boundary = secrets.token_hex(16).encode()
    head = b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
    texts = [head % (media.JSON.encode(), len(body), body)]
    texts += [frame for part in parts for frame in part.frames]
    whole = b"".join(b"--%b\r\n%b\r\n" % (boundary, text) for text in texts)
    headers.append((b"content-type", b"multipart/mixed; boundary=" + boundary))
    return headers, whole + b"--%b--\r\n" % boundary


def _parts(body: bytes, boundary: bytes, store_id: bytes) -> Iterator[bytes]:
    """The first part without its headers; the others with them, and whose messages they are."""
    mark, at = b"--" + boundary, 0
    while not body.startswith(mark + b"--", at):
        start = at + len(mark) + 2
        end = body.index(b"\r\n\r\n", start)
        lines = body[start:end].split(b"\r\n")
        lengths = dict(line.lower().split(b": ", 1) for line in lines)
        size = int(lengths[b"content-length"])
        part = body[end + 4 : end + 4 + size]
        if at == 0:
            yield part
        else:
            lines.append(b"MQ-Store-Id: " + store_id)
            yield b"\r\n".join(lines) + b"\r\n\r\n" + part
        at = end + 4 + size + 2

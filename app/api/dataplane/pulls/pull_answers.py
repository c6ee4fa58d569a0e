"""What a pull answers with: the forms of a body, each of which knows how it is sent.

`PullAnswers` chooses the form; who sends it does not know which one it is, nor whether the records
were read or stay in the store's files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from msgspec import UNSET

from app.api.bodies.packing import VARY, pack
from app.api.formats import media
from app.api.formats.cloudevents import event_of
from app.api.formats.rendering import record_views
from app.api.formats.wire import GapView, MessageView, PullAnswer, encode, encode_line
from app.api.http.request_context import Headers, RequestContext
from app.broker.read.puller import Puller
from app.broker.results import PullResult
from app.domain.message import StoredEncoding
from app.store import FilePart, RecordsInPlace, as_buffers
from app.store.formats.frame.batch_frame import encode_answer, encode_answer_unseen

_OK: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What the answer should look like."""

    kind: media.PullKind
    force_base64: bool
    with_crc32: bool
    """Frames with CRC-32: the client checks what the node then need not look at."""
    is_verified: bool
    """The node is to look at each record all the same."""
    packing: bytes | None
    encodings: frozenset[StoredEncoding] = frozenset()
    """In which the client takes bodies as they are stored."""

    @property
    def may_be_in_place(self) -> bool:
        return self.with_crc32 and not self.is_verified and self.packing is None


class _Identified(Protocol):
    @property
    def store_id(self) -> bytes: ...


class Answer(Protocol):
    """One answer to a pull."""

    @property
    def headers(self) -> Headers:
        """Those that say what the body is."""

    @property
    def content_bytes(self) -> int:
        """For the metrics: bytes of frames before packing, else bytes of bodies."""

    async def send_to(self, exchange: RequestContext, headers: Headers) -> None:
        """Send it; `headers` is taken over and has all headers but length and request id."""


class Whole(NamedTuple):
    """A body in one piece."""

    headers: Headers
    content_bytes: int
    body: bytes

    async def send_to(self, exchange: RequestContext, headers: Headers) -> None:
        await exchange.answer(_OK, headers, self.body)


class Parts(NamedTuple):
    """A frame whose records were read: a head, and the records behind it."""

    headers: Headers
    content_bytes: int
    parts: Sequence[bytes | memoryview]

    async def send_to(self, exchange: RequestContext, headers: Headers) -> None:
        await exchange.answer_in_parts(_OK, headers, self.parts)


class Packed(NamedTuple):
    """A frame that is compressed when it is sent."""

    headers: Headers
    content_bytes: int
    parts: Sequence[bytes | memoryview]
    packing: bytes

    async def send_to(self, exchange: RequestContext, headers: Headers) -> None:
        headers.append((b"content-encoding", self.packing))
        await exchange.answer(_OK, headers, await pack(self.packing, b"".join(self.parts)))


class FromFiles(NamedTuple):
    """A frame whose records stay in the store's files, unverified."""

    headers: Headers
    content_bytes: int
    head: bytes
    parts: Sequence[FilePart]

    async def send_to(self, exchange: RequestContext, headers: Headers) -> None:
        await exchange.answer_from_files(_OK, headers, self.head, self.parts)


class ReadStore(Protocol):
    """Of a broker, or of a node that follows."""

    @property
    def store(self) -> _Identified: ...
    @property
    def puller(self) -> Puller: ...


class PullAnswers:
    """Makes the answers of one store. Event loop."""

    def __init__(self, read: ReadStore) -> None:
        self._read = read

    def answer_of(self, form: Form, result: PullResult) -> Answer:
        """The answer with what was found, in the form that the client wants."""
        if form.kind == "frames":
            return self._frame(form, result)
        if form.kind == "events":
            return self._events(form, result)
        return self._messages(form, result)

    def _frame(self, form: Form, result: PullResult) -> Answer:
        read = result.read
        found = read.records
        store_id = (b"mq-store-id", self._read.store.store_id.hex().encode("ascii"))
        headers = [media.FRAMES_HEADER, *_pull_headers(result), store_id, VARY]
        first = read.queue_offsets[0] if read.queue_offsets else read.next_offset
        if isinstance(found, RecordsInPlace):
            head = encode_answer_unseen(found.sizes, read.tag_hashes, found.checksum, first)
            return FromFiles(headers, len(head) + found.total_bytes, head, found.parts)
        sizes, records = as_buffers(found)
        head = encode_answer(sizes, read.tag_hashes, records, first, with_crc32=form.with_crc32)
        parts = [head, *records]
        content_bytes = sum(map(len, parts))
        if form.packing is None:
            return Parts(headers, content_bytes, parts)
        return Packed(headers, content_bytes, parts, form.packing)

    def _events(self, form: Form, result: PullResult) -> Answer:
        decode = self._read.puller.decode
        messages = [decode(record) for record in result.read.records]
        body = encode_line([event_of(m, force_base64=form.force_base64) for m in messages])
        headers = [media.EVENTS_HEADER, *_pull_headers(result)]
        return Whole(headers, sum([len(each.body) for each in messages]), body)

    def _messages(self, form: Form, result: PullResult) -> Answer:
        views, body_bytes = record_views(
            result.read.records,
            self._read.store.store_id,
            self._read.puller.decode,
            force_base64=form.force_base64,
        )
        if form.kind == "ndjson":
            body = b"".join([encode_line(view) for view in views])
            return Whole([media.NDJSON_HEADER, *_pull_headers(result)], body_bytes, body)
        return Whole([media.JSON_HEADER], body_bytes, encode_line(_whole_answer(result, views)))


def _whole_answer(result: PullResult, views: list[MessageView]) -> PullAnswer:
    gaps = [GapView(*gap) for gap in result.read.gaps]
    return PullAnswer(
        status=result.status.value,
        messages=views,
        next_offset=result.next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        up_to_date=result.up_to_date,
        scanned=result.scanned,
        clamped=True if result.clamped else UNSET,
        gaps=gaps or UNSET,
    )


def _pull_headers(result: PullResult) -> Headers:
    """What a JSON answer has around its messages, for the other forms."""
    headers: Headers = [
        (b"mq-pull-status", result.status.value.encode("ascii")),
        (b"mq-next-offset", b"%d" % result.next_offset),
        (b"mq-min-offset", b"%d" % result.min_offset),
        (b"mq-max-offset", b"%d" % result.max_offset),
        (b"mq-up-to-date", b"true" if result.up_to_date else b"false"),
        (b"mq-scanned", b"%d" % result.scanned),
    ]
    if result.clamped:
        headers.append((b"mq-clamped", b"true"))
    if result.read.gaps:
        headers.append((b"mq-gaps", encode([GapView(*gap) for gap in result.read.gaps])))
    return headers

"""Pulling over HTTP: messages of one queue from an offset on, as JSON, NDJSON or frames.

Nothing is leased. The connection is watched only while the pull waits.
"""

from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from app.api.bodies.packing import VARY, pack, wanted_packing
from app.api.dataplane.client_watch import ClientWatch
from app.api.formats import media
from app.api.formats.cloudevents import event_of
from app.api.formats.prefer_header import wait_of
from app.api.formats.rendering import record_views
from app.api.formats.wire import GapView, MessageView, PullAnswer, encode, encode_line
from app.api.http.entity_tags import IF_NONE_MATCH, is_known, sealed_headers, tag_of_range
from app.api.http.errors import InvalidBody
from app.api.http.parameters import Query, integer_of
from app.api.http.rate_limit_headers import near_quota_headers
from app.api.http.request_context import (
    NOT_KEPT,
    Headers,
    RequestContext,
    batch_too_large,
)
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.broker.results import PullRequest, PullResult
from app.domain.errors import IllegalOffset, InvalidRequest
from app.domain.limits import DEFAULT_PULL_MESSAGES, MIB, Limits
from app.store import RecordsInPlace, as_buffers
from app.store.formats.frame.batch_frame import encode_answer, encode_answer_unseen

PULL_PARAMETERS: Final = frozenset(
    {
        *("offset", "timestamp_ms", "tail", "until_offset", "until_timestamp_ms", "clamp"),
        *("max_messages", "max_bytes", "min_messages", "wait", "filter", "body", "checksum"),
    }
)
_STARTS: Final = ("offset", "timestamp_ms", "tail")
_QUEUE_ID_MAX: Final = 2**31 - 1


class Pulling:
    """Handler of pull. Stateless beside its collaborators."""

    def __init__(self, broker: Broker, limits: Limits, traffic: RequestMetrics) -> None:
        self._broker = broker
        self._limits = limits
        self._traffic = traffic

    async def pull(self, exchange: RequestContext, topic: str, queue: str) -> None:
        kind = media.pull_answer_kind(exchange.headers.get(b"accept"))
        queue_id = integer_of("queue", queue, high=_QUEUE_ID_MAX, error=InvalidRequest)
        query = Query(exchange.query, PULL_PARAMETERS)
        wait_seconds_max = self._limits.wait_seconds_max
        wait_s, headers = wait_of(exchange, query.wait_s(wait_seconds_max), wait_seconds_max)
        checksum = query.choice("checksum", ("crc32c", "crc32"))
        form = _Form(
            kind=kind,
            force_base64=query.choice("body", ("auto", "base64")) == "base64",
            with_crc32=kind == "frames" and checksum == "crc32",
            packing=wanted_packing(exchange.headers.get(b"accept-encoding")),
        )
        in_place = form.may_be_in_place and exchange.can_send_files
        request = self._request_of(query, wait_s, form, in_place=in_place)
        if await exchange.read_body(self._limits.batch_bytes_max, batch_too_large):
            raise InvalidBody("a pull has no body", hint="use query parameters")
        with ClientWatch(exchange.receive) as client:
            result = await self._broker.puller.pull(topic, queue_id, request, client.watch)
        if request.wait_s > 0:
            headers += near_quota_headers(self._broker.long_polls.quota)
        if isinstance(result.read.records, RecordsInPlace):
            await self._answer_in_place(exchange, result, result.read.records, headers)
            return
        if not _is_sealed(request, result):
            headers.append(NOT_KEPT)
            await self._answer(exchange, form, result, headers)
            return
        tag = tag_of_range(kind, result.next_offset, result.read.records)
        headers += sealed_headers(tag)
        if is_known(exchange.headers.get(IF_NONE_MATCH), tag):
            await exchange.answer_empty(304, headers)
            return
        await self._answer(exchange, form, result, headers)

    def _request_of(
        self, query: Query, wait_s: float, form: "_Form", *, in_place: bool
    ) -> PullRequest:
        limits = self._limits
        messages_most, bytes_most = limits.pull_messages_max, limits.pull_bytes_max
        if form.with_crc32:
            messages_most, bytes_most = limits.in_place_messages_max, limits.in_place_bytes_max
        starts = {name: query.integer(name, error=IllegalOffset) for name in _STARTS}
        given = [name for name, value in starts.items() if value is not None]
        if len(given) != 1:
            raise IllegalOffset(
                f"{' and '.join(given) or 'none of offset, timestamp_ms and tail'} given; "
                "exactly one says where to start",
                hint="for instance ?offset=0",
            )
        end_offset = query.integer("until_offset", error=IllegalOffset)
        max_messages = query.integer("max_messages", low=1, high=messages_most)
        max_bytes = query.integer("max_bytes", low=1, high=bytes_most)
        min_messages = query.integer("min_messages", low=1, high=limits.pull_messages_max)
        max_messages = DEFAULT_PULL_MESSAGES if max_messages is None else max_messages
        return PullRequest(
            offset=starts["offset"],
            timestamp_ms=starts["timestamp_ms"],
            tail=starts["tail"],
            max_messages=max_messages,
            max_bytes=min(MIB, limits.pull_bytes_max) if max_bytes is None else max_bytes,
            min_messages=1 if min_messages is None else min(min_messages, max_messages),
            wait_s=wait_s,
            filter=query.text("filter"),
            clamp=query.flag("clamp"),
            end_offset=end_offset,
            until_ms=query.integer("until_timestamp_ms", error=IllegalOffset),
            in_place=in_place,
        )

    async def _answer_in_place(
        self,
        exchange: RequestContext,
        result: PullResult,
        records: RecordsInPlace,
        headers: Headers,
    ) -> None:
        """Frames of records that were not verified, so that no cache may keep them."""
        read = result.read
        first = encode_answer_unseen(
            records.sizes, read.tag_hashes, records.checksum, read.queue_offsets[0]
        )
        self._traffic.sent_out(len(records), len(first) + records.total_bytes)
        headers += [NOT_KEPT, *self._frame_headers(result)]
        await exchange.answer_from_files(200, headers, first, records.parts)

    def _frame_headers(self, result: PullResult) -> Headers:
        store_id = (b"mq-store-id", self._broker.store.store_id.hex().encode("ascii"))
        return [media.FRAMES_HEADER, *_pull_headers(result), store_id, VARY]

    async def _answer(
        self, exchange: RequestContext, form: "_Form", result: PullResult, headers: Headers
    ) -> None:
        """`headers` is taken over; it says already whether the answer may be kept."""
        body: bytes
        kind, force_base64 = form.kind, form.force_base64
        if kind == "frames":
            read = result.read
            first = read.queue_offsets[0] if read.queue_offsets else read.next_offset
            sizes, records = as_buffers(read.records)
            head = encode_answer(sizes, read.tag_hashes, records, first, with_crc32=form.with_crc32)
            parts = [head, *records]
            self._traffic.sent_out(len(read.records), sum(map(len, parts)))
            headers += self._frame_headers(result)
            if form.packing is None:
                await exchange.answer_in_parts(200, headers, parts)
            else:
                headers.append((b"content-encoding", form.packing))
                await exchange.answer(200, headers, await pack(form.packing, b"".join(parts)))
            return
        decode, found = self._broker.puller.decode, result.read.records
        if kind == "events":
            messages = [decode(record) for record in found]
            body_bytes = sum([len(each.body) for each in messages])
            body = encode_line([event_of(m, force_base64=force_base64) for m in messages])
            headers += [media.EVENTS_HEADER, *_pull_headers(result)]
        else:
            views, body_bytes = record_views(
                found, self._broker.store.store_id, decode, force_base64=force_base64
            )
            if kind == "ndjson":
                body = b"".join([encode_line(view) for view in views])
                headers += [media.NDJSON_HEADER, *_pull_headers(result)]
            else:
                body = encode_line(_answer_of(result, views))
                headers.append(media.JSON_HEADER)
        self._traffic.sent_out(len(found), body_bytes)
        await exchange.answer(200, headers, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """What the answer should look like."""

    kind: media.PullKind
    force_base64: bool
    with_crc32: bool
    """Frames with CRC-32: the client checks what the node then need not look at."""
    packing: bytes | None

    @property
    def may_be_in_place(self) -> bool:
        return self.with_crc32 and self.packing is None


def _is_sealed(request: PullRequest, result: PullResult) -> bool:
    """Whether the same request will have the same messages for ever, or until they expire.

    It names both ends, what lies between is readable to its end, and nothing of it is damaged.
    """
    start, end = request.offset, request.end_offset
    return (
        start is not None
        and end is not None
        and end <= result.max_offset
        and not result.clamped
        and not result.read.gaps
        and (result.next_offset > start or end <= start)
    )


def _answer_of(result: PullResult, views: list[MessageView]) -> PullAnswer:
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

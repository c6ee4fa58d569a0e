"""Pulling over HTTP: messages of one queue from an offset on, as JSON, NDJSON or frames.

Nothing is leased. The connection is watched only while the pull waits.
"""

from typing import Final, NamedTuple

from app.api.bodies.packing import wanted_packing
from app.api.bodies.plain_bodies import plain_records
from app.api.dataplane.client_watch import ClientWatch
from app.api.dataplane.pulls.pull_answers import Form, PullAnswers
from app.api.dataplane.pulls.read_choice import SUGGEST, reads_any_of
from app.api.formats import media
from app.api.formats.prefer_header import wait_of
from app.api.http.entity_tags import IF_NONE_MATCH, is_known, sealed_headers, tag_of_range
from app.api.http.errors import InvalidBody
from app.api.http.parameters import QUEUE_ID_MAX, Query, integer_of
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
from app.domain.message import StoredEncoding
from app.store import RecordsInPlace

PULL_PARAMETERS: Final = frozenset(
    {
        *("offset", "timestamp_ms", "tail", "until_offset", "until_timestamp_ms", "clamp"),
        *("max_messages", "max_bytes", "min_messages", "wait", "filter", "body", "checksum"),
        *("encodings", "read"),
    }
)
_STARTS: Final = ("offset", "timestamp_ms", "tail")


class Asked(NamedTuple):
    """What a pull asks for."""

    queue_id: int
    request: PullRequest
    form: Form
    headers: Headers
    """Of the answer, so far."""
    reads_any: bool
    """Any replica in sync may answer."""


class PullForms:
    """Reads pulls, and answers with what was found. Of one node; stateless but for its counters."""

    def __init__(self, limits: Limits, traffic: RequestMetrics) -> None:
        self._limits = limits
        self._traffic = traffic

    def asked(self, exchange: RequestContext, queue: str) -> Asked:
        """What a request asks for, but for its body. Raises what is wrong with it."""
        kind = media.pull_answer_kind(exchange.headers.get(b"accept"))
        queue_id = integer_of("queue", queue, high=QUEUE_ID_MAX, error=InvalidRequest)
        query = Query(exchange.query, PULL_PARAMETERS)
        reads_any = reads_any_of(exchange.mq_headers, query.text("read"))
        wait_seconds_max = self._limits.wait_seconds_max
        wait_s, headers = wait_of(exchange, query.wait_s(wait_seconds_max), wait_seconds_max)
        checksum = query.choice("checksum", ("crc32c", "crc32", "crc32-verified")) or "crc32c"
        form = Form(
            kind=kind,
            force_base64=query.choice("body", ("auto", "base64")) == "base64",
            with_crc32=kind == "frames" and checksum != "crc32c",
            is_verified=checksum == "crc32-verified",
            packing=wanted_packing(exchange.headers.get(b"accept-encoding")),
            encodings=_encodings_of(query, kind),
        )
        in_place = form.may_be_in_place and exchange.can_send_files
        request = self._request_of(query, wait_s, form, in_place=in_place)
        return Asked(queue_id, request, form, headers, reads_any)

    async def answer(
        self, exchange: RequestContext, asked: Asked, result: PullResult, answers: PullAnswers
    ) -> tuple[int, int]:
        """Send the answer; messages and bytes in it."""
        form, request, headers = asked.form, asked.request, asked.headers
        if result.suggests_any:
            headers.append(SUGGEST)
        if _is_sealed(request, result):
            tag = tag_of_range(form.kind, result.next_offset, result.read.records)
            headers += sealed_headers(tag)
            if is_known(exchange.headers.get(IF_NONE_MATCH), tag):
                await exchange.answer_empty(304, headers)
                return 0, 0
        else:
            headers.append(NOT_KEPT)
        found = result.read.records
        plain = await plain_records(found, form.encodings, self._limits.stored_ratio_max)
        if plain is not found:
            result = result._replace(read=result.read._replace(records=plain))
        answer = answers.answer_of(form, result)
        count, size = len(result.read.records), answer.content_bytes
        self._traffic.sent_out(count, size)
        headers += answer.headers
        await answer.send_to(exchange, headers)
        return count, size

    def _request_of(
        self, query: Query, wait_s: float, form: Form, *, in_place: bool
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


class Pulling:
    """Handler of pull. Stateless beside its collaborators."""

    def __init__(self, broker: Broker, limits: Limits, traffic: RequestMetrics) -> None:
        self._broker = broker
        self._limits = limits
        self._forms = PullForms(limits, traffic)
        self._answers = PullAnswers(broker)

    async def pull(self, exchange: RequestContext, topic: str, queue: str) -> None:
        asked = self._forms.asked(exchange, queue)
        if await exchange.read_body(self._limits.batch_bytes_max, batch_too_large):
            raise InvalidBody("a pull has no body", hint="use query parameters")
        request = asked.request
        with ClientWatch(exchange.receive, exchange) as client:
            result = await self._broker.puller.pull(topic, asked.queue_id, request, client.watch)
        if request.wait_s > 0:
            asked.headers.extend(near_quota_headers(self._broker.long_polls.quota))
        count, size = await self._forms.answer(exchange, asked, result, self._answers)
        figures = self._broker.statistics.topic(topic)
        if figures is not None:
            figures.given(count, size)


def _encodings_of(query: Query, kind: media.PullKind) -> frozenset[StoredEncoding]:
    """In which the client takes bodies as they are stored."""
    text = query.text("encodings")
    if text is None:
        return frozenset()
    if kind != "frames":
        raise InvalidRequest(
            "encodings is of frames; in other answers bodies are plain",
            hint=f"ask for {media.FRAMES}, or leave it out",
            fields={"parameter": "encodings"},
        )
    try:
        return frozenset(StoredEncoding(each.strip()) for each in text.split(","))
    except ValueError:
        raise InvalidRequest(
            f"encodings is {text!r}; it must be some of {', '.join(StoredEncoding)}",
            fields={"parameter": "encodings"},
        ) from None


def _is_sealed(request: PullRequest, result: PullResult) -> bool:
    """Whether the same request will have the same messages for ever, or until they expire.

    It names both ends, what lies between is readable to its end, and all of it was verified.
    """
    start, end = request.offset, request.end_offset
    return (
        start is not None
        and end is not None
        and end <= result.max_offset
        and not result.clamped
        and not result.read.gaps
        and not isinstance(result.read.records, RecordsInPlace)
        and (result.next_offset > start or end <= start)
    )

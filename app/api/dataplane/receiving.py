"""Receiving over HTTP: lease messages for a group, with long poll, as JSON or one message raw.

A client that disconnects while it waits frees its waiter, and leases that could not be handed over
are given back at once.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from app.api.access.named_elsewhere import NamedElsewhere, attempt_of
from app.api.bodies.plain_bodies import unpack_deliveries
from app.api.bodies.unpacking import read_unpacked
from app.api.dataplane.client_watch import ClientWatch
from app.api.dataplane.receive_parts import (
    WHOLE,
    Part,
    part_asked,
    seen_header,
    tell,
    unsettled_header,
)
from app.api.formats import media
from app.api.formats.decoding import receive_decoder
from app.api.formats.prefer_header import wait_of
from app.api.formats.raw_message import raw_body, raw_headers
from app.api.formats.rendering import delivered_views
from app.api.formats.wire import ReceiveAnswer, ReceiveBody, encode_line
from app.api.http.parameters import Query, agreed, duration_ms_of, wait_s_of
from app.api.http.rate_limit_headers import near_quota_headers
from app.api.http.request_context import Headers, RequestContext, batch_too_large
from app.api.telemetry.callers import client_id_of, note_received
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.broker.figures.clients import Kind
from app.broker.results import Delivery, ReceiveRequest, ReceiveResult
from app.domain.errors import IllegalInvisibleTime, InvalidRequest
from app.domain.limits import DEFAULT_RECEIVE_MESSAGES, MIB, Limits

RECEIVE_PARAMETERS: Final = frozenset(
    {
        *("max_messages", "max_bytes", "min_messages", "wait", "filter", "force"),
        "replace_subscription",
        *("invisible", "invisible_ms", "attempt_id", "client_id", "format", "body"),
    }
)
_NOTHING: Final = ReceiveBody()


class Receiving:
    """Handler of receive. Stateless beside its collaborators."""

    def __init__(
        self, broker: Broker, limits: Limits, traffic: RequestMetrics, named: NamedElsewhere
    ) -> None:
        self._broker = broker
        self._named = named
        self._limits = limits
        self._traffic = traffic

    async def receive(self, exchange: RequestContext, topic: str, group: str) -> None:
        query = Query(exchange.query, RECEIVE_PARAMETERS)
        limits = self._limits
        body = await read_unpacked(exchange, limits.body_bytes_max, limits, batch_too_large)
        asked = _NOTHING
        if body:
            media.require_json(exchange.headers.get(b"content-type"))
            asked = receive_decoder.decode(body)
        part = part_asked(exchange)
        if part.takes is None and part is not WHOLE:
            await tell(exchange, self._broker, topic, group, part)
            return
        raw = query.choice("format", ("json", "raw")) == "raw"
        force_base64 = query.choice("body", ("auto", "base64")) == "base64"
        wait_s, headers = wait_asked(exchange, asked, query, limits.wait_seconds_max)
        request = self._request_of(
            asked, query, wait_s, client_id_of(exchange), exchange.caller.name, raw=raw
        )
        if part.takes is not None:
            request = replace(request, wait_s=0.0, takes=part.takes)
        self._named.client(exchange, group, request.client_id)
        if request.force or request.replace_subscription:
            await self._named.force(exchange, group)
        request = self._with_own_attempt(exchange, request)
        state = self._state_before(part, topic, group)
        given: Sequence[Delivery] = ()
        try:
            with ClientWatch(exchange.receive, exchange) as client:
                result = await self._broker.receiver.receive(
                    topic, group, request, gone=client.gone, watch=client.watch
                )
                given = result.deliveries
            headers += self._of_stream(part, given)
            figures = self._broker.statistics.group(group, topic)
            if request.wait_s > 0:
                headers += near_quota_headers(self._broker.long_polls.quota)
            if part.takes is not None:
                headers.append(seen_header(state, result))
            await unpack_deliveries(result.deliveries)
            if raw:
                body_bytes = await self._answer_raw(exchange, result, headers)
            else:
                body_bytes = await self._answer(exchange, request, result, headers, force_base64)
        except BaseException:
            # It left meanwhile, could not read the answer, or may not have it any more.
            self._broker.receiver.give_back(given)
            self._broker.streams.take_back(given)
            raise
        self._traffic.sent_out(len(result.deliveries), body_bytes)
        if figures is not None:
            figures.given(len(result.deliveries), body_bytes)
        place = group, topic, request.filter
        count = len(result.deliveries)
        kind: Kind = "stream" if part.stream else "receive"
        note_received(self._broker.clients, exchange, place, kind, request.client_id, count)

    def _state_before(self, part: Part, topic: str, group: str) -> str:
        """What is told to who waits elsewhere. Raises `GroupNotFound` for a stream."""
        if part.stream:
            self._broker.streams.check_group(group)
        return "" if part.takes is None else self._broker.news.state(topic, group)

    def _of_stream(self, part: Part, given: Sequence[Delivery]) -> Headers:
        """What is told of the stream that the messages are for: in the turn that leases them."""
        if not part.stream:
            return []
        streams = self._broker.streams
        streams.give_elsewhere(part.stream, given)
        return [unsettled_header(streams.elsewhere.unsettled(part.stream))]

    def _with_own_attempt(
        self, exchange: RequestContext, request: ReceiveRequest
    ) -> ReceiveRequest:
        """Attempt ids of different principals are different."""
        if request.attempt_id is None or exchange.caller.name is None:
            return request
        self._broker.receiver.check(request)  # before its attempt id is another
        return replace(request, attempt_id=attempt_of(exchange, request.attempt_id))

    async def _answer(
        self,
        exchange: RequestContext,
        request: ReceiveRequest,
        result: ReceiveResult,
        headers: Headers,
        force_base64: bool,
    ) -> int:
        """Send the messages as JSON; the bytes of their bodies."""
        views, body_bytes = delivered_views(
            result.deliveries, self._broker.store.store_id, force_base64=force_base64
        )
        await exchange.answer_or_tell(
            200,
            [media.JSON_HEADER, *headers],
            encode_line(
                ReceiveAnswer(
                    views,
                    result.backlog,
                    result.is_paused or UNSET,
                    list(result.effects) if request.force else UNSET,
                )
            ),
        )
        return body_bytes

    async def _answer_raw(
        self, exchange: RequestContext, result: ReceiveResult, headers: Headers
    ) -> int:
        """Send the one message, if there is one; the bytes of its body."""
        if not result.deliveries:
            await exchange.answer_empty(204, headers)
            return 0
        delivery = result.deliveries[0]
        headers += raw_headers(delivery.message)
        headers += [
            (b"mq-receipt-handle", delivery.receipt_handle.encode("ascii")),
            (b"mq-delivery-attempt", b"%d" % delivery.attempt),
            (b"mq-max-attempts", b"%d" % delivery.max_attempts),
            (b"mq-invisible-until-ms", b"%d" % delivery.invisible_until_ms),
        ]
        body, of_body = raw_body(delivery.message, exchange.headers.get(b"accept-encoding"))
        headers += of_body
        await exchange.answer_or_tell(200, headers, body)
        return len(body)

    def _request_of(
        self,
        asked: ReceiveBody,
        query: Query,
        wait_s: float,
        client_id: str | None,
        principal: str | None,
        *,
        raw: bool,
    ) -> ReceiveRequest:
        limits = self._limits
        max_messages = _bounded(
            "max_messages", asked.max_messages, query, limits.receive_messages_max
        )
        max_bytes = _bounded("max_bytes", asked.max_bytes, query, limits.receive_bytes_max)
        min_messages = _bounded(
            "min_messages", asked.min_messages, query, limits.receive_messages_max
        )
        if raw and min_messages is not None and min_messages > 1:
            raise InvalidRequest("format=raw gives one message; leave out min_messages")
        if raw and max_messages not in {None, 1}:
            raise InvalidRequest(
                f"max_messages is {max_messages}; format=raw gives one message",
                fields={"parameter": "max_messages"},
            )
        if raw and query.flag("force"):
            raise InvalidRequest(
                "format=raw cannot say what force has ended",
                hint="receive once as JSON with force=true",
                fields={"parameter": "force"},
            )
        min_messages = 1 if min_messages is None else min_messages
        if max_messages is None:
            max_messages = max(DEFAULT_RECEIVE_MESSAGES, min_messages)
        return ReceiveRequest(
            max_messages=max_messages,
            max_bytes=min(MIB, limits.receive_bytes_max) if max_bytes is None else max_bytes,
            wait_s=wait_s,
            min_messages=min_messages,
            invisible_ms=invisible_ms_of(asked.invisible, asked.invisible_ms, query),
            filter=agreed("filter", asked.filter, query.text("filter")),
            attempt_id=agreed("attempt_id", asked.attempt_id, query.text("attempt_id")),
            client_id=agreed(
                "client_id",
                agreed("client_id", asked.client_id, query.text("client_id")),
                client_id,
            ),
            force=query.flag("force"),
            replace_subscription=query.flag("replace_subscription"),
            principal=principal,
        )


def wait_asked(
    exchange: RequestContext, asked: ReceiveBody, query: Query, wait_seconds_max: int
) -> tuple[float, Headers]:
    """Seconds to wait, by the query, the body or a preference, and what the answer says of it."""
    wait_s = query.wait_s(wait_seconds_max)
    if asked.wait is not None:
        wait_s = agreed("wait", wait_s_of(asked.wait, wait_seconds_max), wait_s)
    return wait_of(exchange, wait_s, wait_seconds_max)


def invisible_ms_of(text: str | None, ms: int | None, query: Query) -> int | None:
    """The invisible time asked for, in the query or in the body."""
    query_ms = query.integer("invisible_ms", low=1, error=IllegalInvisibleTime)
    asked_ms = duration_ms_of(
        "invisible", query.text("invisible"), query_ms, error=IllegalInvisibleTime
    )
    in_body_ms = duration_ms_of("invisible", text, ms, error=IllegalInvisibleTime)
    return agreed("invisible", in_body_ms, asked_ms)


def _bounded(name: str, asked: int | None, query: Query, high: int) -> int | None:
    value = agreed(name, asked, query.integer(name, low=1, high=high))
    if value is not None and value > high:
        raise InvalidRequest(
            f"{name} is {value}; it must be from 1 to {high}",
            fields={"parameter": name, "min": 1, "max": high},
        )
    return value

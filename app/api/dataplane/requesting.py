"""Requests and replies over HTTP: send and wait for the answer; answer a request.

Both bodies are messages, raw or as an envelope. What belongs to later delivery or to repeated sends
(a delay, an idempotency key) has no meaning here and is refused.
"""

from typing import Final
from urllib.parse import urlencode

from app.api.bodies.unpacking import read_unpacked
from app.api.dataplane.client_watch import unless_gone
from app.api.formats import media
from app.api.formats.dedup_headers import IDEMPOTENCY_KEY
from app.api.formats.merging import MessageToSend, message_to_send
from app.api.formats.mq_headers import (
    MESSAGE_HEADERS,
    PROPERTY_PARAMETER_PREFIX,
    PROPERTY_PREFIX,
    encode_header,
    read_send_options,
    refuse_mq_headers,
)
from app.api.formats.prefer_header import wait_of
from app.api.formats.raw_message import check_raw, content_type_headers, property_headers
from app.api.formats.rendering import reply_view
from app.api.formats.wire import ReplyAnswer, RequestAnswer, encode_line
from app.api.http.errors import InvalidBody, NotAcceptable, UnsupportedFeature
from app.api.http.parameters import Query, parse_query, refuse_unknown
from app.api.http.request_context import ClientGone, Headers, RequestContext, body_too_large
from app.api.telemetry.hook_calls import ask_hooks, tell_hooks
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.broker.produce.request_reply import Replied
from app.broker.results import SendResult
from app.domain.access.actions import Action, Kind
from app.domain.access.refusals import NotPermitted, PolicyTooOld, Unauthorized
from app.domain.errors import CurlewError, UnsupportedContentType
from app.domain.limits import DEFAULT_REQUEST_WAIT_S, Limits
from app.domain.positions import FlushMode

_OWN_PARAMETERS: Final = frozenset({"wait", "format", "body"})
_REPLY_ALIASES: Final = frozenset({"tag", "keys", "properties"})
_REQUEST_ALIASES: Final = _REPLY_ALIASES | {
    *("sharding_key", "queue_id", "born_time_ms", "durability", "unique_id", "flag")
}
REQUEST_PARAMETERS: Final = _REQUEST_ALIASES | _OWN_PARAMETERS
REPLY_PARAMETERS: Final = _REPLY_ALIASES


def _headers_of(aliases: frozenset[str]) -> dict[bytes, str]:
    return {name: alias for name, alias in MESSAGE_HEADERS.items() if alias in aliases}


REQUEST_HEADERS: Final = _headers_of(_REQUEST_ALIASES)
REPLY_HEADERS: Final = _headers_of(_REPLY_ALIASES)


class Requesting:
    """Handlers of request and reply. Stateless beside its collaborators."""

    def __init__(self, broker: Broker, limits: Limits, traffic: RequestMetrics) -> None:
        self._broker = broker
        self._limits = limits
        self._traffic = traffic

    async def request(self, exchange: RequestContext, topic: str) -> None:
        given = parse_query(exchange.query)
        refuse_unknown(given, REQUEST_PARAMETERS, prefix=PROPERTY_PARAMETER_PREFIX)
        own = Query(_encoded(given, own=True), _OWN_PARAMETERS)
        is_raw = own.choice("format", ("json", "raw")) == "raw"
        force_base64 = own.choice("body", ("auto", "base64")) == "base64"
        given_s = own.wait_s(self._limits.wait_seconds_max)
        wait_s, headers = wait_of(exchange, given_s, self._limits.wait_seconds_max)
        if given_s is None:
            wait_s = wait_s or float(min(DEFAULT_REQUEST_WAIT_S, self._limits.wait_seconds_max))
        (message, queue_id, _), flush = await self._read(
            exchange, REQUEST_HEADERS, _encoded(given, own=False)
        )
        await ask_hooks(self._broker, exchange, "request", topic, lambda: (message,))
        statistics = self._broker.statistics
        figures = statistics.topic(topic)
        is_counted = False

        def count() -> None:
            nonlocal is_counted
            is_counted = True
            self._traffic.taken_in(1, len(message.body))
            statistics.stored(topic, figures, 1, len(message.body))

        def on_stored(sent: SendResult) -> None:
            count()
            tell_hooks(self._broker, exchange, topic, sent)

        try:
            replied = await unless_gone(
                exchange.receive,
                exchange,
                lambda _: self._broker.request_reply.request(
                    topic, message, wait_s, queue_id=queue_id, flush=flush, on_stored=on_stored
                ),
                lambda _: None,
            )
        except (ClientGone, NotPermitted, PolicyTooOld, Unauthorized) as end:
            if isinstance(end, CurlewError):  # the caller may not have the reply any more
                end.outcome = "stored" if is_counted else "unknown"
            if not is_counted:  # it left before the send was over, which goes on
                count()
            raise
        body = replied.reply.message.body
        self._traffic.sent_out(1, len(body))
        if is_raw:
            try:
                headers += _raw_headers(replied)
            except NotAcceptable as error:
                error.outcome = "stored"  # and answered: not to be sent again
                raise
            await exchange.answer(200, headers, body)
            return
        answer = RequestAnswer(
            "REPLIED",
            *replied.sent[:5],
            correlation_id=replied.correlation_id,
            reply=reply_view(replied.reply, force_base64=force_base64),
        )
        await exchange.answer(200, [*headers, media.JSON_HEADER], encode_line(answer))

    async def reply(self, exchange: RequestContext, correlation_id: str) -> None:
        given = parse_query(exchange.query)
        refuse_unknown(given, REPLY_PARAMETERS, prefix=PROPERTY_PARAMETER_PREFIX)
        (message, queue_id, _), _ = await self._read(exchange, REPLY_HEADERS, exchange.query)
        if queue_id is not None or message.sharding_key is not None:
            raise InvalidBody(
                "a reply goes to the request that waits, not to a queue",
                hint="leave out queue_id and sharding_key",
            )
        if message.unique_id is not None or message.flag:
            raise InvalidBody(
                "a reply is not stored, so it has no id or flag of its own",
                hint="leave out unique_id and flag, or make them properties",
            )
        is_hidden = self._is_hidden(exchange, correlation_id)
        self._broker.request_reply.reply(
            correlation_id, message, exchange.namespace, is_hidden=is_hidden
        )
        self._traffic.taken_in(1, len(message.body))
        answer = ReplyAnswer("DELIVERED", correlation_id)
        await exchange.answer(200, [media.JSON_HEADER], encode_line(answer))

    def _is_hidden(self, exchange: RequestContext, correlation_id: str) -> bool:
        """Whether the caller may not read the request that waits."""
        topic = self._broker.request_reply.topic_of(correlation_id)
        exchange.for_anybody()
        return topic is not None and not exchange.may(Action.SUB, Kind.TOPIC, topic)

    async def _read(
        self, exchange: RequestContext, known: dict[bytes, str], query: bytes
    ) -> tuple[MessageToSend, FlushMode | None]:
        """The message in the body, with what headers and query say of it."""
        headers = exchange.headers
        if IDEMPOTENCY_KEY in headers:
            raise UnsupportedFeature(
                "a request takes no Idempotency-Key: its answer is not kept",
                hint="leave it out",
                fields={"header": "Idempotency-Key"},
            )
        refuse_mq_headers(
            [each for each in exchange.mq_headers if not each[0].startswith(PROPERTY_PREFIX)],
            known,
        )
        kind, content_type = media.send_content(headers.get(b"content-type"))
        options = read_send_options(exchange.mq_headers, headers, query)
        limits = self._limits
        limit = limits.body_bytes_max if kind == "raw" else limits.batch_bytes_max
        body = await read_unpacked(exchange, limit, limits, body_too_large)
        if kind == "event":
            raise UnsupportedContentType(
                "CloudEvents are not taken here", hint=f"send the body raw, or as {media.ENVELOPE}"
            )
        found = message_to_send(kind, content_type, body, options)
        if found.due is not None:
            raise UnsupportedFeature(
                "a client waits for the reply, so the message cannot be delayed",
                hint="leave out delay and deliver_at_ms",
            )
        return found, options.flush


def _encoded(given: dict[str, str], *, own: bool) -> bytes:
    """The parameters of the operation itself, or those of the message, as a query."""
    chosen = {name: text for name, text in given.items() if (name in _OWN_PARAMETERS) is own}
    return urlencode(chosen).encode("ascii")


def _raw_headers(replied: Replied) -> Headers:
    """Everything about the reply but its body."""
    message = replied.reply.message
    headers: Headers = [
        *content_type_headers(message.content_type, message.properties),
        (b"mq-correlation-id", replied.correlation_id.encode("ascii")),
        (b"mq-message-id", encode_header(replied.sent.message_id)),
        (b"mq-replied-ms", b"%d" % replied.reply.replied_ms),
    ]
    if message.tag is not None:
        headers.append((b"mq-tag", encode_header(message.tag)))
    if message.keys:
        headers.append((b"mq-keys", b" ".join(encode_header(key) for key in message.keys)))
    headers += property_headers(message.properties)
    return check_raw(headers, replied.sent.message_id)

"""Browsing over HTTP: messages of all queues of a topic, page by page, as JSON or NDJSON."""

from typing import Final, Literal, cast

from msgspec import UNSET

from app.api.formats import media
from app.api.formats.rendering import view_of
from app.api.formats.wire import BrowseAnswer, BrowseGapView, encode, encode_line
from app.api.http.errors import InvalidBody
from app.api.http.parameters import Query, page_size_of
from app.api.http.request_context import NOT_KEPT, Headers, RequestContext, batch_too_large
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.broker.read.browse_filter import BrowseConditions
from app.broker.read.browser import BrowseGap, BrowseRequest, BrowseResult
from app.domain.errors import IllegalMessageId, InvalidRequest
from app.domain.limits import MESSAGE_ID_BYTES_MAX, Limits

BROWSE_PARAMETERS: Final = frozenset(
    {
        *("from_ms", "until_ms", "key", "unique_id", "tag", "filter", "property", "text"),
        *("direction", "cursor", "page_size", "body"),
    }
)
_DIRECTIONS: Final = ("forward", "backward")


class Browsing:
    """Handler of browse. Stateless beside its collaborators."""

    def __init__(self, broker: Broker, limits: Limits, traffic: RequestMetrics) -> None:
        self._broker = broker
        self._limits = limits
        self._traffic = traffic

    async def browse(self, exchange: RequestContext, topic: str) -> None:
        kind = media.browse_answer_kind(exchange.headers.get(b"accept"))
        query = Query(exchange.query, BROWSE_PARAMETERS)
        request = self._request_of(query)
        force_base64 = query.choice("body", ("auto", "base64")) == "base64"
        if await exchange.read_body(self._limits.batch_bytes_max, batch_too_large):
            raise InvalidBody("a browse has no body", hint="use query parameters")
        result = await self._broker.browser.browse(topic, request)
        views = [view_of(message, force_base64=force_base64) for message in result.messages]
        self._traffic.sent_out(len(views), sum([len(each.body) for each in result.messages]))
        gaps = _gap_views(result.gaps)
        if kind == "ndjson":
            body = b"".join([encode_line(view) for view in views])
            headers = [media.NDJSON_HEADER, NOT_KEPT, *_headers(result, gaps)]
            await exchange.answer(200, headers, body)
            return
        answer = BrowseAnswer(
            messages=views,
            scanned=result.scanned,
            next_cursor=UNSET if result.next_cursor is None else result.next_cursor,
            gaps=gaps or UNSET,
        )
        await exchange.answer(200, [media.JSON_HEADER, NOT_KEPT], encode_line(answer))

    def _request_of(self, query: Query) -> BrowseRequest:
        direction = query.choice("direction", _DIRECTIONS)
        conditions = BrowseConditions(
            from_ms=query.integer("from_ms"),
            until_ms=query.integer("until_ms"),
            key=_filled("key", query),
            unique_id=_unique_id_of(query),
            tag=_filled("tag", query),
            filter=query.text("filter"),
            property=_property_of(query),
            text=_filled("text", query),
        )
        return BrowseRequest(
            direction=cast("Literal['forward', 'backward'] | None", direction),
            conditions=conditions,
            max_messages=page_size_of(query.text("page_size"), self._limits.page_size_max),
            cursor=query.text("cursor"),
        )


def _filled(name: str, query: Query) -> str | None:
    text = query.text(name)
    if text == "":
        raise InvalidRequest(f"{name} is empty", hint="leave it out", fields={"parameter": name})
    return text


def _unique_id_of(query: Query) -> str | None:
    text = _filled("unique_id", query)
    if text is not None and len(text) > MESSAGE_ID_BYTES_MAX:
        raise IllegalMessageId(
            f"unique_id has {len(text)} characters; no id has more than {MESSAGE_ID_BYTES_MAX}",
            fields={"parameter": "unique_id", "limit_bytes": MESSAGE_ID_BYTES_MAX},
        )
    return text


def _property_of(query: Query) -> tuple[str, str] | None:
    text = query.text("property")
    if text is None:
        return None
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise InvalidRequest(
            f"property is {text!r}; it must be name=value",
            hint="for instance property=region=eu",
            fields={"parameter": "property"},
        )
    return name, value


def _gap_views(gaps: list[BrowseGap]) -> list[BrowseGapView]:
    """Neighbours become one, whichever way they were met."""
    views: list[BrowseGapView] = []
    for queue_id, (first, end, reason) in sorted(gaps):
        last = views[-1] if views else None
        if last is not None and (last.queue_id, last.to, last.reason) == (queue_id, first, reason):
            views[-1] = BrowseGapView(queue_id, last.from_, end, reason)
        else:
            views.append(BrowseGapView(queue_id, first, end, reason))
    return views


def _headers(result: BrowseResult, gaps: list[BrowseGapView]) -> Headers:
    """What the JSON answer has around its messages."""
    headers: Headers = [(b"mq-scanned", b"%d" % result.scanned)]
    if result.next_cursor is not None:
        headers.append((b"mq-next-cursor", result.next_cursor.encode("ascii")))
    if gaps:
        headers.append((b"mq-gaps", encode(gaps)))
    return headers

"""What of a receive another node asks of this one, for a client that it answers itself.

It asks for less than a client: to look without waiting (`Takes`), or to tell when there may be news
(`news`). The answer says what the look has seen, in a header that no client gets. A look for a
stream names it, and is told how many messages it has unsettled here (`unsettled`), which can be
waited for. Who asks is in the envelope of the request, so that no client can ask it.
"""

from typing import Final, NamedTuple

from app.api.dataplane.client_watch import ClientWatch
from app.api.http.request_context import ASKED, Headers, RequestContext
from app.broker import Broker
from app.broker.results import ReceiveResult, Takes
from app.broker.streams.credit_elsewhere import Unsettled

SEEN: Final = b"curlew-seen"
"""State before the look, messages that are left, messages that were given."""
NEWS: Final = "news"
"""What is asked for to be told when there may be something new."""
PLACE: Final = "place"
"""What is asked of a stream that is to be leased nothing, and to say when it has to end."""
ROOM: Final = "room"
"""What is asked of a stream to be refused where there is no place for it, and else nothing."""
_UNSETTLED: Final = "unsettled"
_UNSETTLED_HEADER: Final = b"curlew-unsettled"
"""Epoch, version, count, and the milliseconds that are left."""


class Part(NamedTuple):
    """What is asked; of a client all."""

    takes: Takes | None = None
    known: str = ""
    wait_s: float = 0.0
    is_news: bool = False
    stream: str = ""
    """The stream for which it is asked."""


class Seen(NamedTuple):
    """What a look has seen."""

    state: str
    backlog: int
    given: int


WHOLE: Final = Part()


def news_asked(known: str, wait_s: float) -> str:
    """How news is asked for, for `CallRequest.asks`; a look is asked for by its `Takes`."""
    return f"{NEWS} {wait_s:g} {known}"


def look_asked(takes: Takes, stream: str) -> str:
    """How a look is asked for, for a stream if one is named."""
    return f"{takes.value} {stream}" if stream else takes.value


def unsettled_asked(stream: str, known: int, wait_s: float) -> str:
    """How is asked for what a stream has unsettled, once it is another version."""
    return f"{_UNSETTLED} {wait_s:g} {known} {stream}"


def part_asked(exchange: RequestContext) -> Part:
    """What of a receive is asked for here."""
    asked: str = exchange.scope.get(ASKED, "")
    if not asked:
        return WHOLE
    word, _, rest = asked.partition(" ")
    if word == _UNSETTLED:
        wait, known, stream = rest.split(" ")
        return Part(known=known, wait_s=float(wait), stream=stream)
    if word != NEWS:
        return Part(Takes(word), stream=rest)
    wait, _, known = rest.partition(" ")
    return Part(known=known, wait_s=float(wait), is_news=True)


def is_news(exchange: RequestContext) -> bool:
    """Whether news are asked for."""
    asked: str = exchange.scope.get(ASKED, "")
    return asked.startswith(NEWS)


def is_place(exchange: RequestContext) -> bool:
    """Whether a stream is asked for that is leased nothing here."""
    return bool(exchange.scope.get(ASKED, "") == PLACE)


def is_room(exchange: RequestContext) -> bool:
    """Whether is only asked whether there is a place for a stream."""
    return bool(exchange.scope.get(ASKED, "") == ROOM)


def news_header(state: str) -> tuple[bytes, bytes]:
    """For the answer to who asks for news."""
    return SEEN, f"{state} 0 0".encode("ascii")


def seen_header(state: str, result: ReceiveResult) -> tuple[bytes, bytes]:
    """For the answer to a look."""
    return SEEN, f"{state} {result.backlog} {len(result.deliveries)}".encode("ascii")


def unsettled_header(unsettled: Unsettled) -> tuple[bytes, bytes]:
    """For the answer to who asks for a stream."""
    return _UNSETTLED_HEADER, b"%d %d %d %d" % unsettled


def unsettled_in(headers: Headers) -> Unsettled | None:
    """What the header of an answer says; None without one."""
    for name, value in headers:
        if name == _UNSETTLED_HEADER:
            return Unsettled(*map(int, value.split(b" ")))
    return None


def seen_in(headers: Headers) -> Seen | None:
    """What the header of an answer says; None without one."""
    for name, value in headers:
        if name == SEEN:
            state, backlog, count = value.decode("ascii").split(" ")
            return Seen(state, int(backlog), int(count))
    return None


async def tell_news(
    exchange: RequestContext, broker: Broker, topic: str, group: str, part: Part
) -> None:
    """Answer with the state, when it is another one, or the wait is over."""
    with ClientWatch(exchange.receive, exchange) as client:
        state = await broker.news.wait(topic, group, part.known, part.wait_s, client.watch)
    await exchange.answer_empty(204, [news_header(state)])


async def tell(
    exchange: RequestContext, broker: Broker, topic: str, group: str, part: Part
) -> None:
    """Answer who does not ask for messages."""
    if part.is_news:
        await tell_news(exchange, broker, topic, group, part)
    else:
        await _tell_unsettled(exchange, broker, part)


async def _tell_unsettled(exchange: RequestContext, broker: Broker, part: Part) -> None:
    """Answer with what a stream has unsettled here, when it is another version, or the wait is
    over."""
    with ClientWatch(exchange.receive, exchange) as client:
        found = await broker.streams.elsewhere.wait(
            part.stream, int(part.known), part.wait_s, client.watch
        )
    await exchange.answer_empty(204, [unsettled_header(found)])

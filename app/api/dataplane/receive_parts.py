"""What of a receive another node asks of this one, for a client that it answers itself.

It asks for less than a client: to look without waiting (`Takes`), or to tell when there may be news
(`news`). The answer says what the look has seen, in a header that no client gets. Who asks is in
the envelope of the request, so that no client can ask it.
"""

from typing import Final, NamedTuple

from app.api.dataplane.client_watch import ClientWatch
from app.api.http.request_context import ASKED, Headers, RequestContext
from app.broker import Broker
from app.broker.results import ReceiveResult, Takes

SEEN: Final = b"curlew-seen"
"""State before the look, messages that are left, messages that were given."""
NEWS: Final = "news"
"""What is asked for to be told when there may be something new."""


class Part(NamedTuple):
    """What is asked; of a client all."""

    takes: Takes | None = None
    known: str = ""
    wait_s: float = 0.0
    is_news: bool = False


class Seen(NamedTuple):
    """What a look has seen."""

    state: str
    backlog: int
    given: int


_WHOLE: Final = Part()


def news_asked(known: str, wait_s: float) -> str:
    """How news is asked for, for `CallRequest.asks`; a look is asked for by its `Takes`."""
    return f"{NEWS} {wait_s:g} {known}"


def part_asked(exchange: RequestContext) -> Part:
    """What of a receive is asked for here."""
    asked: str = exchange.scope.get(ASKED, "")
    if not asked:
        return _WHOLE
    word, _, rest = asked.partition(" ")
    if word != NEWS:
        return Part(Takes(word))
    wait, _, known = rest.partition(" ")
    return Part(known=known, wait_s=float(wait), is_news=True)


def is_news(exchange: RequestContext) -> bool:
    """Whether news are asked for."""
    asked: str = exchange.scope.get(ASKED, "")
    return asked.startswith(NEWS)


def news_header(state: str) -> tuple[bytes, bytes]:
    """For the answer to who asks for news."""
    return SEEN, f"{state} 0 0".encode("ascii")


def seen_header(state: str, result: ReceiveResult) -> tuple[bytes, bytes]:
    """For the answer to a look."""
    return SEEN, f"{state} {result.backlog} {len(result.deliveries)}".encode("ascii")


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

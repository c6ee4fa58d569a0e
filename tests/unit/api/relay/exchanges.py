"""A request that is not of a connection, with what is answered to it."""

from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import WHOLE_ANSWER, Event, RequestContext
from app.domain.limits import Limits


def exchange_of(method: str, path: str, query: bytes = b"") -> tuple[RequestContext, list[Event]]:
    """A request without body; the events are those of its answer."""
    events: list[Event] = []

    async def send(event: Event) -> None:
        events.append(event)

    async def receive() -> Event:
        raise AssertionError

    scope = {
        "method": method,
        "path": path,
        "query_string": query,
        "headers": [],
        "extensions": {WHOLE_ANSWER: {}},
    }
    return RequestContext(scope, receive, send, b"id", MemoryBudget(Limits())), events

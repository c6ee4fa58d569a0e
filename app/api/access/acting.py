"""Who does what a request makes or changes: kept for the audit and for whose things are.

To be set in a task of the request, whose context nobody else has. Event loop only.
"""

from typing import Final

from app.api.http.request_context import REQUEST_ID, RequestContext
from app.api.telemetry.callers import address_of
from app.domain.access.audit import ACTOR, Actor

OWN_ID: Final = "curlew.own_request_id"
"""In the scope of a request that has the client's id: ours."""


def actor_of(exchange: RequestContext) -> Actor:
    """Who asks, from where, and in which request."""
    request_id = exchange.scope.get(OWN_ID, exchange.request_id).decode("ascii")
    given = exchange.headers.get(REQUEST_ID)
    theirs = None if given is None else given.decode("latin-1")
    return Actor(exchange.caller.name, address_of(exchange.scope), request_id, theirs)


def act_as_caller(exchange: RequestContext) -> None:
    """Let what goes on in this task be the caller's doing."""
    ACTOR.set(actor_of(exchange))

"""What control-plane routes get handed: the services, the parsed body, conditions, strict queries.

All `async`, so that nothing hops to a thread. The data plane has no dependency injection.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol, TypeVar

from fastapi import Depends, Query, Request
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel, ValidationError, WithJsonSchema
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from app.api.access.client_owners import ClientOwners
from app.api.access.operation_rights import OperationRights
from app.api.bodies.body_errors import invalid_body
from app.api.bodies.unpacking import packing_of, unpack
from app.api.formats.media import require_json
from app.api.http.memory_budget import MemoryBudget
from app.api.http.parameters import page_size_of, parse_query, refuse_unknown
from app.api.http.request_context import (
    CONTEXT_KEY,
    ClientGone,
    RequestContext,
    batch_too_large,
)
from app.api.naming.request_namespace import check_reached, stored
from app.api.ports import Configuration, Following, Metadata, Replicas
from app.api.relay.relay import Relay
from app.api.telemetry.metrics import ConnectionCounts
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.broker.health import Health
from app.domain.access.actions import Action, Kind
from app.domain.access.standing import Standing
from app.domain.limits import (
    DEFAULT_PAGE_SIZE,
    DEFAULT_TRACE_PAGE_SIZE,
    MIB,
    Limits,
)

CONTROL_BODY_BYTES_MAX: Final = MIB
"""Far more than any settings or list of offsets needs."""

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Services:
    """What the routes work on; made by the app factory, kept in `app.state`."""

    led: Broker | None
    """None: the node follows."""
    metadata: Metadata
    limits: Limits
    traffic: RequestMetrics = field(default_factory=RequestMetrics)
    connections: ConnectionCounts | None = None
    pressure: MemoryBudget = field(default_factory=lambda: MemoryBudget(Limits()))
    configuration: Configuration | None = None
    rights: OperationRights | None = None
    """None: this application can be described, not called."""
    owners: ClientOwners | None = None
    relay: Relay | None = None
    """Carries requests to other nodes."""
    following: Following | None = None
    """Of a node that follows."""
    replicas: Replicas | None = None
    """Of a node with a replica of a shard, whether it leads or not; None: it has a shard alone."""

    @property
    def broker(self) -> Broker:
        """For operations that come to a node only while it leads."""
        assert self.led is not None, "a node that follows is asked for what others do"
        return self.led

    @property
    def health(self) -> Health | Following:
        """What the node says of itself."""
        if self.led is not None:
            return self.led.health
        assert self.following is not None
        return self.following

    def to_make(self, access: Standing, kind: Kind, name: str) -> None:
        """Raise `NotPermitted` when naming it makes it, and the caller may not make it."""
        if self.rights is not None:
            self.rights.require_to_make(access, kind, name)

    async def claim_client(self, access: Standing, group: str, client_id: str) -> None:
        """Raise `NotPermitted` when the client id is another principal's."""
        if self.owners is not None:
            await self.owners.claim_member(access, group, client_id)


async def services_of(request: Request) -> Services:
    """The services of the application that serves `request`."""
    services: Services = request.app.state.services
    return services


WithServices = Annotated[Services, Depends(services_of)]


async def access_of(request: Request) -> RequestContext:
    """What asks for permission: the request as the gateway knows it."""
    context: RequestContext = request.scope[CONTEXT_KEY]
    return context


WithAccess = Annotated[RequestContext, Depends(access_of)]
"""For what the body, the query or an id names. A handler asks before it looks anything up."""


class Intent(Protocol):
    """What the audit is to be told before a request is carried out."""

    has_body: bool

    async def write(self, sent: object) -> None:
        """Tell it; `sent` is the body."""


def _intent_of(request: Request) -> Intent | None:
    intent: Intent | None = getattr(request.state, "intent", None)
    return intent


async def authorize(request: Request) -> None:
    """Decide on what the path names, before the body is read."""
    services: Services = request.app.state.services
    if services.rights is not None:
        operation_id: str = request.scope["route"].operation_id
        context: RequestContext = request.scope[CONTEXT_KEY]
        services.rights.require_by_id(context, operation_id, request.path_params)
        if context.namespace and context.caller.name is not None:
            namespaces = services.metadata.snapshot.namespaces
            check_reached(context, context.namespace, lambda: namespaces)
    intent = _intent_of(request)
    if intent is not None and not intent.has_body:
        await intent.write(None)


TopicNames = Annotated[str, Query(description="topic names, parted by commas")]


def named_topics(access: WithAccess, topics: str) -> tuple[Sequence[str], Sequence[str]]:
    """The topics that the caller may know of, and the others, which are missing to it."""
    names = [stored("topic", name) for name in topics.split(",") if name]
    seen = access.visible(Action.GET, Kind.TOPIC, names)
    access.require_each(Action.GET, Kind.TOPIC, seen)
    known = set(seen)
    return seen, [name for name in dict.fromkeys(names) if name not in known]


async def _page_size(
    services: WithServices,
    page_size: Annotated[
        str | None,
        Query(description="at most so many entries; left out: 100, or `page_size_max` if less"),
        WithJsonSchema({"type": "integer", "minimum": 1, "default": DEFAULT_PAGE_SIZE}),
    ] = None,
) -> int:
    return page_size_of(page_size, services.limits.page_size_max)


WithPageSize = Annotated[int, Depends(_page_size)]
"""Entries of a page. Read as text, so that all that is no size gets the same error."""


async def _trace_size(
    services: WithServices,
    page_size: Annotated[
        str | None,
        Query(description="at most so many events; left out: 50, or `trace_results_max` if less"),
        WithJsonSchema({"type": "integer", "minimum": 1, "default": DEFAULT_TRACE_PAGE_SIZE}),
    ] = None,
) -> int:
    return page_size_of(page_size, services.limits.trace_results_max, DEFAULT_TRACE_PAGE_SIZE)


WithTraceSize = Annotated[int, Depends(_trace_size)]
"""Events of a page of traces."""


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not declare, a name that is given twice, of which
    FastAPI would take the last, and what is no UTF-8: as the data plane does."""
    query: bytes = request.scope["query_string"]
    if query:
        refuse_unknown(parse_query(query), _declared(request.scope["route"].dependant))


def _declared(dependant: Dependant) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    for inner in dependant.dependencies:
        names |= _declared(inner)
    return names


def json_body(
    model: type[_Model], *, require: Callable[[bytes | None], None] = require_json
) -> Callable[[Request], Awaitable[_Model]]:
    """A dependency that reads the body as `model`; an empty body is `{}`.

    What was sent stays in the request's state, for errors that point into it.
    """

    async def read(request: Request) -> _Model:
        body = await _read_bounded(request)
        if body:
            content_type = request.headers.get("content-type")
            require(None if content_type is None else content_type.encode("latin-1"))
        sent = request.state.sent_body = _parsed(body)
        try:
            made = model.model_validate_json(body or b"{}")
        except ValidationError as error:
            raise invalid_body(error, model, sent) from error
        intent = _intent_of(request)
        if intent is not None:
            await intent.write(sent)
        return made

    return read


def _parsed(body: bytes) -> object:
    """What was sent, as JSON; None when it is not JSON, which validation tells in more detail."""
    try:
        return from_json(body) if body else {}
    except ValueError:
        return None


def sent_body_of(request: Request) -> object:
    """The JSON that was sent; None before it is read, and without any."""
    return getattr(request.state, "sent_body", None)


async def _read_bounded(request: Request) -> bytes:
    encoding = request.headers.get("content-encoding", "")
    packing = packing_of(encoding.encode("latin-1"))
    declared = request.headers.get("content-length", "0")
    if int(declared) > CONTROL_BODY_BYTES_MAX:
        raise batch_too_large(CONTROL_BODY_BYTES_MAX)
    services: Services = request.app.state.services
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            services.pressure.hold(len(part))
            parts.append(part)
            size += len(part)
            if size > CONTROL_BODY_BYTES_MAX:
                raise batch_too_large(CONTROL_BODY_BYTES_MAX)
    except ClientDisconnect as gone:
        raise ClientGone from gone
    finally:
        services.pressure.release(size)
    body = b"".join(parts)
    if packing is None:
        return body
    return await unpack(packing, body, CONTROL_BODY_BYTES_MAX, services.limits, batch_too_large)

"""What control-plane routes get handed: the services, the parsed body, conditions, strict queries.

All `async`, so that nothing hops to a thread. Not for the lane, which has no dependency injection.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from app.api.errors import FieldError, InvalidBody, did_you_mean
from app.api.exchange import ClientGone, batch_too_large
from app.api.lane.media import require_json
from app.api.metrics import ConnectionCounts
from app.api.parameters import refuse_unknown
from app.api.ports import Broker, Metadata
from app.api.pressure import Pressure
from app.api.traffic import Traffic
from app.api.unpacking import packing_of, unpack
from app.domain.errors import InvalidRequest
from app.domain.limits import MIB, Limits
from app.domain.positions import FlushMode

CONTROL_BODY_BYTES_MAX: Final = MIB
"""Far more than any settings or list of offsets needs."""

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Services:
    """What the routes work on; made by the app factory, kept in `app.state`."""

    broker: Broker
    metadata: Metadata
    limits: Limits
    default_flush: FlushMode = FlushMode.SYNC
    """Flush mode of topics whose settings do not name one."""
    traffic: Traffic = field(default_factory=Traffic)
    connections: ConnectionCounts | None = None
    pressure: Pressure = field(default_factory=lambda: Pressure(Limits()))


async def services_of(request: Request) -> Services:
    """The services of the application that serves `request`."""
    services: Services = request.app.state.services
    return services


WithServices = Annotated[Services, Depends(services_of)]


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not declare."""
    if request.query_params:
        given = dict(request.query_params)
        refuse_unknown(given, _declared(request.scope["route"].dependant))


def _declared(dependant: Dependant) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    for inner in dependant.dependencies:
        names |= _declared(inner)
    return names


def json_body(model: type[_Model]) -> Callable[[Request], Awaitable[_Model]]:
    """A dependency that reads the body as `model`; an empty body is `{}`."""

    async def read(request: Request) -> _Model:
        body = await _read_bounded(request)
        if body:
            content_type = request.headers.get("content-type")
            require_json(None if content_type is None else content_type.encode("latin-1"))
        try:
            return model.model_validate_json(body or b"{}")
        except ValidationError as error:
            raise invalid_body(error, list(model.model_fields)) from error

    return read


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


def invalid_body(error: ValidationError, known: list[str]) -> InvalidBody:
    """All faults that pydantic found, each with its JSON pointer."""
    faults: list[FieldError] = []
    hint = None
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        pointer = "".join(f"/{part}" for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            name = str(fault["loc"][-1])
            faults.append(FieldError(pointer, f"unknown field {name!r}"))
            hint = hint or did_you_mean(name, known)
        else:
            # Pydantic puts this before what our own checks say.
            faults.append(FieldError(pointer, fault["msg"].removeprefix("Value error, ")))
    return InvalidBody(faults[0].detail, faults, hint=hint)


async def if_version_of(request: Request) -> int | None:
    """The version that `If-Match` asks for; 0 for `If-None-Match: *`; None without a condition."""
    if request.headers.get("if-none-match", "").strip() == "*":
        return 0
    condition = request.headers.get("if-match")
    if condition is None:
        return None
    text = condition.strip().removeprefix("W/").strip('"')
    if text.isascii() and text.isdigit() and len(text) <= 19:
        return int(text)
    raise InvalidRequest(
        f"If-Match is {condition!r}; it must be one ETag as it was given",
        hint='for instance If-Match: "3"',
        fields={"header": "If-Match"},
    )


IfVersion = Annotated[int | None, Depends(if_version_of)]


def etag_of(version: int) -> str:
    """The strong validator of a version."""
    return f'"{version}"'

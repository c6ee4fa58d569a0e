"""The FastAPI application behind the data plane: routes, and its failures as problem documents.

Nothing of FastAPI's own pages is served: the document is `openapi`'s, and its Swagger page would
load scripts from elsewhere.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final
from urllib.parse import unquote

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from app.api.bodies.body_errors import point_into
from app.api.control.dependencies import (
    Services,
    authorize,
    refuse_unknown_parameters,
    sent_body_of,
)
from app.api.control.operation_list import OPERATIONS, ROUTERS
from app.api.control.path_hints import hint_of_path
from app.api.control.path_segments import WholeSegments
from app.api.http.errors import (
    MethodNotAllowed,
    PathNotFound,
    hint_by_what_is_known,
    render_problem,
)
from app.api.http.json_line import JsonLine
from app.api.http.request_context import CONTEXT_KEY, REQUEST_ID_KEY
from app.domain.access.refusals import NotPermitted
from app.domain.errors import CurlewError, InternalError, InvalidRequest
from app.runtime.version import program_version

DESCRIPTION = """A message service over plain HTTP, with RocketMQ's semantics.

The body of a single send is the message, byte for byte; metadata travels in `MQ-*` headers or their
query aliases. Every error is `application/problem+json`; `code` is stable.

The server speaks HTTP/1.1 and takes one `Host`. A request has to come in time and within bounds
(`GET /v1/limits`: `first_byte_ms_max`, `request_head_ms_max`, `request_body_ms_max` and more); what
is malformed, too slow or too large is refused and ends the connection. With
`Expect: 100-continue`, a body that would be refused is refused before it is sent."""


_VERB: Final = re.compile(r":[a-z]+$")


def build_control_plane(services: Services | None = None) -> FastAPI:
    """The application. Without `services` it can be described, not called."""
    app = FastAPI(
        title="Curlew",
        version=program_version(),
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(WholeSegments)
    app.state.services = services
    app.router.routes += operation_routes()
    app.add_exception_handler(CurlewError, _handler(_itself))
    app.add_exception_handler(RequestValidationError, _handler(_of_validation))
    app.add_exception_handler(HTTPException, _handler(_of_framework))
    app.add_exception_handler(Exception, _handler(_of_the_unexpected))
    return app


@cache
def operation_routes() -> Sequence[BaseRoute]:
    """The routes of all operations, the same in every application of the process.

    FastAPI works out what a route reads and answers at the first request, for each application that
    includes it; for all routes that takes a fifth of a second. The handlers find the services by
    the application that is asked.
    """
    app = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        default_response_class=JsonLine,
        dependencies=[Depends(authorize), Depends(refuse_unknown_parameters)],
    )
    for router in ROUTERS:
        app.include_router(router)
    return app.router.routes


_Translate = Callable[[Request, Exception], CurlewError]


def _handler(translate: _Translate) -> Callable[[Request, Exception], Response]:
    """A handler that answers the problem that `translate` makes of the exception."""

    async def answer(request: Request, error: Exception) -> Response:
        found = translate(request, error)
        context = request.scope.get(CONTEXT_KEY)
        if context is not None and isinstance(found, NotPermitted):
            context.denied = found
        if context is not None:
            hint_by_what_is_known(found, context)
        status, headers, body = render_problem(
            found,
            instance=request.scope["raw_path"].decode("latin-1"),
            request_id=request.scope[REQUEST_ID_KEY],
        )
        response = Response(body, status)
        response.raw_headers += headers
        return response

    return answer  # type: ignore[return-value]  # Starlette awaits it


def _itself(request: Request, error: Exception) -> CurlewError:
    assert isinstance(error, CurlewError)
    point_into(error, sent_body_of(request))
    return error


def _of_validation(_: Request, error: Exception) -> CurlewError:
    """A parameter that FastAPI could not read; bodies never come here (`json_body`)."""
    assert isinstance(error, RequestValidationError)
    fault = error.errors()[0]
    name = str(fault["loc"][-1])
    return InvalidRequest(f"{name}: {fault['msg']}", fields={"parameter": name})


def _of_framework(request: Request, error: Exception) -> CurlewError:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return MethodNotAllowed(request.method, ", ".join(sorted(_methods_of_path(request))))
    if error.status_code == 404:
        path = unquote(request.scope["raw_path"].decode("latin-1"))
        known = [operation.path for operation in OPERATIONS]
        return PathNotFound(f"nothing is at {path!r}", hint=hint_of_path(path, known))
    return InvalidRequest(str(error.detail))


def _methods_of_path(request: Request) -> set[str]:
    """The methods of all routes with this path; the framework names those of one only."""
    methods: set[str] = set()
    with_verb: set[str] = set()
    for router in ROUTERS:
        for route in router.routes:
            match, _ = route.matches(request.scope)
            if match is not Match.NONE and isinstance(route, Route):
                # `orders:reset` fits `{topic}` too, but no name has a colon before a verb.
                found = with_verb if _VERB.search(route.path) else methods
                found |= route.methods or set()
    methods = with_verb or methods
    return methods or {"GET"}


def _of_the_unexpected(_: Request, error: Exception) -> CurlewError:
    """What the client sees; the gateway logs the traceback when the exception reaches it."""
    return InternalError("unexpected failure; the log has the details under the request id")

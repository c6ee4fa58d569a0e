"""Routes of the control plane, made from operations."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from inspect import getdoc, signature
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from typing_extensions import override

from app.api.aims.across import Across
from app.api.aims.aim import Aim
from app.api.control.carried import carried
from app.api.control.log_changes import audited
from app.api.control.path_segments import names_in_path
from app.api.http.json_line import JsonLine
from app.api.naming.request_namespace import kinds_of_path, stored_path_names
from app.api.operations.answers import answers_of
from app.api.operations.operation import Action, Answer, Body, Json, Operation, Resource

_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[object]])

_NO_ACTIONS: Final[Mapping[Resource, Action]] = {}
_NO_ANSWERS: Final[Mapping[int, Answer]] = {}


class _Route(APIRoute):
    """A route whose handler gets the names of its path as they are stored."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        kinds = kinds_of_path(self.path)
        handle = audited(
            self.operation_id or "",
            super().get_route_handler(),
            has_body=bool(self.openapi_extra),
        )

        async def serve(request: Request) -> Response:
            scope = request.scope
            scope["path_params"] = stored_path_names(kinds, names_in_path(scope))
            return await carried(request) or await handle(request)

        return serve


class OperationRouter(APIRouter):
    """The operations with one tag. FastAPI reads the parameters, and calls the handlers."""

    def __init__(self, tag: str) -> None:
        super().__init__(tags=[tag], route_class=_Route)
        self.tag = tag
        self.operations: list[Operation] = []

    def serve(
        self,
        route: str,
        summary: str,
        *,
        needs: Mapping[Resource, Action],
        instead: Mapping[Resource, Action] = _NO_ACTIONS,
        makes: tuple[Resource, ...] = (),
        is_open: bool = False,
        by_each_node: bool = False,
        status: int = 200,
        body: Body | None = None,
        answers: Mapping[int, Answer] = _NO_ANSWERS,
        problems: tuple[int, ...] = (),
        aim: Aim | None = None,
        across: Across | None = None,
    ) -> Callable[[_Handler], _Handler]:
        """Declare an `Operation` and route it to the decorated handler, whose name is its id.

        `status` is that of a success. Its content is what the handler returns by its annotation,
        unless `answers` says it. What is open is told by each node of itself.
        """

        def add(handler: _Handler) -> _Handler:
            operation = Operation(
                operation_id=handler.__name__,
                route=route,
                summary=summary,
                needs=needs,
                instead=instead,
                makes=makes,
                is_open=is_open,
                by_each_node=by_each_node or is_open,
                tag=self.tag,
                description=getdoc(handler) or "",
                body=body,
                answers=answers,
                problems=problems,
                aim=aim,
                across=across,
            )
            self.operations.append(operation)
            self._route(operation, handler, status)
            return handler

        return add

    def _route(
        self, operation: Operation, handler: Callable[..., Awaitable[object]], status: int
    ) -> None:
        returned = signature(handler).return_annotation
        is_response = isinstance(returned, type) and issubclass(returned, Response)
        is_said = status in operation.answers and bool(operation.answers[status].content)
        self.add_api_route(
            operation.path,
            handler,
            methods=[operation.method],
            operation_id=operation.operation_id,
            summary=operation.summary,
            description=operation.description,
            status_code=status,
            response_class=returned if is_response else JsonLine,
            response_model=None if is_response or is_said else returned,
            responses=_responses(operation),
            openapi_extra=operation.body and {"requestBody": operation.body.rendered()},
        )


def _responses(operation: Operation) -> dict[int | str, Json]:
    """The answers as FastAPI takes them: it makes the schemas of models itself."""
    responses: dict[int | str, Json] = {}
    for status, rendered in answers_of(operation).items():
        responses[status] = rendered
        content = operation.answers.get(status, Answer()).content
        if isinstance(content, type) and issubclass(content, BaseModel):
            del rendered["content"]
            rendered["model"] = content
    return responses

"""Which operations of the control plane change what is in the log, and their entries in the audit.

Those that change the metadata are written in the transaction of the change. These write what they
are about to do before, and what came of it after; without the database they do not begin. Dry runs
write nothing, nor does what is refused for want of rights: denials are added up elsewhere.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Annotated, Final, Protocol

from fastapi import Depends, Request, Response
from pydantic import TypeAdapter, ValidationError

from app.api.control.dependencies import Services, sent_body_of
from app.domain.names import in_audit

IN_THE_LOG: Final[Mapping[str, str]] = {
    "cancel_operation": "UPDATE",
    "cancel_scheduled_message": "DELETE",
    "commit_group_offsets": "UPDATE",
    "delete_group_offsets": "DELETE",
    "delete_group_subscription": "DELETE",
    "delete_member": "DELETE",
    "delete_producer": "DELETE",
    "delete_snapshot": "DELETE",
    "deliver_scheduled_message": "UPDATE",
    "drain_shard": "UPDATE",
    "elect_replica": "UPDATE",
    "hand_over_shard": "UPDATE",
    "move_scheduled_message": "UPDATE",
    "patch_config": "UPDATE",
    "purge_dead_letters": "DELETE",
    "put_group_subscription": "UPDATE",
    "put_snapshot": "UPDATE",
    "redrive_dead_letters": "UPDATE",
    "release_parked": "UPDATE",
    "remove_replica": "DELETE",
    "reset_all_group_offsets": "UPDATE",
    "reset_group_offsets": "UPDATE",
    "reset_replica": "UPDATE",
    "restore_snapshot": "UPDATE",
    "seal_producer": "UPDATE",
    "undo_drain": "UPDATE",
}
"""Operation → action."""
_BEGIN_THEMSELVES: Final = frozenset({"cancel_operation", "commit_group_offsets", "seal_producer"})
"""Whose rights are on what an id or the body names, or which clients do all the time unless they
force it: their handlers say when all is permitted (`WithBeginning`)."""

_TRUTH: Final = TypeAdapter(bool)

Serve = Callable[[Request], Awaitable[Response]]


def audited(operation_id: str, serve: Serve, *, has_body: bool) -> Serve:
    """`serve` with its entries in the audit, where the operation changes what is in the log."""
    action = IN_THE_LOG.get(operation_id)
    if action is None:
        return serve

    async def noted(request: Request) -> Response:
        query = request.query_params
        if truth(query.get("dry_run", "false")) is not False:
            return await serve(request)
        services: Services = request.app.state.services
        async with AsyncExitStack() as stack:
            said = {"operation": operation_id, **dict(query)}
            resource = resource_of(request.scope["path_params"])

            def around(named: str | None) -> AbstractAsyncContextManager[dict[str, object]]:
                return services.metadata.audit.around(action, named or resource, said)

            intent = request.state.intent = _Intent(stack, around, has_body=has_body)
            intent.begins_itself = operation_id in _BEGIN_THEMSELVES
            answer = await serve(request)
            intent.outcome["operation"] = operation_id
            intent.outcome["status"] = answer.status_code
            body = sent_body_of(request)
            if isinstance(body, dict):
                intent.outcome["request"] = body
        return answer

    return noted


class _Intent:
    """Written when the caller may do what it asks for and the body is valid, before it is done."""

    def __init__(
        self,
        stack: AsyncExitStack,
        around: Callable[[str | None], AbstractAsyncContextManager[dict[str, object]]],
        *,
        has_body: bool,
    ) -> None:
        self._stack = stack
        self._around = around
        self.has_body = has_body
        self.begins_itself = False
        """Not when the request is read, but when its handler says so."""
        self.outcome: dict[str, object] = {}

    async def begins(self, resource: str | None = None) -> None:
        """All is permitted, and nothing is done yet. Raises `MetadataUnavailable`: then nothing may
        be done. `resource`: what the body names, where the path names nothing."""
        self.outcome = await self._stack.enter_async_context(self._around(resource))

    async def write(self, sent: object) -> None:
        if not self.begins_itself and not (isinstance(sent, dict) and sent.get("dry_run") is True):
            await self.begins()


class Begins(Protocol):
    """See `_Intent.begins`."""

    async def __call__(self, resource: str | None = None) -> None: ...


async def begins_of(request: Request) -> Begins:
    """How a handler says that all is permitted."""
    intent: _Intent | None = getattr(request.state, "intent", None)
    return _nothing if intent is None else intent.begins


WithBeginning = Annotated[Begins, Depends(begins_of)]


async def _nothing(resource: str | None = None) -> None:
    pass


def truth(text: str) -> bool | None:
    """What a parameter of the query says, as FastAPI reads it; None: neither, so it is refused."""
    try:
        return _TRUTH.validate_python(text)
    except ValidationError:
        return None


def resource_of(in_path: Mapping[str, str]) -> str:
    """What the names in a path name: `group:billing/topic:orders`. A slash in a name is quoted."""
    named = (f"{kind}:{in_audit(name)}" for kind, name in in_path.items())
    return "/".join(named) or "cluster"

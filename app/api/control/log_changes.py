"""Which operations of the control plane change what is in the log, and their entries in the audit.

Those that change the metadata are written in the transaction of the change. These write what they
are about to do before, and what came of it after; without the database they do not begin.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fastapi import Request, Response

from app.api.control.dependencies import Services, sent_body_of

IN_THE_LOG: Final[Mapping[str, str]] = {
    "cancel_operation": "UPDATE",
    "cancel_scheduled_message": "DELETE",
    "commit_group_offsets": "UPDATE",
    "delete_group_offsets": "DELETE",
    "delete_member": "DELETE",
    "delete_snapshot": "DELETE",
    "deliver_scheduled_message": "UPDATE",
    "move_scheduled_message": "UPDATE",
    "patch_config": "UPDATE",
    "purge_dead_letters": "DELETE",
    "put_snapshot": "UPDATE",
    "redrive_dead_letters": "UPDATE",
    "release_parked": "UPDATE",
    "reset_all_group_offsets": "UPDATE",
    "reset_group_offsets": "UPDATE",
    "restore_snapshot": "UPDATE",
    "seal_producer": "UPDATE",
}
"""Operation → action."""
_ONLY_FORCED: Final = frozenset({"commit_group_offsets"})
"""What clients do all the time, unless they force it."""
_TRUE: Final = frozenset({"true", "1", "yes"})

Serve = Callable[[Request], Awaitable[Response]]


def audited(operation_id: str, serve: Serve) -> Serve:
    """`serve` with its entries in the audit, where the operation changes what is in the log."""
    action = IN_THE_LOG.get(operation_id)
    if action is None:
        return serve

    async def noted(request: Request) -> Response:
        query = request.query_params
        is_forced = query.get("force", "") in _TRUE
        if query.get("dry_run", "") in _TRUE or (operation_id in _ONLY_FORCED and not is_forced):
            return await serve(request)
        services: Services = request.app.state.services
        said = {"operation": operation_id, **dict(query)}
        resource = resource_of(request.scope["path_params"])
        async with services.metadata.audit.around(action, resource, said) as outcome:
            answer = await serve(request)
            outcome["operation"] = operation_id
            outcome["status"] = answer.status_code
            body = sent_body_of(request)
            if isinstance(body, dict):
                outcome["request"] = body
        return answer

    return noted


def resource_of(in_path: Mapping[str, str]) -> str:
    """What the names in a path name: `group:billing/topic:orders`."""
    return "/".join(f"{kind}:{name}" for kind, name in in_path.items()) or "cluster"

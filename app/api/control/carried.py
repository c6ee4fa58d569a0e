"""Requests of the control plane that are aimed at another node's shard, which are carried there,
and those of several shards: behind authorization and before the handler."""

from fastapi import Request, Response
from typing_extensions import override

from app.api.control.dependencies import Services, authorize, refuse_unknown_parameters
from app.api.http.request_context import CONTEXT_KEY, RequestContext
from app.api.http.request_context import Receive as AsgiReceive
from app.api.http.request_context import Scope as AsgiScope
from app.api.http.request_context import Send as AsgiSend
from app.api.relay.over_shards import OverShards


class _Answered(Response):
    """What the framework gets for a request that was answered already."""

    @override
    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        return


async def carried(request: Request) -> Response | None:
    """What stands for the answer of another node, which is out; None: this node has to answer."""
    services: Services | None = request.app.state.services
    if services is None or services.relay is None or services.rights is None:
        return None
    relay = services.relay
    if not relay.has_others:
        return None
    operation = services.rights.operation(request.scope["route"].operation_id)
    if relay.follows:
        if operation.by_each_node:
            return None
        await authorize(request)
        await relay.carry_whole(request.scope[CONTEXT_KEY], sends=operation.sends)
        return _Answered()
    names = tuple(request.path_params[name] for name in operation.names)
    if not operation.makes:
        await relay.learn_of(operation, names)
    if operation.aim is None and operation.across is None:
        return None
    context: RequestContext = request.scope[CONTEXT_KEY]
    await authorize(request)
    await refuse_unknown_parameters(request)
    if await OverShards(relay).answered(context, operation, names):
        return _Answered()
    aimed = relay.aimed_at(context, operation, names)
    return _Answered() if await relay.carry(context, operation, names, aimed) else None

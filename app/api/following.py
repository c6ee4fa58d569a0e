"""The data plane of a node that leads nothing: each request goes to a node that leads."""

from app.api.dataplane.router import Handler, Router
from app.api.dataplane.routes.routing import OPERATIONS
from app.api.http.request_context import RequestContext
from app.api.operations.operation import Operation
from app.api.relay.relay import Relay
from app.runtime.direct import in_task


def following_router(relay: Relay) -> Router:
    """The same routes as those of a node that leads. The gateway has decided on what comes here."""

    def carrier_of(operation: Operation) -> Handler:
        async def carry(exchange: RequestContext, *_names: str) -> None:
            await in_task()
            await relay.carry_whole(exchange, sends=operation.sends)

        return carry

    return Router({operation: carrier_of(operation) for operation in OPERATIONS})

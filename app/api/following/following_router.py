"""The data plane of a node that leads nothing: each request goes to a node that leads, but for
pulls that the own replica may answer."""

from app.api.dataplane.pulls.read_choice import ASKS_STALE
from app.api.dataplane.router import Handler, Router
from app.api.dataplane.routes.read_operations import PULL_MESSAGES
from app.api.dataplane.routes.routing import OPERATIONS
from app.api.following.followed_pulls import FollowedPulls
from app.api.http.request_context import ASKED, RequestContext
from app.api.operations.operation import Operation
from app.api.relay.relay import Relay
from app.domain.errors import NotLeader, RelayInterrupted, ShardUnavailable
from app.runtime.direct import in_task


def following_router(relay: Relay, pulls: FollowedPulls | None) -> Router:
    """The same routes as those of a node that leads. The gateway has decided on what comes here."""

    def carrier_of(operation: Operation) -> Handler:
        async def carry(exchange: RequestContext, *_names: str) -> None:
            await in_task()
            await relay.carry_whole(exchange, sends=operation.sends)

        return carry

    handlers = {operation: carrier_of(operation) for operation in OPERATIONS}
    if pulls is not None:
        handlers[PULL_MESSAGES] = _pulling(relay, pulls)
    return Router(handlers)


def _pulling(relay: Relay, pulls: FollowedPulls) -> Handler:
    async def pull(exchange: RequestContext, topic: str, queue: str) -> None:
        await in_task()
        if exchange.scope.get(ASKED) == ASKS_STALE:
            if not await pulls.answered(exchange, topic, queue, is_stale=True):
                raise NotLeader(f"queue {queue} of topic {topic!r}", relay.own_shard)
            return
        may_say_any = exchange.mq_headers or b"any" in exchange.query
        if may_say_any and await pulls.answered(exchange, topic, queue, is_stale=False):
            return
        try:
            await relay.carry_whole(exchange, sends=False)
        except (ShardUnavailable, RelayInterrupted):
            if exchange.started or not await pulls.answered(exchange, topic, queue, is_stale=True):
                raise

    return pull

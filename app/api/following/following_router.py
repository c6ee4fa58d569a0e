"""The data plane of a node that leads nothing: each request goes to a node that leads, but for
pulls that the own replica may answer."""

from app.api.dataplane.pulls.read_choice import ASKS_STALE
from app.api.dataplane.router import Handler, Router
from app.api.dataplane.routes.read_operations import PULL_MESSAGES
from app.api.dataplane.routes.routing import OPERATIONS
from app.api.following.followed_pulls import FollowedPulls
from app.api.http.request_context import ASKED, RequestContext
from app.api.operations.operation import Operation
from app.api.relay.envelope import RELAYED
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
        asks_stale = exchange.scope.get(ASKED) == ASKS_STALE
        if asks_stale and await pulls.answered(exchange, topic, queue, is_stale=True):
            return
        may_say_any = not asks_stale and (exchange.mq_headers or b"any" in exchange.query)
        if may_say_any and await pulls.answered(exchange, topic, queue, is_stale=False):
            return
        if RELAYED in exchange.scope:
            # Who relays it takes this node for the leader. It looks for the one that leads by now,
            # and where nobody does it asks for what a replica has.
            raise NotLeader(f"queue {queue} of topic {topic!r}", relay.own_shard)
        await _pull_of_client(relay, pulls, exchange, topic, queue)

    return pull


async def _pull_of_client(
    relay: Relay, pulls: FollowedPulls, exchange: RequestContext, topic: str, queue: str
) -> None:
    """From a node that leads; where none does, from a replica, as `MQ-Stale`."""
    try:
        await relay.carry_whole(exchange, sends=False)
    except NotLeader:  # no relay is wanted; where nobody leads there is nobody else to ask
        is_led = pulls.hears_leader
        if is_led or not await pulls.answered(exchange, topic, queue, is_stale=True):
            raise
    except (ShardUnavailable, RelayInterrupted):
        if exchange.started:
            raise
        if await pulls.answered(exchange, topic, queue, is_stale=True):
            return
        if not await relay.answered_by_replica(exchange, relay.own_shard):
            raise

"""What a node is given for a stream of its client, and cannot be handed."""

import pytest

from app.api.access.named_elsewhere import NamedElsewhere
from app.api.dataplane.receive_parts import look_asked
from app.api.dataplane.receiving import Receiving
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import ASKED, ClientGone, Event, RequestContext
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker.results import Takes
from tests.support.clients.asgi import LOCAL, events_of, http_scope
from tests.support.nodes.brokers import GROUP, TOPIC, bodies, running

pytestmark = pytest.mark.anyio


async def test_what_is_given_back_counts_for_the_stream_no_more() -> None:
    async with running(1) as world:
        await world.send(b"1")
        await world.broker.groups.find_or_create_group(GROUP)

        async def send(_: Event) -> None:
            assert len(world.broker.streams.elsewhere._shares) == 1
            raise ClientGone

        scope = http_scope("POST", "/", [LOCAL], b"")
        scope[ASKED] = look_asked(Takes.WHAT_IS_THERE, "s1")
        memory = MemoryBudget(world.limits)
        exchange = RequestContext(scope, events_of(), send, b"r-1", memory)
        named = NamedElsewhere(None, None)
        receiving = Receiving(world.broker, world.limits, RequestMetrics(), named)
        with pytest.raises(ClientGone):
            await receiving.receive(exchange, TOPIC, GROUP)
        assert len(world.broker.streams.elsewhere._shares) == 0
        assert world.broker.streams.credits.held_count == 0
        assert bodies(await world.receive()) == [b"1"]

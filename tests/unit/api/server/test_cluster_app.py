"""What a node does with a request that another one has carried to it."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from app.api.http.request_context import Receive, Scope, Send
from app.api.relay.envelope import Envelope
from app.api.server.cluster_listener import ClusterApp, PolicyRefresh
from app.cluster import Metadata
from app.runtime.direct import DirectRun
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


async def test_what_the_other_node_knows_more_is_asked_for_within_a_task() -> None:
    """A request begins without one, where what waits for the database refuses to work."""
    snapshot = SimpleNamespace(version=1)
    answered: list[int] = []

    async def refresh() -> None:
        async with asyncio.timeout(10):
            await asyncio.sleep(0)
            snapshot.version = 2

    async def answer(_scope: Scope, _receive: Receive, _send: Send) -> None:
        answered.append(snapshot.version)

    metadata = cast("Metadata", SimpleNamespace(snapshot=snapshot, refresh=refresh))
    app = ClusterApp(answer, metadata, PolicyRefresh(lambda: 1, refresh))
    envelope = Envelope(2, 1, None, None, None)
    scope: Scope = {"type": "http", "headers": envelope.headers()}

    async def never() -> None:
        raise AssertionError

    started: list[asyncio.Task[None]] = []
    run = DirectRun(
        app(scope, cast("Receive", never), cast("Send", never)),
        lambda rest, _: started.append(asyncio.ensure_future(rest)),
    )
    asyncio.get_running_loop().call_soon(run.go_on)  # as a connection's bytes do
    await until(lambda: bool(answered))
    assert answered == [2]
    await asyncio.gather(*started)

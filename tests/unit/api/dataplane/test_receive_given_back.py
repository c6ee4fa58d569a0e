"""What a client leased and cannot get any more is given back at once, and counts as no delivery."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.api.admission import Admission
from app.api.dataplane.routes import build_router
from app.api.gateway import Gateway
from app.api.http.request_context import AsgiApp, Event
from tests.support.clients.asgi import Answer, call
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio
PATH = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages:receive"


class Client:
    """Sends an empty request, and stays until it is told to leave."""

    def __init__(self) -> None:
        self.has_left = asyncio.Event()
        self.was_seen_to_leave = asyncio.Event()
        self._is_sent = False

    async def receive(self) -> Event:
        if not self._is_sent:
            self._is_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.has_left.wait()
        self.was_seen_to_leave.set()
        return {"type": "http.disconnect"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as world:
        yield world


def app_of(world: World) -> AsgiApp:
    async def nothing(*_: object) -> None:
        raise AssertionError("no path of the control plane")

    router = build_router(world.broker, world.limits)
    return Gateway(router, nothing, Admission(header_block_bytes_max=9_999, local_only=True))


@pytest.mark.parametrize("query", [b"wait=20s", b"wait=20s&format=raw"])
async def test_a_client_that_leaves_while_its_lease_is_written_gives_it_back(
    world: World, query: bytes
) -> None:
    client = Client()
    async with asyncio.TaskGroup() as tasks:
        waiting: asyncio.Task[Answer] = tasks.create_task(
            call(app_of(world), "POST", PATH, query=query, receive=client.receive)
        )
        await until(lambda: world.waiting == 1)
        world.store.fill(TOPIC, 0, [b"order 17"])
        world.store.held = []  # from here on the log takes its time
        world.store.on_arrival(TOPIC, 0)
        await until(lambda: bool(world.store.held))  # the lease is being written down
        client.has_left.set()
        await client.was_seen_to_leave.wait()
        subscription = world.broker.groups.find(GROUP, TOPIC)
        assert subscription is not None
        assert subscription.leased_count == 1
        world.store.confirm()
    assert waiting.result().status == 0, "nobody is there to be answered"
    [again] = await world.receive()
    assert (again.message.body, again.attempt) == (b"order 17", 1)

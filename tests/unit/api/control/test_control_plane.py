"""Applications of one process share their routes, and nothing else."""

import pytest

from app.api.admission import Admission
from app.api.control.control_plane import build_control_plane, operation_routes
from app.api.control.dependencies import Services
from app.api.dataplane.router import Router
from app.api.gateway import Gateway
from tests.support.clients.asgi import call
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.nodes.closed import closed_node

pytestmark = pytest.mark.anyio


def application(world: World) -> Gateway:
    services = Services(world.broker, world.metadata, world.limits)  # type: ignore[arg-type]
    plane = build_control_plane(services)
    assert plane.router.routes[-1] is operation_routes()[-1]
    return Gateway(Router({}), plane, Admission(header_block_bytes_max=9_999, local_only=True))


async def test_each_application_answers_for_its_own_services() -> None:
    async with running() as first, running() as second:
        await first.topic(name="of-the-first")
        applications = [application(first), application(second)]
        for name, statuses in (("of-the-first", [200, 404]), (TOPIC, [200, 200])):
            found = [await call(each, "GET", f"/v1/topics/{name}") for each in applications]
            assert [answer.status for answer in found] == statuses


async def test_one_that_asks_for_keys_closes_no_other() -> None:
    async with closed_node(is_closed=False) as first, closed_node(is_closed=False) as second:

        async def statuses() -> list[int]:
            found = [await each.ask(None, "GET", "/v1/topics/alpha-in") for each in (first, second)]
            return [answer.status for answer in found]

        assert await statuses() == [200, 200]
        second.access.show(is_closed=True)
        assert await statuses() == [200, 401]
        answer = await second.ask("viewer", "GET", "/v1/topics/alpha-in")
        assert answer.status == 200

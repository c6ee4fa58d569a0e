"""What a receive may ask for: its bounds are told, and are those of a send and of a member."""

from collections.abc import AsyncIterator

import pytest

from app.domain.limits import CLIENT_ID_CHARS_MAX
from tests.support.clients.asgi import call
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
from tests.unit.api.dataplane.test_send_timeouts import SINGLE, app_of

pytestmark = pytest.mark.anyio
RECEIVE = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages:receive"
LONGEST = b"c" * CLIENT_ID_CHARS_MAX


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as world:
        yield world


@pytest.mark.parametrize("path", [SINGLE, RECEIVE])
@pytest.mark.parametrize(
    ("name", "status"), [(LONGEST, 200), (LONGEST + b"c", 400)], ids=["at its bound", "beyond"]
)
@pytest.mark.parametrize("is_header", [True, False])
async def test_a_client_may_say_its_id_wherever_a_member_may_have_it(
    world: World, path: str, name: bytes, status: int, *, is_header: bool
) -> None:
    headers = [(b"mq-client-id", name)] if is_header else []
    query = b"" if is_header else b"client_id=" + name
    answer = await call(app_of(world), "POST", path, headers=headers, query=query)
    assert answer.status == (201 if (path, status) == (SINGLE, 200) else status), answer.body


@pytest.mark.parametrize("name", ["max_messages", "min_messages", "max_bytes"])
@pytest.mark.parametrize("value", [b"0", b"99999999"])
async def test_the_bound_that_is_told_is_the_one_that_holds(
    world: World, name: str, value: bytes
) -> None:
    query = name.encode() + b"=" + value
    problem = (await call(app_of(world), "POST", RECEIVE, query=query)).json()
    limits = world.limits
    most = limits.receive_bytes_max if "bytes" in name else limits.receive_messages_max
    assert (problem["parameter"], problem["min"], problem["max"]) == (name, 1, most)

"""What is answered when a topic is deleted while the answer is being made."""

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import pytest

from app.api.admission import Admission
from app.api.control.control_plane import build_control_plane
from app.api.control.dependencies import Services
from app.api.dataplane.router import Router
from app.api.gateway import Gateway
from app.api.http.request_context import AsgiApp
from tests.support.clients.asgi import call
from tests.support.nodes.brokers import TOPIC, World, running

pytestmark = pytest.mark.anyio

P = ParamSpec("P")
T = TypeVar("T")


def control_plane(world: World) -> AsgiApp:
    services = Services(world.broker, world.metadata, world.limits)  # type: ignore[arg-type]
    inner = build_control_plane(services)
    return Gateway(Router({}), inner, Admission(header_block_bytes_max=9_999, local_only=True))


def after_deletion(world: World, step: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """`step`, with the topic deleted before its first call."""

    async def late(*args: P.args, **named: P.kwargs) -> T:
        if TOPIC in world.metadata.snapshot.topics:
            await world.broker.settings_changes.delete_topic(TOPIC)
        return await step(*args, **named)

    return late


async def test_a_trail_is_shown_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        (sent,) = await world.send(b"x")
        trails = world.broker.message_trace
        monkeypatch.setattr(trails, "trail", after_deletion(world, trails.trail))
        path = f"/v1/topics/{TOPIC}/messages/{sent.message_id}/trace"
        answer = await call(control_plane(world), "GET", path)
        assert (answer.status, answer.json()["is_traced"]) == (200, True)


async def test_offsets_of_topics_count_it_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        await world.topic(name="other")
        broker = world.broker
        ends = broker.topic_ends
        monkeypatch.setattr(ends, "offsets_at", after_deletion(world, ends.offsets_at))
        query = f"topics=other,{TOPIC},none&at=latest".encode()
        answer = await call(control_plane(world), "GET", "/v1/topics:offsets", query=query)
        document = answer.json()
        assert [each["topic"] for each in document["topics"]] == ["other"]
        assert sorted(document["missing"]) == sorted(["none", TOPIC])

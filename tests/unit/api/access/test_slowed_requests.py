"""Who shows what is no credential too often is slowed down: that client, and nobody else."""

from typing import Any

import pytest

from app.api.http.request_context import MUTE, Event
from app.api.quotas.failures import Failures
from app.api.relay.envelope import RELAYED, Envelope
from tests.support.clients.asgi import call, http_scope
from tests.support.nodes.closed import closed_node

pytestmark = pytest.mark.anyio

PATH = "/v1/topics/alpha-in/messages"


async def test_a_connection_of_another_node_is_read_on_behind_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is many clients' in turn, and that node has judged what they show."""
    monkeypatch.setattr("app.api.gateway.BEGINNING_SECONDS_MAX", 0)
    events: list[Event] = []
    unknown = Envelope(0, 0, "unknown", None, None)
    failures = Failures(lambda: 0.0, per_second=1)

    async def app(_: Any, receive: Any, send: Any) -> None:
        async def note(event: Event) -> None:
            events.append(event)
            await send(event)

        scope = {**http_scope("POST", PATH, [], b""), "extensions": {MUTE: {}}, **carried}
        await node.app(scope, receive, note)

    async with closed_node() as node:
        monkeypatch.setattr(node.app, "_failures", failures)
        carried: dict[str, Any] = {RELAYED: unknown}
        for _ in range(3):
            assert (await call(app, "POST", PATH, b"x")).status == 401
        assert [each for each in events if each["type"] == MUTE] == []
        assert len(failures) == 0
        carried = {}
        for _ in range(3):
            assert (await call(app, "POST", PATH, b"x")).status in (400, 401)
        assert any(each["type"] == MUTE for each in events)

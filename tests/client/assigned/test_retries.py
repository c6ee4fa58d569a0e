"""Retries of lite pull at its end: what is under way is waited for, and no more come."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from curlew_client.assigned.options import member_options
from curlew_client.assigned.retries import Retries
from curlew_client.assigned.share import Said
from curlew_client.consuming.working import Handler
from curlew_client.errors import ConnectionFailed
from curlew_client.producing.routes import Routes
from typing_extensions import override

from tests.client.assigned.test_assigned_share import told
from tests.client.assigned.test_shared_pulls import BOTH, Clock, ScriptedPulls

pytestmark = pytest.mark.anyio

SHOWN = {
    "topic": "orders",
    "queue_id": 0,
    "queue_offset": 3,
    "message_id": "A1",
    "receipt_handle": "h1",
    "delivery_attempt": 2,
    "max_attempts": 16,
    "invisible_until_ms": 0,
    "body": "",
}


async def test_the_end_waits_for_what_is_settled_by_hand() -> None:
    may_answer, was_asked = asyncio.Event(), asyncio.Event()

    async def call(*_given: Any, **_named: Any) -> None:
        was_asked.set()
        await may_answer.wait()
        raise ConnectionFailed("gone", "unknown")

    def nothing_given() -> None:
        return

    session: Any = SimpleNamespace(
        client_id="me",
        timeout_s=1,
        options=SimpleNamespace(retries=0),
        connect_timeout_s=1,
        routes=Routes(lambda _: None, lambda _: 0.0, is_on=True, is_one_given=True),
    )
    sender: Any = SimpleNamespace(call=call)
    handler = Handler(nothing_given, True, 1, None, 1, 1, 1)
    options = member_options("billing", "orders")
    retries = Retries(session, sender, options, handler, nothing_given)
    (message,) = retries.take([SHOWN])
    settled = asyncio.ensure_future(message.ack())
    await was_asked.wait()
    end = asyncio.ensure_future(retries.stop())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not end.done()
    may_answer.set()
    await end
    with pytest.raises(ConnectionFailed):
        await settled
    assert retries.count == 0


class Waiting(ScriptedPulls):
    """The sign of life behind the first poll is answered when the test says so."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self.took: list[dict[str, Any]] = []
        self._took = self.took.extend
        self.may_answer, self.was_asked = asyncio.Event(), asyncio.Event()

    @override
    async def _ask(self, body: bytes, said: Said, wait_s: float) -> Any:
        if self.said:
            self.was_asked.set()
            await self.may_answer.wait()
        return await super()._ask(body, said, wait_s)


async def test_retries_of_a_sign_of_life_that_is_under_way_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("curlew_client.assigned.pulling.HEARTBEAT_S", 0)
    pulls = Waiting()
    shown = told(*BOTH, retries=[])
    pulls.script = [(shown, []), ({**shown, "retries": [SHOWN]}, [])]
    await pulls.read(1, 0.0, ())
    await pulls.was_asked.wait()
    hushed = asyncio.ensure_future(pulls.hush())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not hushed.done()
    pulls.may_answer.set()
    await hushed
    assert pulls.took == [SHOWN]
    assert len(pulls.said) == 2, "and no other one is given"
    await pulls.close()

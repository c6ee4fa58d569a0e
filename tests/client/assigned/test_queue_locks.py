"""How long a member believes in locks that it cannot renew: without a node, by a clock it sets."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from curlew_client.assigned import locks
from curlew_client.assigned.locks import RENEW_S, QueueLocks
from curlew_client.assigned.options import member_options
from curlew_client.assigned.queues import OwnedQueue
from curlew_client.assigned.records import QueueName
from curlew_client.assigned.share import Share
from curlew_client.errors import ConnectionFailed
from curlew_client.wire.http1 import Answer

pytestmark = pytest.mark.anyio

QUEUE = QueueName("orders", 0)
HELD_S = 60.0


class Member:
    """It owns one queue, of a node that takes its time, then locks or is away."""

    def __init__(self, held_s: float) -> None:
        self.now_s = 1_000.0
        self.takes_s = 0.0
        self.is_away = False
        self.asked = 0
        self.held_s = held_s
        share = Share(member_options("till", "orders", in_order=True), "me")
        share.queues[QUEUE] = OwnedQueue(QUEUE, 1, 0)
        node: Any = self
        session: Any = SimpleNamespace(timeout_s=30.0)
        self._share, self._locks = share, QueueLocks(session, node, share)

    async def call(self, *_given: Any, **_named: Any) -> tuple[Answer, str]:
        self.asked += 1
        self.now_s += self.takes_s
        if self.is_away:
            raise ConnectionFailed("it is away", "unknown")
        queues = [QUEUE._asdict()]
        body = json.dumps({"lease_ms": round(self.held_s * 1_000), "locked": queues}).encode()
        return Answer(200, b"", body, keep_alive=True), "http://x"

    async def locked(self) -> list[QueueName]:
        """What is locked when the locks are looked at now."""
        await self._locks.renew(lambda _queue: None)
        return [queue.name for queue in self._share.queues.values() if queue.is_locked]


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Member:
    found = Member(getattr(request, "param", HELD_S))
    monkeypatch.setattr(locks, "monotonic", lambda: found.now_s)
    return found


async def test_a_lock_is_over_when_the_request_that_would_renew_it_took_too_long(
    member: Member,
) -> None:
    assert await member.locked() == [QUEUE]
    member.is_away, member.takes_s = True, 1.0
    member.now_s += RENEW_S
    assert await member.locked() == [QUEUE], "the node keeps it for longer than it was away"
    member.takes_s = HELD_S - RENEW_S
    assert await member.locked() == []


@pytest.mark.parametrize("member", [6.0], indirect=True)
async def test_a_lock_is_renewed_and_over_by_what_the_node_says(member: Member) -> None:
    assert await member.locked() == [QUEUE]
    member.now_s += 1.9
    assert (await member.locked(), member.asked) == ([QUEUE], 1)
    member.now_s += 0.1
    assert (await member.locked(), member.asked) == ([QUEUE], 2)
    member.is_away = True
    member.now_s += 6.0
    assert await member.locked() == []

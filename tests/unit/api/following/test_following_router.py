"""Who answers a pull at a node that leads nothing: its own replica, or a node that leads."""

from types import SimpleNamespace
from typing import cast

import pytest

from app.api.dataplane.pulls.read_choice import ASKS_STALE
from app.api.dataplane.routes.read_operations import PULL_MESSAGES
from app.api.following.followed_pulls import FollowedPulls
from app.api.following.following_router import following_router
from app.api.http.request_context import ASKED, RequestContext
from app.api.relay.envelope import RELAYED, Envelope
from app.api.relay.relay import Relay
from app.domain.errors import CurlewError, NotLeader, ShardUnavailable
from tests.unit.api.relay.exchanges import exchange_of

pytestmark = pytest.mark.anyio

PULL = "/v1/topics/orders/queues/0/messages"
UNREACHED = ShardUnavailable("the node that leads shard 's' cannot be reached")
ELSEWHERE = NotLeader("queue 0 of topic 'orders'", "s")


class Replica:
    """The one of the node: it has what is asked for."""

    def __init__(self, *, hears_leader: bool, is_in_sync: bool) -> None:
        self.hears_leader = hears_leader
        self._is_in_sync = is_in_sync
        self.answers: list[str] = []

    async def answered(
        self, exchange: RequestContext, _topic: str, _queue: str, *, is_stale: bool
    ) -> bool:
        if not self._is_in_sync or (not is_stale and b"any" not in exchange.query):
            return False
        self.answers.append("stale" if is_stale else "any")
        return True


async def answer_of(
    *,
    fails: CurlewError | None = None,
    query: bytes = b"offset=0",
    asked: str | None = None,
    is_whole: bool = False,
    hears_leader: bool = False,
    is_in_sync: bool = True,
) -> list[str]:
    """Who has answered. `asked` is what another node asks for; None: a client asks. `fails` is what
    becomes of the request when it is carried to those who lead."""
    answers: list[str] = []

    async def carry_whole(_exchange: RequestContext, *, sends: bool) -> None:
        assert not sends
        if fails is not None:
            raise fails
        answers.append("leader")

    async def answered_by_replica(_exchange: RequestContext, shard: str) -> bool:
        answers.append(f"stale, of another replica of {shard}")
        return True

    replica = Replica(hears_leader=hears_leader, is_in_sync=is_in_sync)
    exchange, _ = exchange_of("GET", PULL, query)
    if asked is not None:
        exchange.scope[RELAYED] = Envelope(*(1, 1, None, None, None), asks=asked, is_whole=is_whole)
        exchange.scope[ASKED] = asked
    relay = SimpleNamespace(
        carry_whole=carry_whole, answered_by_replica=answered_by_replica, own_shard="s"
    )
    router = following_router(cast("Relay", relay), cast("FollowedPulls", replica))
    found = router.find(exchange.scope)
    assert found is not None
    operation, handler, names = found
    assert operation is PULL_MESSAGES
    await handler(exchange, *names)
    return answers + replica.answers


async def test_a_client_gets_what_the_leader_has_and_a_replica_where_nobody_leads() -> None:
    assert await answer_of() == ["leader"]
    assert await answer_of(query=b"offset=0&read=any") == ["any"]
    assert await answer_of(fails=UNREACHED) == ["stale"]
    assert await answer_of(fails=ELSEWHERE) == ["stale"]
    elsewhere = ["stale, of another replica of s"]
    assert await answer_of(fails=UNREACHED, is_in_sync=False) == elsewhere
    with pytest.raises(NotLeader):
        await answer_of(fails=ELSEWHERE, hears_leader=True)


@pytest.mark.parametrize("hears_leader", [True, False])
@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("fails", [UNREACHED, ELSEWHERE])
async def test_who_relays_a_pull_is_sent_to_the_next_leader(
    fails: CurlewError, *, is_whole: bool, hears_leader: bool
) -> None:
    """Behind a hand-over the other node does not know yet who leads, and this one does not, either:
    the metadata does."""
    with pytest.raises(NotLeader):
        await answer_of(asked="", fails=fails, is_whole=is_whole, hears_leader=hears_leader)


async def test_who_asks_for_what_a_replica_has_gets_that() -> None:
    assert await answer_of(asked=ASKS_STALE) == ["stale"]
    assert await answer_of(asked="", query=b"offset=0&read=any") == ["any"]

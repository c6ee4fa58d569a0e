"""One answer of those of several shards, of which some refuse or cannot be asked."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from app.api.aims.across import InOrder
from app.api.http.request_context import RequestContext
from app.api.operations.operation import Operation
from app.api.relay.calls import CallAnswer, CallRequest
from app.api.relay.over_shards import OverShards
from app.api.relay.relay import Relay
from app.domain.limits import Limits
from tests.unit.api.relay.exchanges import exchange_of

pytestmark = pytest.mark.anyio

BUSY = CallAnswer(503, [], b'{"code":"SYSTEM_BUSY"}')
TOO_MANY = CallAnswer(429, [], b'{"code":"TOO_MANY_REQUESTS"}')
FAULTY = CallAnswer(400, [], b'{"code":"INVALID_REQUEST"}')


class Shards:
    """A relay to shards that answer so."""

    def __init__(self, answers: dict[str, CallAnswer]) -> None:
        self.limits = Limits()
        self.asked: list[str] = []
        self.places = SimpleNamespace(
            topic=lambda _: None,
            of_queue=lambda *_: None,
            metadata=SimpleNamespace(shard="a"),
        )
        self._answers = answers

    def spans(self, _exchange: RequestContext) -> bool:
        return True

    def shards_from_here(self) -> list[str]:
        return list(self._answers)

    async def call(
        self,
        _exchange: RequestContext,
        shard: str,
        _request: CallRequest,
        *,
        seconds: float,
        sends: bool = False,
    ) -> CallAnswer:
        assert seconds
        assert not sends
        self.asked.append(shard)
        return self._answers[shard]


def of(document: dict[str, Any]) -> CallAnswer:
    return CallAnswer(200, [], msgspec.json.encode(document))


def page(*rows: str) -> CallAnswer:
    return of({"messages": rows, "next_page_token": None})


async def answered(shards: Shards, across: object, query: bytes = b"") -> tuple[int, Any]:
    exchange, events = exchange_of("GET", "/v1/topics/orders/scheduled", query)
    over = OverShards(cast("Relay", shards))
    operation = cast("Operation", SimpleNamespace(across=across))
    assert await over.answered(exchange, operation, ())
    return events[0]["status"], msgspec.json.decode(events[0]["body"])


@pytest.mark.parametrize("refusal", [BUSY, TOO_MANY], ids=["busy", "too many"])
async def test_a_shard_that_refuses_hides_none_behind_it(refusal: CallAnswer) -> None:
    shards = Shards({"a": page("a1"), "b": refusal, "c": page("c1")})
    status, found = await answered(shards, InOrder("messages"))
    assert (status, found["messages"], found["partial"]) == (200, ["a1", "c1"], ["b"])


async def test_the_first_shard_may_be_the_one_that_is_busy() -> None:
    shards = Shards({"a": BUSY, "b": page("b1"), "c": page("c1")})
    status, found = await answered(shards, InOrder("messages"))
    assert (status, found["messages"], found["partial"]) == (200, ["b1", "c1"], ["a"])


async def test_what_is_not_well_is_asked_of_one_shard() -> None:
    shards = Shards(dict.fromkeys("abc", FAULTY))
    assert (await answered(shards, InOrder("messages")))[0] == 400
    assert shards.asked == ["a"]

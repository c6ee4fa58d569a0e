"""Changes that each shard makes: what is asked of the shards, and which answer is that of all."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from app.api.aims.across import Closed, InEach
from app.api.http.request_context import ASKED, RequestContext
from app.api.operations.asked_work import FirstUseAsked, first_use_asked, first_use_of
from app.api.operations.operation import Operation
from app.api.relay.calls import CallAnswer, CallRequest
from app.api.relay.changes import CHANGE_SECONDS
from app.api.relay.over_shards import OverShards
from app.api.relay.relay import Relay
from app.domain.consumers.consumption import SubscriptionPair
from app.domain.limits import Limits
from tests.unit.api.relay.exchanges import exchange_of

pytestmark = pytest.mark.anyio

OK = CallAnswer(200, [], b"{}")
SEAL: dict[str, Any] = {"producer": "loader", "epoch": 0, "messages": 2}
EACH = InEach(lambda documents: {"of": sorted(documents)}, tries_first=True)
RESET = EACH._replace(topics="topics")


class Shards:
    """A relay to two shards, which answer so."""

    def __init__(self, answer: Callable[[str, bool], CallAnswer]) -> None:
        """`answer` is given the shard, and whether it is asked for a dry run."""
        self.limits = Limits()
        self.asked: list[tuple[str, bool, dict[str, Any]]] = []
        self.asks: list[str] = []
        """What is told beyond what the client says, when it is done."""
        self.places = SimpleNamespace()
        self.seconds: set[float] = set()
        self.body: dict[str, Any] = {}
        self._answer = answer

    def spans(self, _exchange: RequestContext) -> bool:
        return True

    def shards_from_here(self) -> list[str]:
        return ["a", "b"]

    async def body_of(self, _exchange: RequestContext) -> bytes:
        return msgspec.json.encode(self.body)

    async def call(
        self,
        _exchange: RequestContext,
        shard: str,
        request: CallRequest,
        *,
        seconds: float,
        sends: bool = False,
    ) -> CallAnswer:
        assert not sends
        body = msgspec.json.decode(request.body, type=dict[str, Any])
        tries = b"dry_run=true" in request.target or body.get("dry_run") is True
        self.asked.append((shard, tries, body))
        self.seconds.add(seconds)
        if not tries:
            self.asks.append(request.asks)
        return self._answer(shard, tries)

    async def change(
        self, across: object, query: bytes = b"", *names: str, **body: object
    ) -> tuple[int, Any] | None:
        """The answer; None when it is left to the handler. Nothing is decided before."""
        self.body = body
        exchange, events = exchange_of("POST", "/v1/what:change", query)
        exchange.is_decided = False
        operation = cast("Operation", SimpleNamespace(across=across))
        if not await OverShards(cast("Relay", self)).answered(exchange, operation, names):
            return None
        return events[0]["status"], msgspec.json.decode(events[0]["body"])


def stored(count: int) -> Callable[[str, bool], CallAnswer]:
    """Each shard has so many messages of the epoch."""
    few = CallAnswer(409, [], msgspec.json.encode({"stored": count}))
    closed = CallAnswer(200, [], b'{"sealed_epoch":0}')
    return lambda _, tries: few if tries else closed


def dry_run(flag: bool) -> bytes:
    return b"dry_run=true" if flag else b"dry_run=false"


def empty(_shard: str, _tries: bool) -> CallAnswer:
    return CallAnswer(200, [], b'{"offsets":[]}')


@pytest.mark.parametrize("query", [b"", b"dry_run=true", b"dry_run=1"])
async def test_an_epoch_is_closed_where_callers_show_keys(query: bytes) -> None:
    shards = Shards(stored(1))
    tries = query != b""
    closed = {"producer": "loader", "sealed_epoch": 0, "dry_run": tries}
    assert await shards.change(Closed(), query, **SEAL) == (200, closed)
    assert all(dry for _, dry, _ in shards.asked) == tries


@pytest.mark.parametrize("wrong", [{"messages": -1}, {"messages": 2**63}, {"epoch": -1}])
async def test_counts_that_no_node_takes_are_left_to_the_handler(wrong: dict[str, int]) -> None:
    shards = Shards(stored(1))
    assert await shards.change(Closed(), **{**SEAL, **wrong}) is None
    assert shards.asked == []


@pytest.mark.parametrize("across", [EACH, Closed()], ids=["change", "epoch"])
@pytest.mark.parametrize("member", [True, False])
async def test_dry_run_in_two_places_is_of_all_shards_when_they_agree(
    across: object, member: bool
) -> None:
    shards = Shards(stored(1) if across == Closed() else lambda *_: OK)
    found = await shards.change(across, dry_run(member), **SEAL, dry_run=member)
    assert found is not None
    assert found[0] == 200
    assert {shard for shard, dry, _ in shards.asked if dry is member} == {"a", "b"}
    before = len(shards.asked)
    assert await shards.change(across, dry_run(not member), **SEAL, dry_run=member) is None
    assert len(shards.asked) == before


async def test_a_trial_may_take_as_long_as_the_change() -> None:
    shards = Shards(lambda *_: OK)
    assert await shards.change(EACH, x=1) == (200, {"of": ["a", "b"]})
    assert shards.seconds == {CHANGE_SECONDS}


async def test_a_reset_of_all_topics_names_none_where_there_are_none() -> None:
    shards = Shards(empty)
    assert await shards.change(RESET, to="latest") == (200, {"of": ["a", "b"]})
    assert [body for _, _, body in shards.asked] == [{"to": "latest"}] * 4


async def test_topics_that_are_null_are_those_of_all_shards() -> None:
    rows = CallAnswer(200, [], b'{"offsets":[{"topic":"orders"}]}')
    shards = Shards(lambda *_: rows)
    assert await shards.change(RESET, to="latest", topics=None) == (200, {"of": ["a", "b"]})
    assert [body["topics"] for _, tries, body in shards.asked if not tries] == [["orders"]] * 2


@pytest.mark.parametrize("first", ["a", "b"])
async def test_what_a_shard_refuses_is_told_before_what_another_has_not(first: str) -> None:
    absent = CallAnswer(404, [], b'{"code":"SNAPSHOT_NOT_FOUND"}')
    refused = CallAnswer(409, [], b'{"code":"STATE_CONFLICT"}')
    shards = Shards(lambda shard, _: absent if shard == first else refused)
    found = await shards.change(EACH._replace(tries_first=False), x=1)
    assert found == (409, {"code": "STATE_CONFLICT"})


@pytest.mark.parametrize(
    ("group", "topic", "asks"),
    [
        *(("billing", "orders", "17"), ("audit", "orders", "none")),
        *(("nobody", "orders", "none"), ("billing", "lone", "none"), ("billing", "no", "none")),
    ],
)
async def test_all_shards_forget_the_first_use_that_was_there_before(
    group: str, topic: str, asks: str
) -> None:
    async def find(pair: SubscriptionPair) -> int | None:
        return 17 if pair == SubscriptionPair("billing", "orders", 1, 2) else None

    views = [("orders", ("a", "b")), ("lone", ())]
    snapshot = SimpleNamespace(
        groups={name: SimpleNamespace(generation=1) for name in ("billing", "audit")},
        topics={name: SimpleNamespace(generation=2, shards=shards) for name, shards in views},
    )
    shards = Shards(lambda *_: OK)
    metadata = SimpleNamespace(snapshot=snapshot, first_uses=SimpleNamespace(find=find))
    shards.places = SimpleNamespace(metadata=metadata)
    across = EACH._replace(forgets_first_use=True)
    assert await shards.change(across, b"", group, topic, x=1) is not None
    assert shards.asks == [asks] * 2


@pytest.mark.parametrize("at_ms", [17, None])
def test_what_is_asked_of_a_first_use_is_understood(at_ms: int | None) -> None:
    assert first_use_of({ASKED: first_use_asked(at_ms)}) == FirstUseAsked(at_ms)
    assert first_use_of({ASKED: ""}) is None
    assert first_use_of({}) is None

"""One answer of those of several shards, of which some refuse or cannot be asked."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from app.api.aims.across import Document, Documents, InOrder, Owner, Split, Together
from app.api.http.request_context import RequestContext
from app.api.operations.operation import Operation
from app.api.relay.calls import CallAnswer, CallRequest
from app.api.relay.fan_out import NEWS_SECONDS, SILENT_SECONDS, News
from app.api.relay.over_shards import OverShards
from app.api.relay.relay import Relay
from app.api.relay.unanswered import moved
from app.domain.errors import ShardUnavailable
from app.domain.limits import Limits
from tests.support.virtual_time import in_virtual_time
from tests.unit.api.relay.exchanges import exchange_of

pytestmark = pytest.mark.anyio

BUSY = CallAnswer(503, [], b'{"code":"SYSTEM_BUSY"}')
TOO_MANY = CallAnswer(429, [], b'{"code":"TOO_MANY_REQUESTS"}')
NOWHERE = CallAnswer(404, [], b'{"code":"TOPIC_NOT_FOUND"}')
FAULTY = CallAnswer(400, [], b'{"code":"INVALID_REQUEST"}')


class Shards:
    """A relay to shards that answer so."""

    def __init__(
        self,
        answers: dict[str, CallAnswer],
        before: dict[str, CallAnswer | ShardUnavailable] | None = None,
    ) -> None:
        """`before`: what some answer until the node has looked what others have changed."""
        self.limits = Limits()
        self.asked: list[str] = []
        self.looked = 0
        self._before = before or {}
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
        found = self._answers[shard] if self.looked else self._before.get(shard)
        if isinstance(found, ShardUnavailable):
            raise found
        return found or self._answers[shard]

    async def refresh(self) -> None:
        self.looked += 1


def of(document: dict[str, Any]) -> CallAnswer:
    return CallAnswer(200, [], msgspec.json.encode(document))


def page(*rows: str) -> CallAnswer:
    return of({"messages": rows, "next_page_token": None})


def _first(documents: Documents, _owner: Owner) -> Document:
    return {**next(iter(documents.values()))}


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


@pytest.mark.parametrize("across", [InOrder("messages"), Together(_first)], ids=["order", "all"])
async def test_a_leader_that_has_moved_is_looked_for_and_asked(across: object) -> None:
    pages = {shard: page(f"{shard}1") for shard in "abc"}
    shards = Shards(pages, {"b": moved("b")})
    status, found = await answered(shards, across)
    assert (status, "partial" in found, shards.asked.count("b")) == (200, False, 2)
    if isinstance(across, InOrder):
        assert found["messages"] == ["a1", "b1", "c1"]
    away = ShardUnavailable("it cannot be reached")  # nothing is known of another leader
    shards = Shards(pages, {"b": away})
    assert (await answered(shards, across))[1]["partial"] == ["b"]
    assert (shards.looked, shards.asked.count("b")) == (0, 1)


async def test_a_list_of_a_topic_that_was_made_a_moment_ago_has_all_of_it() -> None:
    shards = Shards({shard: page(f"{shard}1") for shard in "abc"}, {"a": NOWHERE, "b": NOWHERE})
    assert (await answered(shards, InOrder("messages")))[1]["messages"] == ["a1", "b1", "c1"]
    assert (shards.looked, shards.asked) == (1, ["a", "a", "b", "c"])
    shards = Shards(dict.fromkeys("abc", NOWHERE))
    assert (await answered(shards, InOrder("messages")))[0] == 404
    assert (shards.looked, shards.asked) == (1, ["a", "a", "b", "c"])


async def test_what_is_not_well_is_asked_of_one_shard() -> None:
    shards = Shards(dict.fromkeys("abc", FAULTY))
    assert (await answered(shards, InOrder("messages")))[0] == 400
    assert shards.asked == ["a"]


class Told:
    """Shards that are told of news; those that are silent take the connection, and say nothing."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.silent = {"b"}
        self.silence_s = 60.0

    def is_up(self, shard: str) -> bool:
        return shard != "c"

    async def refresh(self) -> None:
        raise AssertionError("no leader has moved")

    async def call(
        self,
        _exchange: RequestContext,
        shard: str,
        _request: CallRequest,
        *,
        seconds: float,
        sends: bool = False,
    ) -> CallAnswer:
        del sends
        self.told.append(shard)
        if shard in self.silent:
            await asyncio.sleep(min(seconds, self.silence_s))
            if seconds < self.silence_s:
                raise ShardUnavailable("it is silent")
        return of({})


async def change(told: Told, news: News) -> float:
    """How long it takes to tell of one."""
    exchange, _ = exchange_of("PUT", "/v1/topics/orders")
    since_s = asyncio.get_running_loop().time()
    await news.tell(told, exchange, ["b", "c", "d"])
    return asyncio.get_running_loop().time() - since_s


def test_a_node_that_says_nothing_holds_up_no_change_for_long() -> None:
    async def took_s() -> list[float]:
        found = [await change(told, news) for _ in range(3)]
        told.silent.clear()
        found.append(await change(told, news))
        told.silent.add("d")
        return [*found, await change(told, news), await change(told, news)]

    told, news = Told(), News()
    found = in_virtual_time(took_s())
    assert found == pytest.approx(
        [NEWS_SECONDS, SILENT_SECONDS, SILENT_SECONDS, 0, NEWS_SECONDS, SILENT_SECONDS]
    ), "it is waited for once, and again when it has answered meanwhile"
    assert "c" not in told.told, "of c it is known that it does not answer"
    assert told.told == ["b", "d"] * 6, "each change is told to all others"


def test_a_node_that_is_slow_is_waited_for_again_once_it_has_answered_in_time() -> None:
    async def took_s() -> list[float]:
        found = [await change(told, news)]
        told.silence_s = slow_s = 2 * SILENT_SECONDS
        for _ in range(2):
            found.append(await change(told, news))
            await asyncio.sleep(slow_s)
        return found

    told, news = Told(), News()
    found = in_virtual_time(took_s())
    assert found == pytest.approx([NEWS_SECONDS, SILENT_SECONDS, 2 * SILENT_SECONDS])


@pytest.mark.parametrize(("padding", "is_here"), [(10, True), (1_000_000, False)])
async def test_a_large_body_is_looked_into_by_a_thread(padding: int, is_here: bool) -> None:
    threads: list[bool] = []

    def shard_of(*_: object) -> str:
        threads.append(threading.current_thread() is threading.main_thread())
        return "a"

    async def body_of(_exchange: RequestContext) -> bytes:
        return b'{"messages":[{"queue_id":0,"text":"%b"}]}' % (b"x" * padding)

    shards = Shards({"a": of({})})
    shards.places = SimpleNamespace(
        topic=lambda _: None, of_queue=shard_of, metadata=SimpleNamespace(shard="a")
    )
    shards.body_of = body_of  # type: ignore[attr-defined]
    exchange, _ = exchange_of("POST", "/v1/topics/orders/messages:batch")
    exchange.headers[b"content-type"] = b"application/json"
    operation = cast("Operation", SimpleNamespace(across=Split(("messages",))))
    assert not await OverShards(cast("Relay", shards)).answered(exchange, operation, ("orders",))
    assert threads == [is_here]

"""What a receive of several shards does when its client leaves, and when a shard holds it up."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from app.api.aims.across import InTurn
from app.api.dataplane.receive_parts import SEEN
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import WHOLE_ANSWER, ClientGone, Event, RequestContext
from app.api.operations.operation import Operation
from app.api.relay.calls import CallAnswer, CallRequest
from app.api.relay.consuming import backlogs, receives
from app.api.relay.over_shards import OverShards
from app.api.relay.relay import Relay
from app.domain.errors import ShardUnavailable
from app.domain.limits import Limits
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

SOON_S = 0.01
PATH = "/v1/topics/orders/groups/billing/messages:receive"


class Shards:
    """A relay to three shards, which answer with what they have; None: they cannot be asked."""

    def __init__(self, **messages: list[str] | None) -> None:
        self.limits = Limits()
        self.messages = messages
        self.left: dict[str, int] = {}
        """Messages that stay."""
        self.silent: set[str] = set()
        """Those that do not answer, until `wakes` is set."""
        self.slow: set[str] = set()
        """Those whose looks take until `wakes` is set; all else they answer."""
        self.earlier: dict[str, list[str]] = {}
        """What the same attempt was given before."""
        self.cancelled: set[str] = set()
        """Those that are cut off when `wakes` is set."""
        self.wakes = asyncio.Event()
        self.full: set[str] = set()
        """Those that refuse more to the caller."""
        self.asked: list[tuple[str, CallRequest]] = []
        self.memory = MemoryBudget(Limits())
        names = sorted(messages)
        topic = SimpleNamespace(queues=len(names), shard_of=lambda at: names[at])
        self.places = SimpleNamespace(
            topic=lambda _: topic, metadata=SimpleNamespace(shard=names[0])
        )

    def spans(self, _exchange: RequestContext) -> bool:
        return True

    def is_up(self, _shard: str) -> bool:
        return True

    async def body_of(self, _exchange: RequestContext) -> bytes:
        return b""

    async def refresh(self) -> None:
        raise AssertionError("no leader has moved")

    async def call(
        self,
        exchange: RequestContext,
        shard: str,
        request: CallRequest,
        *,
        seconds: float,
        sends: bool = False,
    ) -> CallAnswer:
        assert seconds
        assert not sends
        self.asked.append((shard, request))
        found = self.messages[shard]
        if found is None:
            raise ShardUnavailable("it sleeps")
        if shard in self.full:
            return CallAnswer(429, [], b'{"code":"TOO_MANY_REQUESTS"}')
        if shard in self.silent or (shard in self.slow and request.asks == "there"):
            try:
                async with asyncio.timeout(seconds):
                    await self.wakes.wait()
            except TimeoutError:
                raise ShardUnavailable("it is silent") from None
        exchange.hold(10)
        if shard in self.cancelled:
            self.cancelled.remove(shard)
            raise asyncio.CancelledError
        left = self.left.get(shard, 0)
        if request.asks in {"nothing", "count"}:
            found = []
        if request.asks == "earlier":
            found, left = self.earlier.get(shard, []), 0
        document = {"messages": [{"receipt_handle": each} for each in found], "backlog": left}
        seen = (SEEN, b"1.2.3 %d %d" % (left, len(found)))
        return CallAnswer(200, [seen], msgspec.json.encode(document))


async def answered(
    over: OverShards,
    shards: Shards,
    query: bytes = b"",
    *,
    is_gone: bool = False,
    group: str = "shop%billing",
) -> Any:
    events: list[Event] = []

    async def send(event: Event) -> None:
        if is_gone:
            raise ClientGone
        events.append(event)

    async def receive() -> Event:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    scope = {
        "method": "POST",
        "path": PATH,
        "query_string": query,
        "headers": [],
        "extensions": {WHOLE_ANSWER: {}},
    }
    exchange = RequestContext(scope, receive, send, b"id", shards.memory)
    exchange.namespace = "shop"
    operation = cast("Operation", SimpleNamespace(across=InTurn()))
    try:
        assert await over.answered(exchange, operation, ("shop%orders", group))
    finally:
        exchange.let_go()
    return msgspec.json.decode(events[0]["body"])


async def test_what_a_client_that_left_was_given_is_released() -> None:
    shards = Shards(a=[], b=["h1", "h2"])
    with pytest.raises(ClientGone):
        await answered(OverShards(cast("Relay", shards)), shards, is_gone=True)
    await until(lambda: len(shards.asked) == 3)
    shard, request = shards.asked[-1]
    path = PATH.replace(":receive", ":settle").encode()
    assert (shard, request.method, request.target) == ("b", "POST", path + b"?namespace=shop")
    assert msgspec.json.decode(request.body) == {"releases": ["h1", "h2"]}
    await until(lambda: shards.memory.body_bytes == 0)


async def test_a_shard_that_holds_up_the_others_is_passed_by_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receives, "PART_SECONDS", SOON_S)
    monkeypatch.setattr(backlogs, "PASSED_BY_SECONDS", 3600)
    shards = Shards(a=[], b=["late"], c=["h1"])
    shards.silent.add("b")
    over = OverShards(cast("Relay", shards))
    for _ in range(2):
        found = await answered(over, shards)
        assert found["messages"] == [{"receipt_handle": "h1"}]
        assert found["partial"] == ["b"]
    # It is looked at no more, and what it gives when it answers after all is released.
    looks = [shard for shard, request in shards.asked if request.asks == "there"]
    assert looks == ["a", "b", "c", "a", "c"]
    shards.wakes.set()
    await until(lambda: len(shards.asked) == 7)
    shard, request = shards.asked[-1]
    assert (shard, msgspec.json.decode(request.body)) == ("b", {"releases": ["late"]})
    await until(lambda: shards.memory.body_bytes == 0)
    found = await answered(over, shards)
    assert found == {"messages": [{"receipt_handle": "late"}], "backlog": 0}


async def left_alone(over: OverShards, shards: Shards, *, silent: str) -> None:
    """A receive has found a shard silent, which has all the time that it wants from now on."""
    shards.silent.add(silent)
    assert (await answered(over, shards))["partial"] == [silent]
    shards.silent.clear()


async def test_an_earlier_answer_is_had_of_a_shard_that_is_passed_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receives, "PART_SECONDS", SOON_S)
    monkeypatch.setattr(backlogs, "PASSED_BY_SECONDS", 3600)
    shards = Shards(a=[], b=[])
    over = OverShards(cast("Relay", shards))
    await left_alone(over, shards, silent="b")
    shards.messages["a"] = ["another"]
    shards.earlier["b"] = ["h1"]
    found = await answered(over, shards, b"attempt_id=x")
    assert found == {"messages": [{"receipt_handle": "h1"}], "backlog": 0}
    del shards.earlier["b"]
    shards.messages = {"a": [], "b": ["h2"]}  # it has answered, and so is looked at
    assert (await answered(over, shards))["messages"] == [{"receipt_handle": "h2"}]


async def test_a_shard_that_is_silent_still_is_asked_for_an_earlier_answer_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receives, "PART_SECONDS", SOON_S)
    monkeypatch.setattr(receives, "WAIT_SECONDS", SOON_S)
    monkeypatch.setattr(backlogs, "PASSED_BY_SECONDS", 3600)
    shards = Shards(a=[], b=[])
    over = OverShards(cast("Relay", shards))
    await left_alone(over, shards, silent="b")
    monkeypatch.setattr(receives, "PART_SECONDS", 3600)
    monkeypatch.setattr(receives, "SLOW_SECONDS", 3600)
    shards.silent.add("b")
    shards.messages["a"] = ["h1"]
    found = await answered(over, shards, b"attempt_id=x")
    assert found["messages"] == [{"receipt_handle": "h1"}]
    assert found["partial"] == ["b"]
    assert [shard for shard, request in shards.asked if request.asks == "there"][-1] == "a"


async def test_a_slow_look_of_one_group_hides_the_shard_from_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receives, "PART_SECONDS", SOON_S)
    monkeypatch.setattr(backlogs, "PASSED_BY_SECONDS", 3600)
    shards = Shards(a=[], b=["h1"])
    shards.slow.add("b")
    over = OverShards(cast("Relay", shards))
    assert (await answered(over, shards))["partial"] == ["b"]
    shards.slow.clear()
    found = await answered(over, shards, group="shop%other")
    assert found["messages"] == [{"receipt_handle": "h1"}]
    shards.wakes.set()


async def test_a_shard_that_hangs_is_probed_for_all_groups_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receives, "PART_SECONDS", SOON_S)
    monkeypatch.setattr(backlogs, "PASSED_BY_SECONDS", 0)
    shards = Shards(a=[], b=[])
    shards.silent.add("b")
    over = OverShards(cast("Relay", shards))
    assert (await answered(over, shards))["partial"] == ["b"]
    monkeypatch.setattr(backlogs, "PASSED_BY_SECONDS", 3600)
    for number in range(3):
        await answered(over, shards, group=f"shop%g{number}")
    shards.wakes.set()
    await until(lambda: shards.memory.body_bytes == 0)
    asked = [request.asks for shard, request in shards.asked if shard == "b"]
    assert asked == ["there", "count", "count"]  # as it was left, and when that was long ago


async def test_a_look_that_was_left_may_be_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receives, "PART_SECONDS", SOON_S)
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
    shards = Shards(a=[], b=["late"])
    shards.silent.add("b")
    shards.cancelled.add("b")
    over = OverShards(cast("Relay", shards))
    assert (await answered(over, shards))["partial"] == ["b"]
    shards.wakes.set()
    await until(lambda: not shards.cancelled)
    await until(lambda: shards.memory.body_bytes == 0)
    assert troubles == []


async def test_what_shards_have_said_is_kept_for_as_long_as_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shards = Shards(a=[])
    found = backlogs.Backlogs(shards, backlogs.HeldUp())
    monkeypatch.setattr(backlogs, "SAID_MAX", 3)
    for number in range(5):
        found.note((f"g{number}",), "a", number)
    assert [found.told((f"g{number}",), "a") is not None for number in range(5)] == [
        *(False, False),
        *(True, True, True),
    ]
    monkeypatch.setattr(backlogs, "KEPT_SECONDS", -1)
    found.note(("g5",), "a", 5)
    assert found.count == 0


async def test_a_shard_that_is_silent_still_is_asked_behind_the_answers_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receives, "WAIT_SECONDS", SOON_S)
    monkeypatch.setattr(backlogs, "PASSED_BY_SECONDS", 0)
    shards = Shards(a=["h1"], b=[])
    shards.silent.add("b")
    shards.left["b"] = 3
    over = OverShards(cast("Relay", shards))
    silent = {"messages": [{"receipt_handle": "h1"}], "backlog": 0, "partial": ["b"]}
    assert await answered(over, shards) == silent
    monkeypatch.setattr(receives, "WAIT_SECONDS", 3600)
    for _ in range(3):
        assert await answered(over, shards) == silent
    assert [shard for shard, _ in shards.asked].count("b") == 1
    shards.wakes.set()
    found = [await answered(over, shards) for _ in range(9)][-1]
    assert found == {"messages": [{"receipt_handle": "h1"}], "backlog": 3}


async def test_what_a_shard_has_said_counts_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlogs, "KEPT_SECONDS", 3600)
    monkeypatch.setattr(backlogs, "ASKED_AGAIN_SECONDS", 3600)
    monkeypatch.setattr(receives, "WAIT_SECONDS", 3600)
    shards = Shards(a=["h1"], b=["h2"], c=["h3"])
    shards.left = {"a": 1, "b": 2, "c": 4}
    over = OverShards(cast("Relay", shards))
    first = {"messages": [{"receipt_handle": "h1"}], "backlog": 7}
    assert await answered(over, shards) == first
    shards.silent = {"a", "c"}
    shards.left["b"] = 1
    second = {"messages": [{"receipt_handle": "h2"}], "backlog": 6}
    assert await answered(over, shards) == second
    assert [shard for shard, _ in shards.asked] == ["a", "b", "c", "b"]
    # When it is older it is asked anew, and the answer does not wait for that.
    monkeypatch.setattr(backlogs, "ASKED_AGAIN_SECONDS", -1)
    shards.silent = {"a", "b"}
    third = {"messages": [{"receipt_handle": "h3"}], "backlog": 6}
    assert await answered(over, shards) == third
    await until(lambda: len(shards.asked) == 7)
    asked = [(shard, request.asks) for shard, request in shards.asked[5:]]
    assert asked == [("a", "count"), ("b", "count")]
    shards.left["a"] = 0
    shards.wakes.set()
    await until(lambda: shards.memory.body_bytes == 0)
    # When it is too old, the answer waits.
    monkeypatch.setattr(backlogs, "KEPT_SECONDS", -1)
    shards.messages["a"] = []
    assert (await answered(over, shards))["backlog"] == 5


async def test_a_shard_in_which_the_group_has_not_begun_is_asked_what_is_left() -> None:
    """Asked for an earlier answer alone it counts nothing, and would say that nothing is left."""
    shards = Shards(a=["h1"], b=[])
    shards.left = {"b": 7}
    over = OverShards(cast("Relay", shards))
    for attempt in (b"x", b"y"):
        found = await answered(over, shards, b"attempt_id=" + attempt)
        assert (found["messages"], found["backlog"]) == ([{"receipt_handle": "h1"}], 7)


async def test_receives_at_once_ask_a_shard_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receives, "WAIT_SECONDS", 3600)
    shards = Shards(a=["h1"], b=[])
    shards.silent.add("b")
    over = OverShards(cast("Relay", shards))
    waiting = [asyncio.ensure_future(answered(over, shards)) for _ in range(3)]
    await until(lambda: len(shards.asked) == 4)
    waiting.pop(0).cancel()  # who has asked leaves
    shards.left["b"] = 2
    shards.wakes.set()
    assert [each["backlog"] for each in await asyncio.gather(*waiting)] == [2, 2]
    assert [shard for shard, _ in shards.asked].count("b") == 1


async def test_messages_come_with_the_shards_that_could_not_be_asked() -> None:
    shards = Shards(a=None, b=["h1"])
    found = await answered(OverShards(cast("Relay", shards)), shards)
    assert found["messages"] == [{"receipt_handle": "h1"}]
    assert found["partial"] == ["a"]


async def test_when_no_shard_can_be_asked_nobody_waits() -> None:
    shards = Shards(a=None, b=None)
    with pytest.raises(ShardUnavailable, match="no shard answers"):
        await answered(OverShards(cast("Relay", shards)), shards, b"wait=20")


@pytest.mark.parametrize("query", [b"", b"wait=20"])
async def test_a_shard_that_gives_the_caller_no_more_hides_none_behind_it(query: bytes) -> None:
    shards = Shards(a=[], b=["h1"], c=[])
    shards.full.add("a")
    over = OverShards(cast("Relay", shards))
    found = await answered(over, shards, query)
    assert found == {"messages": [{"receipt_handle": "h1"}], "backlog": 0}
    shards.messages["b"] = []
    assert await answered(over, shards, query) == {"code": "TOO_MANY_REQUESTS"}
    assert [shard for shard, _ in shards.asked] == ["a", "b", "c", "c", "a", "b"]


async def test_what_is_left_is_counted_in_all_shards() -> None:
    shards = Shards(a=[], b=["h1"], c=["h2"])
    shards.left = {"a": 1, "b": 2, "c": 3}  # in a others of a filter
    found = await answered(OverShards(cast("Relay", shards)), shards)
    assert found == {"messages": [{"receipt_handle": "h1"}], "backlog": 6}
    assert [shard for shard, _ in shards.asked] == ["a", "b", "c"]


async def test_a_shard_that_does_not_count_keeps_no_message_from_anybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receives, "WAIT_SECONDS", SOON_S)
    shards = Shards(a=["h1"], b=[], c=None)
    shards.silent.add("b")
    shards.left = {"a": 2}
    found = await answered(OverShards(cast("Relay", shards)), shards)
    messages = [{"receipt_handle": "h1"}]
    assert found == {"messages": messages, "backlog": 2, "partial": ["b", "c"]}
    shards.wakes.set()
    await until(lambda: shards.memory.body_bytes == 0)

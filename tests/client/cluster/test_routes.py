"""Where a client sends in a cluster of several shards: straight to the leaders, and round what is
gone. By rules without I/O, against scripted nodes, and against three nodes of three shards."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from curlew_client import AsyncClient, Client, CurlewError, Message, SendResult
from curlew_client.aio.pool import AsyncPool
from curlew_client.options import believed, node_of, nodes_of
from curlew_client.producing.messages import Message as Plain
from curlew_client.producing.messages import SendRequest, batch_request, send_request
from curlew_client.producing.routes import ASIDE_S, Routes, java_hash

from app.api.relay.relay import Relay
from app.domain.message import java_hash as nodes_hash
from app.domain.message import queue_among
from tests.support.clients.scripted_node import (
    ScriptedNode,
    Step,
    answered,
    broken,
    refused,
    scripted,
    stored,
)
from tests.support.cluster.three_nodes import ServedNode

URLS = ("http://a:1", "http://b:1", "http://c:1")
VALID_MS = 30_000


def document(*leaders: str | None, shards: str = "abc", valid_ms: int = VALID_MS) -> dict[str, Any]:
    """A route with one queue for each leader."""
    rows = [
        {"queue_id": number, "shard": shards[number % len(shards)], "perm": "rw", "leader": leader}
        for number, leader in enumerate(leaders)
    ]
    return {"topic": "orders", "valid_ms": valid_ms, "queues": rows}


def routes(*leaders: str | None, shards: str = "abc", is_one_given: bool = True) -> Routes:
    found = Routes(
        lambda url: believed(url, [node_of("http://z:1")]),
        lambda url: 0.0,
        is_on=True,
        is_one_given=is_one_given,
    )
    assert found.asks("orders", 0) is None, "nothing is asked for before the first send"
    assert found.asks("orders", 0) == ""
    assert found.asks("orders", 0) is None, "another send asks"
    body = json.dumps(document(*leaders, shards=shards)).encode()
    found.keep("orders", 200, 'W/"1"', body, 0)
    return found


def plain(**options: Any) -> SendRequest:
    return send_request("orders", Plain(b"x", **options), None)


UNREACHED = CurlewError("no")


def failed(found: Routes, request: SendRequest, way: Any, now_s: float) -> None:
    found.failed(request, way, UNREACHED, now_s, is_of_the_node=True)


# --- rules


def test_keys_are_hashed_as_the_nodes_do() -> None:
    for key in ("", "a", "order-17", "ä€😀", "polygenelubricants", "x" * 1_000):
        assert java_hash(key) == nodes_hash(key)


def test_a_route_is_kept_for_its_time_and_asked_for_by_its_tag() -> None:
    found = routes(*URLS)
    assert found.asks("orders", VALID_MS / 1_000 - 0.1) is None
    assert found.asks("orders", VALID_MS / 1_000) == 'if-none-match: W/"1"\r\n'
    found.keep("orders", 304, None, b"", VALID_MS / 1_000)
    assert found.asks("orders", VALID_MS / 1_000 + 1) is None
    assert found.way(plain(), 0) is not None


def test_messages_that_may_go_anywhere_take_turns_over_all_leaders() -> None:
    found = routes(*URLS)
    ways = [found.way(plain(), 0) for _ in range(6)]
    assert sorted(way.url or "" for way in ways if way) == sorted(URLS * 2)


def test_keys_and_queues_go_to_their_leader() -> None:
    found = routes(*URLS)
    keyed, named = plain(sharding_key="order-17"), plain(queue_id=2)
    for _ in range(3):
        way = found.way(keyed, 0)
        assert way is not None
        assert (way.url, way.may_choose) == (URLS[abs(java_hash("order-17")) % 3], False)
        way = found.way(named, 0)
        assert way is not None
        assert way.url == URLS[2]
    assert found.way(plain(queue_id=9), 0) is None, "which the node refuses"


def test_only_queues_that_take_messages_count() -> None:
    found = routes(*URLS)
    shown = document(*URLS)
    shown["queues"][2]["perm"] = "r"
    found.keep("orders", 200, None, json.dumps(shown).encode(), 0)
    ways = [found.way(plain(), 0) for _ in range(6)]
    assert {way.queue_id for way in ways if way} == {0, 1}
    keyed = found.way(plain(sharding_key="k"), 0)
    assert keyed is not None
    assert keyed.queue_id == abs(java_hash("k")) % 2


@pytest.mark.parametrize("takes", ["keyed", "none"])
def test_keys_stay_in_a_shard_that_drains_until_they_move(takes: str) -> None:
    found = routes(*URLS)
    shown = document(*URLS) | {"write_queues": 3}
    shown["queues"][1] |= {"perm": "r", "takes": takes}
    found.keep("orders", 200, None, json.dumps(shown).encode(), 0)
    ways = [found.way(plain(), 0) for _ in range(6)]
    assert {way.queue_id for way in ways if way} == {0, 2}
    for key in map(str, range(30)):
        number = abs(java_hash(key))
        way = found.way(plain(sharding_key=key), 0)
        assert way is not None
        is_moved = number % 3 == 1 and takes == "none"
        moved = queue_among(key, (0, 2)) if is_moved else number % 3
        assert (way.queue_id, way.url) == (moved, URLS[moved])
    named = found.way(plain(queue_id=1), 0)
    assert named is not None
    assert named.url == URLS[1]


def test_a_shard_without_a_leader_gets_nothing_that_may_go_elsewhere() -> None:
    found = routes(URLS[0], None, URLS[2])
    ways = [found.way(plain(), 0) for _ in range(6)]
    assert {way.queue_id for way in ways if way} == {0, 2}
    way = found.way(plain(queue_id=1), 0)
    assert way is not None
    assert way.url is None


def test_a_message_moves_unless_it_may_be_stored() -> None:
    found = routes(*URLS)
    request = plain()
    way = found.way(request, 0)
    assert way is not None
    first = way.queue_id
    failed(found, request, way, 0)
    found.move(request, way, 0, is_open=True)
    assert (way.queue_id, way.url) == (first, None)
    found.move(request, way, 0, is_open=False)
    assert way.queue_id != first
    later = [found.way(request, 0) for _ in range(6)]
    assert first not in {each.queue_id for each in later if each}
    again = [found.way(request, ASIDE_S) for _ in range(6)]
    assert [each.url for each in again if each and each.queue_id == first] == [None] * 2
    assert found.asks("orders", 0) is not None, "the route is asked for at once"


def test_when_all_are_set_aside_the_first_that_is_back_is_taken() -> None:
    found = routes(*URLS)
    for queue_id, now_s in ((1, 0.0), (0, 1.0), (2, 2.0)):
        request = plain(queue_id=queue_id)
        failed(found, request, found.way(request, now_s), now_s)
    ways = [found.way(plain(), 3.0) for _ in range(3)]
    assert {way.queue_id for way in ways if way} == {1}


def test_nodes_that_are_slow_are_left_alone() -> None:
    away = {URLS[0]: 9_000.0, URLS[2]: 1.0}
    found = Routes(node_of, lambda url: away.get(url, 0), is_on=True, is_one_given=True)
    found.keep("orders", 200, None, json.dumps(document(*URLS)).encode(), 0)
    assert {way.url for way in (found.way(plain(), 1) for _ in range(4)) if way} == set(URLS[1:])
    away[URLS[1]] = away[URLS[2]] = 8_000.0
    away[URLS[1]] = 7_000.0
    assert {way.url for way in (found.way(plain(), 1) for _ in range(4)) if way} == {URLS[1]}


def test_a_lone_node_is_asked_once_until_it_answers_as_a_cluster() -> None:
    found = routes(URLS[0], URLS[0], shards="a")
    asked = [found.is_on]
    error = refused_as("SHARD_UNAVAILABLE")
    found.failed(plain(), None, error, 0, is_of_the_node=False)
    asked.append(found.is_on)
    assert asked == [False, True]
    assert found.asks("orders", 0) is not None


def test_a_topic_of_one_shard_leaves_routes_on_in_what_is_a_cluster() -> None:
    one = json.dumps(document(URLS[0], shards="a")).encode()
    found = routes(*URLS)
    found.keep("one", 200, None, one, 0)
    refusing = routes(URLS[0], shards="a")
    refusing.failed(plain(), None, refused_as("NOT_LEADER"), 0, is_of_the_node=False)
    refusing.keep("orders", 200, None, one, 0)
    assert (found.is_on, refusing.is_on) == (True, True)


def test_addresses_are_learned_in_clusters_only() -> None:
    learned: list[object] = []
    found = Routes(learned.append, lambda url: 0.0, is_on=True, is_one_given=False)
    one = json.dumps(document(URLS[0], shards="a")).encode()
    found.keep("one", 200, None, one, 0)
    assert learned == []
    found.keep("orders", 200, None, json.dumps(document(*URLS)).encode(), 0)
    found.keep("one", 200, None, one, 0)
    assert learned == [*URLS, URLS[0]]


def test_several_addresses_are_a_cluster() -> None:
    assert routes(URLS[0], shards="a", is_one_given=False).is_on


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"valid_ms":1,"queues":[{}]}', b"null"])
def test_what_is_no_route_is_left(body: bytes) -> None:
    found = Routes(node_of, lambda url: 0.0, is_on=True, is_one_given=True)
    found.keep("orders", 200, None, body, 0)
    assert found.way(plain(), 0) is None


def refused_as(code: str) -> CurlewError:
    from curlew_client.wire.problems import error_of_problem

    return error_of_problem({"code": code, "outcome": "not_stored", "retryable": True}, 503)


@pytest.mark.parametrize(
    ("given", "told", "is_believed"),
    [
        ("http://z:1", "http://a:1", True),
        ("https://z", "http://a:1", False),
        ("https://z", "https://a", True),
        ("http://z:1", "http://127.0.0.1:8710", False),
        ("http://localhost:1", "http://127.0.0.1:8710", True),
        ("http://localhost:1", "http://0.0.0.0:8710", False),
        ("http://z:1", "nonsense", False),
        ("http://z:1,https://y", "http://a:1", False),
        ("http://z:1", "http://[::ffff:127.0.0.1]:8710", False),
        ("http://z:1", "http://localhost.:8710", False),
        ("http://z:1", "http://127.1:8710", False),
        ("http://z:1", "http://169.254.169.254:80", False),
        ("http://z:1", "http://[fe80::1]:8710", False),
        ("http://169.254.1.1:1", "http://169.254.1.2:8710", True),
        ("http://z:1", "http://[::]:8710", False),
        ("http://0.0.0.0:1", "http://0.0.0.0:8710", True),
        ("http://z:1", "http://10.0.0.1.:8710", True),
        ("http://z:1", "http://user:secret@a:1", False),
    ],
)
def test_the_key_goes_only_where_it_may(given: str, told: str, is_believed: bool) -> None:
    assert (believed(told, nodes_of(given)) is not None) is is_believed


def test_keyed_messages_of_a_batch_part_by_shards() -> None:
    found = routes(*URLS)
    messages = [Plain(b"x", sharding_key=f"k{n}") for n in range(6)]
    parts = found.parts("orders", messages)
    assert sorted(index for part in parts for index in part) == list(range(6))
    for part in parts:
        assert len({abs(java_hash(f"k{index}")) % 3 for index in part}) == 1
    lone = routes(URLS[0], shards="a")
    assert lone.parts("orders", messages) == [list(range(6))]


def test_a_batch_may_choose_unless_it_has_keys() -> None:
    assert batch_request("orders", [Plain(b"x"), Plain(b"y", delay="1s")], None).may_choose
    assert not batch_request("orders", [Plain(b"x")], 1).may_choose
    assert not batch_request("orders", [Plain(b"x", sharding_key="k")], None).may_choose


# --- scripted nodes


Send = Callable[[Any, int], list[SendResult]]


def send_blocking(url: Any, times: int, **options: Any) -> list[SendResult]:
    with Client(url, **options) as curlew:
        return [curlew.send("orders", b"x") for _ in range(times)]


def send_on_a_loop(url: Any, times: int, **options: Any) -> list[SendResult]:
    async def send() -> list[SendResult]:
        async with AsyncClient(url, **options) as curlew:
            return [await curlew.send("orders", b"x") for _ in range(times)]

    return asyncio.run(send())


both = pytest.mark.parametrize("send", [send_blocking, send_on_a_loop])


@contextmanager
def cluster(*steps: Step) -> Iterator[list[ScriptedNode]]:
    """Two nodes; the first is given to clients, the second does `steps`."""
    with scripted() as first, scripted(*steps) as second:
        shown = answered(200, document(first.url, second.url, shards="ab"), 'ETag: W/"1"')
        first.route = second.route = shown
        yield [first, second]


def queues(node: ScriptedNode) -> list[str | None]:
    return [each.headers.get("mq-queue-id") for each in node.sends]


@both
def test_one_send_asks_for_no_route_and_a_lone_node_is_asked_once(send: Send) -> None:
    with scripted() as node:
        node.route = answered(200, document(node.url, shards="a"))
        send(node.url, 1)
        assert node.routes_asked == []
        send(node.url, 5)
        assert len(node.routes_asked) == 1
        assert queues(node) == [None] * 6


@both
def test_sends_go_straight_to_the_leaders_in_turn(send: Send) -> None:
    with cluster() as (first, second):
        send(first.url, 7)
        assert len(first.routes_asked) == 1
        assert queues(first) == [None, "0", "0", "0"]
        assert queues(second) == ["1", "1", "1"]
        assert {each.headers.get("mq-forward") for each in second.sends} == {"no"}
        numbers = [each.number[1] for each in second.sends]
        assert numbers == ["0", "1", "2"], "each queue counts on its own"


@both
def test_a_node_that_leads_no_more_ends_the_route(send: Send) -> None:
    moved = refused(421, "NOT_LEADER", outcome="not_stored", retryable=True)
    with cluster(moved) as (first, second):
        send(first.url, 3)
        assert sum(map(len, (first.sends, second.sends))) == 4
        over = next(each for each in first.sends if each.headers.get("mq-queue-id") == "1")
        assert "mq-forward" not in over.headers
        assert over.number == second.sends[0].number
        assert len(first.routes_asked) + len(second.routes_asked) == 2, "the third asks anew"


@both
def test_a_leader_that_is_gone_costs_one_attempt(send: Send) -> None:
    with scripted() as gone:
        pass
    with scripted() as node:
        node.route = answered(200, document(node.url, gone.url, shards="ab"))
        results = send(node.url, 9)
        assert len(results) == len(node.sends) == 9
        assert set(queues(node)[1:]) == {"0"}, "what may go anywhere goes elsewhere"


@both
def test_a_queue_that_is_no_more_is_left_to_the_node(send: Send) -> None:
    no_queue = refused(404, "QUEUE_NOT_FOUND", outcome="not_stored", retryable=False)
    with cluster(no_queue) as (first, second):
        assert len(send(first.url, 3)) == 3
        assert queues(second)[:1] == ["1"]
        again = first.sends[1]
        assert "mq-queue-id" not in again.headers
        assert "mq-forward" not in again.headers
        assert again.number[1] == "1", "the second of those whose queue the node chooses"
        assert len(first.routes_asked) + len(second.routes_asked) == 2, "the third asks anew"


@pytest.mark.parametrize(
    ("left_s", "given_s", "told_s"), [(60.0, 5.0, 1.0), (1.5, 1.5, 0.5), (0.0, 0.001, 0.001)]
)
def test_connecting_to_what_another_node_told_is_bounded(
    left_s: float, given_s: float, told_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: list[float] = []

    async def noted(_node: Any, _tls: Any, timeout_s: float) -> Any:
        bounds.append(timeout_s)
        raise UNREACHED

    monkeypatch.setattr("curlew_client.aio.pool.AsyncConnection.open", noted)
    monkeypatch.setattr("curlew_client.aio.pool.monotonic", lambda: 100.0)
    given = node_of(URLS[0])
    told = believed(URLS[1], [given])
    assert told is not None
    for node in (given, told):
        with pytest.raises(CurlewError):
            asyncio.run(AsyncPool(None, 5.0).exchange(node, b"", 100.0 + left_s))
    assert bounds == [given_s, told_s]


@both
def test_what_may_be_stored_keeps_its_queue_and_number(send: Send) -> None:
    with cluster(broken) as (first, second):
        send(first.url, 3)
        (lost,) = second.sends[:1]
        again = [each for each in first.sends if each.headers.get("mq-queue-id") == "1"]
        assert [each.number for each in again] == [lost.number]


@both
def test_the_given_node_may_be_gone_when_others_are_known(send: Send) -> None:
    with cluster() as (first, second):
        first.steps.append(stored())
        first.otherwise = broken
        results = send(first.url, 4)
        assert len(results) == 4
        assert len(second.sends) >= 3


def test_a_slow_leader_is_left_alone_when_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("curlew_client.producing.fault_table.LATENCIES_MS", (0,) * 7)
    with cluster() as (first, second):
        send_blocking(first.url, 8, avoid_slow_nodes=True)
        named = [queues(first)[1:], queues(second)]
        assert sorted(map(len, named)) == [3, 4], "all are away, and the earliest is asked"
        assert len(first.sends) + len(second.sends) == 8


def test_routes_can_be_left_out() -> None:
    with cluster() as (first, second):
        send_blocking(first.url, 5, routes=False)
        assert (len(first.sends), len(second.sends), len(first.routes_asked)) == (5, 0, 0)


@pytest.mark.parametrize(("code", "times"), [("NOT_FOUND", 1), ("TOPIC_NOT_FOUND", 3)])
@both
def test_a_server_without_routes_is_not_asked_again_and_again(
    send: Send, code: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("aio", "blocking"):
        monkeypatch.setattr(f"curlew_client.{room}.sending.AGAIN_S", -1.0)
    with scripted() as node:
        node.route = refused(404, code)
        send(node.url, 4)
        assert len(node.routes_asked) == times


# --- three nodes of three shards


@pytest.fixture
def relayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the nodes have relayed so far."""
    found: list[str] = []
    carry = Relay.carry

    async def noted(self: Relay, exchange: Any, operation: Any, names: Any, aimed: Any) -> bool:
        is_relayed = await carry(self, exchange, operation, names, aimed)
        if is_relayed:
            found.append(operation.operation_id)
        return is_relayed

    monkeypatch.setattr(Relay, "carry", noted)
    return found


async def stored_in(node: ServedNode) -> list[str]:
    """Bodies by queue, in order."""
    found: list[str] = []
    for queue_id in range(3):
        path = f"/v1/topics/orders/queues/{queue_id}/messages"
        answer = await node.client.get(path, params={"offset": 0, "max_messages": 1_000})
        found += [f"{queue_id} {each['text']}" for each in answer.json().get("messages", [])]
    return found


@pytest.mark.anyio
@pytest.mark.postgres
async def test_in_a_cluster_no_send_is_relayed_and_all_are_stored_once(
    nodes: list[ServedNode], relayed: list[str]
) -> None:
    async with AsyncClient(str(nodes[0].client.base_url)) as curlew:
        await curlew.send("orders", "first")
        await curlew.send("orders", "second")
        relayed.clear()
        for number in range(12):
            await curlew.send("orders", f"plain {number}")
            await curlew.send("orders", f"keyed {number}", sharding_key=f"k{number % 5}")
            await curlew.send("orders", f"named {number}", queue_id=number % 3)
        assert relayed == []
        futures = [
            await curlew.send_async("orders", f"late {number}", sharding_key=f"k{number % 5}")
            for number in range(12)
        ]
        results = [await each for each in futures]
        batch = await curlew.send_batch("orders", [Message(f"batch {n}") for n in range(4)])
        assert relayed == []
    shown = await stored_in(nodes[1])
    assert len(shown) == len({each.partition(" ")[2] for each in shown}) == 2 + 36 + 12 + 4
    for number, result in enumerate(results):
        expected = abs(java_hash(f"k{number % 5}")) % 3
        assert result.queue_id == expected
        assert f"{expected} keyed {number}" in shown
    assert len({each.queue_id for each in batch}) == 1


@pytest.mark.anyio
@pytest.mark.postgres
async def test_keyed_batches_work_from_the_first_on(nodes: list[ServedNode]) -> None:
    async with AsyncClient(str(nodes[0].client.base_url)) as curlew:
        futures = [
            await curlew.send_async("orders", f"{number}", sharding_key=f"k{number % 5}")
            for number in range(20)
        ]
        results = [await each for each in futures]
    assert [each.queue_id for each in results] == [
        abs(java_hash(f"k{n % 5}")) % 3 for n in range(20)
    ]
    shown = await stored_in(nodes[2])
    for key in range(5):
        expected = [str(n) for n in range(20) if n % 5 == key]
        found = [each.partition(" ")[2] for each in shown]
        assert [each for each in found if int(each) % 5 == key] == expected


@pytest.mark.anyio
@pytest.mark.postgres
async def test_a_node_that_ends_is_gone_round(nodes: list[ServedNode]) -> None:
    urls = [str(each.client.base_url) for each in nodes]
    async with AsyncClient(urls[0]) as curlew:
        for number in range(4):
            await curlew.send("orders", f"before {number}")
        await nodes[0].stop()
        for number in range(12):
            await curlew.send("orders", f"after {number}")
    shown = await stored_in(nodes[1])
    assert len([each for each in shown if " after " in each]) == 12

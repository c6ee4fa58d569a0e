"""Sends to a shard with replicas, over HTTP: when they are answered, and with what."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

import msgspec
import pytest

from app.domain.errors import StoreFailed
from app.domain.message import Message
from app.store.write import gate as gating
from tests.support.clients.asgi import Answer
from tests.support.clients.frames import request_frame
from tests.support.nodes.brokers import GROUP, TOPIC
from tests.support.nodes.waiting import until
from tests.support.stores.replicated import EARLY, Leader, leading

pytestmark = pytest.mark.anyio

JSON = (b"content-type", b"application/json")
FRAMES = (b"content-type", b"application/vnd.curlew.batch")
KEY = (b"idempotency-key", b'"order-17"')
SHORT = (b"mq-timeout", b"20ms")
ONE_WAY = (b"mq-one-way", b"true")
STRICT = (b"prefer", b"handling=strict")
TWO = msgspec.json.encode({"messages": [{"text": "a", "id": "x"}, {"text": "b"}]})
MIXED = msgspec.json.encode({"messages": [{"text": "a"}, {"text": "b", "delay": "9s"}]})


def single(topic: str) -> str:
    return f"/v1/topics/{topic}/messages"


def batch(topic: str) -> str:
    return single(topic) + ":batch"


def frame(topic: str) -> bytes:
    return request_frame([Message(b"a"), Message(b"b")], topic)


SENDS: list[tuple[str, Callable[[str], tuple[str, bytes, Sequence[tuple[bytes, bytes]]]]]] = [
    ("single", lambda topic: (single(topic), b"a", ())),
    ("batch", lambda topic: (batch(topic), TWO, (JSON,))),
    ("strict batch", lambda topic: (batch(topic), TWO, (JSON, STRICT))),
    ("frame", lambda topic: (batch(topic), frame(topic), (FRAMES,))),
]
KINDS = pytest.mark.parametrize("kind", [kind for kind, _ in SENDS])


def sending(
    leader: Leader, kind: str, topic: str, *headers: tuple[bytes, bytes]
) -> Coroutine[object, object, Answer]:
    path, body, own = dict(SENDS)[kind](topic)
    return leader.post(path, body, [*own, *headers])


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    """Whose senders wait for replicas as long as it takes."""
    async with leading() as leader:
        yield leader


@pytest.fixture
async def hasty() -> AsyncIterator[Leader]:
    """Whose senders wait for replicas for a moment."""
    async with leading(replication_wait_ms=20) as leader:
        yield leader


async def begun(
    leader: Leader, tasks: asyncio.TaskGroup, send: Coroutine[object, object, Answer]
) -> asyncio.Task[Answer]:
    """A send whose block is in the log."""
    before = len(leader.gate.written)
    task = tasks.create_task(send)
    await until(lambda: len(leader.gate.written) > before)
    return task


@KINDS
async def test_a_topic_that_says_nothing_is_answered_when_it_is_confirmed(
    leader: Leader, kind: str
) -> None:
    async with asyncio.TaskGroup() as tasks:
        task = await begun(leader, tasks, sending(leader, kind, TOPIC))
        # Another request goes all its way meanwhile: this one waits for more than turns.
        assert (await leader.post(single(EARLY), b"early")).status == 201
        assert not task.done()
        leader.gate.confirm_all()
    assert task.result().status in {200, 201}
    assert leader.broker.sends is not None
    assert len(leader.broker.sends._watched) == 0


@KINDS
async def test_an_async_one_is_answered_when_the_leader_has_it(leader: Leader, kind: str) -> None:
    answer = await sending(leader, kind, EARLY)
    assert answer.status in {200, 201}
    assert await leader.bodies(EARLY) == [], "nothing but the answer comes early"
    leader.gate.confirm_all()
    assert b"a" in await leader.bodies(EARLY)
    assert leader.lost.messages == 0


@KINDS
async def test_a_confirmation_that_takes_longer_is_unknown_and_says_where(
    hasty: Leader, kind: str
) -> None:
    answer = await sending(hasty, kind, TOPIC)
    problem = answer.json()
    assert (answer.status, problem["code"]) == (504, "REPLICATION_TIMEOUT")
    assert (problem["outcome"], problem["retryable"]) == ("unknown", True)
    places = problem.get("results", [problem])
    for number, place in enumerate(places):
        said = place.get("error", place)
        assert (said["code"], said["outcome"]) == ("REPLICATION_TIMEOUT", "unknown")
        assert (place["queue_id"], place["queue_offset"]) == (0, number)
        assert place["message_id"]
        assert place["store_time_ms"]
    if "results" not in problem:
        assert (problem["send_status"], problem["topic"]) == ("FLUSH_SLAVE_TIMEOUT", TOPIC)
    hasty.gate.confirm_all()
    first = (await hasty.bodies())[0]
    assert first == b"a", "the time ended the wait, not the block"


async def test_the_senders_own_time_may_be_shorter(leader: Leader) -> None:
    answer = await leader.post(single(TOPIC), b"a", [SHORT])
    assert (answer.status, answer.json()["code"]) == (504, "REPLICATION_TIMEOUT")


@pytest.mark.parametrize("headers", [(), (STRICT,)])
async def test_delayed_ones_wait_for_replicas_whatever_the_topic_says(
    hasty: Leader, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    """And so does a strict batch that has any: it is one block."""
    answer = await hasty.post(batch(EARLY), MIXED, [JSON, *headers])
    assert answer.status == (504 if headers else 207)
    now, later = answer.json()["results"]
    assert now["status"] == (504 if headers else 201)
    assert (later["status"], later["error"]["code"]) == (504, "REPLICATION_TIMEOUT")
    assert later["recall_handle"]


@pytest.mark.parametrize("topic", [TOPIC, EARLY])
@pytest.mark.parametrize("kind", ["single", "batch", "frame"])
async def test_a_repetition_under_a_key_finds_the_first(
    hasty: Leader, kind: str, topic: str
) -> None:
    """Also in an async topic: what is to be stored once is not told of before it is."""
    first = await sending(hasty, kind, topic, KEY)
    assert (first.status, first.json()["code"]) == (504, "REPLICATION_TIMEOUT")
    at_work = await sending(hasty, kind, topic, KEY)
    said = at_work.json()
    assert (at_work.status, said["code"]) == (409, "REQUEST_IN_PROGRESS")
    assert said["outcome"] == "unknown", "nobody says that it is not stored"
    hasty.gate.too_few = "1 of 3"
    assert (await sending(hasty, kind, topic, KEY)).json()["code"] == "REQUEST_IN_PROGRESS"
    hasty.gate.confirm_all()
    again = await sending(hasty, kind, topic, KEY)
    assert (again.status, again.headers[b"mq-duplicate"]) == (200, b"true")
    found = again.json()
    if kind == "single":
        assert found["message_id"] == first.json()["message_id"]
    assert len(await hasty.bodies(topic)) == (1 if kind == "single" else 2)


async def test_what_is_given_up_as_unknown_is_never_told_as_not_stored(hasty: Leader) -> None:
    """Another replica may have it and lead next; this broker takes nothing more."""
    first = await hasty.post(single(TOPIC), b"a", [KEY])
    assert first.json()["code"] == "REPLICATION_TIMEOUT"
    hasty.store.fail("deposed")
    again = await hasty.post(single(TOPIC), b"a", [KEY])
    assert again.json()["outcome"] == "unknown"
    other = await hasty.post(single(TOPIC), b"b", [(b"idempotency-key", b'"order-18"')])
    assert (other.json()["code"], other.json()["outcome"]) == ("STORE_FAILED", "not_stored")


@KINDS
async def test_too_few_in_sync_refuse_before_anything_is_stored(leader: Leader, kind: str) -> None:
    leader.gate.too_few = "1 of 3"
    answer = await sending(leader, kind, TOPIC)
    problem = answer.json()
    assert (answer.status, problem["code"]) == (503, "NOT_ENOUGH_REPLICAS")
    assert (problem["outcome"], answer.headers[b"retry-after"]) == ("not_stored", b"1")
    if "results" not in problem:
        assert problem["send_status"] == "SLAVE_NOT_AVAILABLE"
    for result in problem.get("results", ()):
        assert (result["status"], result["error"]["outcome"]) == (503, "not_stored")
    assert (await sending(leader, kind, EARLY)).status in {200, 201}
    leader.gate.too_few = None
    leader.gate.confirm_all()
    assert await leader.bodies() == []


@KINDS
async def test_an_async_topic_is_refused_when_too_much_waits(
    leader: Leader, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gating, "UNCONFIRMED_BYTES_MAX", 10)
    assert (await leader.post(single(EARLY), bytes(10))).status == 201
    answer = await sending(leader, kind, EARLY)
    problem = answer.json()
    assert (answer.status, problem["code"]) == (503, "NOT_ENOUGH_REPLICAS")
    assert problem["outcome"] == "not_stored"
    leader.gate.confirm_all()
    assert (await sending(leader, kind, EARLY)).status in {200, 201}


async def test_with_too_few_in_sync_pulls_go_on_and_what_writes_is_refused(leader: Leader) -> None:
    leader.confirm()
    for body in (b"a", b"b"):
        await leader.post(single(TOPIC), body)
    receive = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages:receive"
    settle = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages:settle"
    received = await leader.post(receive, b"", query=b"max_messages=1")
    [message] = received.json()["messages"]
    leader.gate.is_open, leader.gate.too_few = False, "1 of 3"
    assert await leader.bodies() == [b"a", b"b"]
    acks = msgspec.json.encode({"acks": [message["receipt_handle"]]})
    prepare = (b"mq-transaction", b"prepare; group=pg1")
    for answer in (
        await leader.post(receive, b"", query=b"max_messages=1"),
        await leader.post(settle, acks, [JSON]),
        await leader.post(single(EARLY), b"half", [prepare]),
        await leader.post(single(EARLY), b"late", [(b"mq-delay", b"9s")]),
        await leader.post(single(EARLY), b"once", [KEY]),
    ):
        text = answer.body.decode()
        assert answer.status == 503, text
        assert "NOT_ENOUGH_REPLICAS" in text


async def test_what_was_answered_early_and_given_up_is_counted(leader: Leader) -> None:
    assert "curlew_early_answers_lost_total 0" in leader.metrics()
    before = len(leader.gate.written)
    assert (await sending(leader, "single", EARLY)).status == 201
    assert (await sending(leader, "frame", EARLY)).status == 200
    leader.gate.confirm_all()
    assert (await sending(leader, "single", EARLY)).status == 201
    assert (await sending(leader, "batch", EARLY)).status == 200
    assert (await sending(leader, "single", EARLY, ONE_WAY)).status == 202
    await until(lambda: len(leader.gate.written) == before + 5)
    async with asyncio.TaskGroup() as tasks:
        sync = await begun(leader, tasks, sending(leader, "single", TOPIC))
        leader.store.fail("deposed")
    assert (sync.result().json()["code"], sync.result().json()["outcome"]) == (
        StoreFailed.code,
        "unknown",
    )
    assert leader.lost.messages == 1 + 2 + 1
    assert "curlew_early_answers_lost_total 4" in leader.metrics()


async def test_a_one_way_send_that_is_given_up_is_counted_at_the_end(hasty: Leader) -> None:
    for topic in (TOPIC, EARLY):
        assert (await sending(hasty, "single", topic, ONE_WAY)).status == 202
    answer = await sending(hasty, "single", TOPIC)
    assert answer.json()["code"] == "REPLICATION_TIMEOUT", "their time is over, too"
    dropped = hasty.broker.sender.one_way.dropped
    assert dropped == {}
    hasty.store.fail("deposed")
    assert dropped == {"STORE_FAILED": 2}


async def test_a_sender_that_goes_away_leaves_nothing_behind(leader: Leader) -> None:
    async with asyncio.TaskGroup() as tasks:
        task = await begun(leader, tasks, sending(leader, "single", TOPIC))
        task.cancel()
    assert leader.broker.sends is not None
    assert len(leader.broker.sends._watched) == 1
    leader.gate.confirm_all()
    assert len(leader.broker.sends._watched) == 0
    assert await leader.bodies() == [b"a"]

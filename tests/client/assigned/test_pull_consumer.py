"""Lite pull against a node: subscribed and assigned, blocking and with asyncio."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from curlew_client import AsyncClient, Client
from curlew_client.aio.sending import AsyncSender
from curlew_client.errors import OffsetOutOfRange

from tests.support.nodes.node import RunningNode, run_node
from tests.support.nodes.waiting import wait_until

EACH = 5


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with run_node(tmp_path_factory.mktemp("pulls") / "node") as running:
        yield running


@pytest.fixture
def name(node: RunningNode, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own with 5 messages in each of two queues, and a group."""
    found = re.sub(r"[^a-z_0-9]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    httpx.put(f"{node.url}/v1/topics/{found}", json={"queues": 2, "flush": "async"})
    httpx.put(
        f"{node.url}/v1/groups/{found}", json={"retry_policy": {"customized": ["0s"]}}
    ).raise_for_status()
    fill(node, found)
    return found


def fill(node: RunningNode, topic: str, start: int = 0) -> None:
    with Client(node.url) as curlew:
        for queue_id in range(2):
            bodies = [f"{queue_id}.{n}" for n in range(start, start + EACH)]
            curlew.send_batch(topic, bodies, queue_id=queue_id)


def texts(messages: list[Any]) -> list[str]:
    return sorted(message.text for message in messages)


def read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []

    def is_enough() -> bool:
        found.extend(consumer.poll("1s"))
        return len(found) >= count

    wait_until(is_enough)
    return found


def test_what_polls_gave_is_committed_at_the_end(node: RunningNode, name: str) -> None:
    with Client(node.url) as curlew:
        with curlew.pull_consumer(group=name) as consumer:
            consumer.subscribe(name)
            assert len(read(consumer, 2 * EACH)) == 2 * EACH
            assert [queue.queue_id for queue in consumer.assignment] == [0, 1]
            assert consumer.poll(0) == []
        with curlew.pull_consumer(group=name) as consumer:
            consumer.subscribe(name)
            fill(node, name, EACH)
            assert texts(read(consumer, 2 * EACH)) == [
                f"{q}.{n}" for q in "01" for n in range(5, 10)
            ]
            assert consumer.committed(name, 0) == EACH
        with pytest.raises(OSError, match="bank closed"):
            fail(curlew, node, name)
        with curlew.pull_consumer(group=name) as consumer:
            consumer.subscribe(name)
            assert len(read(consumer, 2)) == 2, "what a block failed with is not done"
    assert httpx.get(f"{node.url}/v1/groups/{name}/members").json()["members"] == []


def fail(curlew: Client, node: RunningNode, name: str) -> None:
    curlew.send_batch(name, ["x", "y"], queue_id=0)
    with curlew.pull_consumer(group=name) as consumer:
        consumer.subscribe(name)
        read(consumer, 2)
        raise OSError("bank closed")


def test_a_commit_by_hand_and_what_is_handed_back(node: RunningNode, name: str) -> None:
    with (
        Client(node.url) as curlew,
        curlew.pull_consumer(group=name, auto_commit=False) as consumer,
    ):
        consumer.subscribe({name: None})
        found = read(consumer, 2 * EACH)
        assert not consumer.committed(name, 0)
        found[0].nack(delay="0s", reason="busy")
        found[1].dead_letter("no account")
        consumer.commit()
        assert (consumer.committed(name, 0), consumer.committed(name, 1)) == (EACH, EACH)
        (again,) = read(consumer, 1)
        assert (again.text, again.attempt) == (found[0].text, 2)
        again.ack()
    (letter,) = httpx.get(f"{node.url}/v1/groups/{name}/dlq/messages").json()["messages"]
    assert letter["reason"] == "no account"


def test_seeking_and_pausing(node: RunningNode, name: str) -> None:
    with Client(node.url) as curlew, curlew.pull_consumer(group=name) as consumer:
        consumer.subscribe(name)
        first = read(consumer, 2 * EACH)
        consumer.seek(name, 0, 3)
        assert texts(read(consumer, 2)) == ["0.3", "0.4"]
        consumer.seek_to_begin(name, 1)
        assert len(read(consumer, EACH)) == EACH
        (wanted,) = [each for each in first if each.text == "1.2"]
        consumer.seek_to_time(name, 1, wanted.store_time_ms + 60_000)
        assert consumer.poll("100ms") == [], "there is nothing so late"
        consumer.seek_to_time(name, 1, wanted.store_time_ms)
        assert "1.2" in texts(read(consumer, 3))
        consumer.pause([(name, 0)])
        fill(node, name, EACH)
        assert {each.queue_id for each in read(consumer, EACH)} == {1}
        consumer.seek_to_end(name, 0)
        consumer.resume([(name, 0)])
        assert consumer.poll("100ms") == []
        with pytest.raises(ValueError, match="is not this consumer's"):
            consumer.seek(name, 9, 0)


def test_one_request_reads_ahead_for_many_polls(
    node: RunningNode, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    call = AsyncSender.call

    async def counted(
        sender: AsyncSender, method: str, target: str, *more: Any, **named: Any
    ) -> Any:
        asked.append(target)
        return await call(sender, method, target, *more, **named)

    with Client(node.url) as curlew, curlew.pull_consumer(group=name) as consumer:
        consumer.subscribe(name)
        monkeypatch.setattr(AsyncSender, "call", counted)
        found = [consumer.poll("10s", max_messages=1) for _ in range(2 * EACH)]
        assert [len(each) for each in found] == [1] * 2 * EACH
        assert len({each[0].text for each in found}) == 2 * EACH
        polls = [target for target in asked if "members:poll" in target]
        assert len(polls) < EACH, "one for the queues, one for what is in them"


def test_what_was_read_ahead_obeys_a_pause_and_a_seek(node: RunningNode, name: str) -> None:
    with Client(node.url) as curlew, curlew.pull_consumer(group=name) as consumer:
        consumer.subscribe(name)
        ((first,),) = [consumer.poll("10s", max_messages=1)]
        held, other = first.queue_id, 1 - first.queue_id
        consumer.pause([(name, held)])
        assert texts(read(consumer, EACH)) == [f"{other}.{n}" for n in range(EACH)]
        assert consumer.poll(0) == []
        consumer.resume([(name, held)])
        (second,) = consumer.poll("1s", max_messages=1)
        assert second.text == f"{held}.1", "what was read before the pause comes in its order"
        consumer.seek(name, held, 3)
        assert texts(read(consumer, 2)) == [f"{held}.3", f"{held}.4"]
        assert consumer.poll(0) == [], "what was read before the seek counts no more"


def test_chosen_queues(node: RunningNode, name: str) -> None:
    with Client(node.url) as curlew:
        with curlew.pull_consumer(group=name, start="first") as consumer:
            consumer.assign([(name, 1)])
            assert texts(read(consumer, EACH)) == [f"1.{n}" for n in range(EACH)]
            consumer.commit()
            consumer.assign([(name, 0), (name, 1)])
            assert texts(read(consumer, EACH)) == [f"0.{n}" for n in range(EACH)]
            with pytest.raises(ValueError, match="has no queue 7"):
                consumer.assign([(name, 7)])
        with curlew.pull_consumer(group=name) as consumer:
            consumer.assign([(name, 0), (name, 1)])
            assert consumer.poll("50ms") == [], "all is committed"
            curlew.send(name, "late", queue_id=0)
            (late,) = consumer.poll("20s")
            with pytest.raises(ValueError, match="subscribe instead"):
                late.nack()
            consumer.seek(name, 0, 1_000)
            assert consumer.poll("50ms") == [], "it goes on at the nearest"
            assert consumer.poll("50ms") == []
        with curlew.pull_consumer(group=name, offset_reset="fail") as consumer:
            consumer.assign([(name, 0)])
            consumer.seek(name, 0, 1_000)
            with pytest.raises(OffsetOutOfRange):
                consumer.poll("50ms")


def test_lite_pull_with_asyncio(node: RunningNode, name: str) -> None:
    async def consume() -> list[str]:
        async with (
            AsyncClient(node.url) as curlew,
            curlew.pull_consumer(group=name, auto_commit=False) as consumer,
        ):
            await consumer.subscribe(name)
            found: list[Any] = []
            while len(found) < 2 * EACH:
                found += await consumer.poll("1s", max_messages=3)
            await found[0].ack()
            await consumer.seek(name, 0, 0)
            await consumer.commit()
            return texts(found)

    assert len(asyncio.run(consume())) == 2 * EACH


def test_misuse_is_said(node: RunningNode, name: str) -> None:
    with Client(node.url) as curlew:
        with pytest.raises(TypeError, match="use the consumer in a block"):
            curlew.pull_consumer(group=name).subscribe(name)
        with pytest.raises(TypeError, match="auto_commit is True or False"):
            curlew.pull_consumer(group=name, auto_commit=1)  # type: ignore[arg-type]
        with curlew.pull_consumer(group=name) as consumer:
            with pytest.raises(ValueError, match="call subscribe or assign first"):
                consumer.poll(0)
            with (
                pytest.raises(ValueError, match="this client has a consumer of group"),
                curlew.pull_consumer(group=name),
            ):
                pass
            consumer.subscribe(name)
            with pytest.raises(ValueError, match="max_messages is 1 or more"):
                consumer.poll(0, max_messages=0)
            with pytest.raises(TypeError, match="max_messages is a number"):
                consumer.poll(0, max_messages="many")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="said already"):
                consumer.subscribe(name)
            with pytest.raises(ValueError, match="has subscribed"):
                consumer.assign([(name, 0)])


def test_the_node_knows_who_calls(node: RunningNode, name: str) -> None:
    with Client(node.url, client_id="till-7") as curlew:
        curlew.send(name, "x")
        listed = curlew.admin.request("GET", f"/v1/topics/{name}/producers")["clients"]
    found = {each["client_id"]: each["user_agent"] for each in listed}
    assert found["till-7"].startswith("curlew-client-python/")

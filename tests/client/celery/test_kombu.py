"""kombu over a node: messages, acks, and what becomes of what nobody acks."""

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from curlew_client import Client
from curlew_client.testing import TestNode
from kombu import Consumer

from tests.client.celery.brokers import connected, direct, drain, publish, ready, take
from tests.support.nodes.waiting import wait_until


def test_what_is_published_arrives_and_is_done(broker: Any, curlew: Client, name: str) -> None:
    queue = direct(name)
    publish(broker, queue, {"n": 1}, {"n": 2}, b"raw", headers={"id": "task-1", "task": "shop.add"})
    found = take(broker, queue, 3)
    bodies = [body for body, _ in found]
    assert all(each in bodies for each in ({"n": 1}, {"n": 2}, b"raw"))
    assert {message.headers["task"] for _, message in found} == {"shop.add"}
    assert {message.delivery_info["routing_key"] for _, message in found} == {name}
    assert {message.delivery_info["redelivered"] for _, message in found} == {False}
    wait_until(lambda: ready(curlew, name) == 0)


def test_the_body_is_what_any_client_reads_and_the_key_the_id(
    broker: Any, curlew: Client, name: str, curlew_node: TestNode
) -> None:
    publish(broker, direct(name), {"n": 1}, headers={"id": "task-1"})
    shown = httpx.get(f"{curlew_node.url}/v1/topics/{name}/messages", params={"key": "task-1"})
    (message,) = shown.json()["messages"]
    assert (message["body"], message["tag"], message["content_type"]) == (
        {"n": 1},
        name,
        "application/json",
    )


def test_what_curl_sends_arrives(broker: Any, name: str, curlew_node: TestNode) -> None:
    queue = direct(name)
    queue(broker.channel()).declare()
    httpx.post(
        f"{curlew_node.url}/v1/topics/{name}/messages",
        content=b'{"n": 3}',
        headers={"content-type": "application/json", "mq-tag": name},
    ).raise_for_status()
    ((body, message),) = take(broker, queue, 1)
    assert body == {"n": 3}
    assert message.delivery_info["routing_key"] == name


def test_a_requeued_message_comes_at_once_and_says_so(broker: Any, name: str) -> None:
    queue = direct(name)
    publish(broker, queue, 1)
    seen: list[bool] = []

    def arrived(_: Any, message: Any) -> None:
        seen.append(message.delivery_info["redelivered"])
        message.requeue() if len(seen) == 1 else message.ack()

    with Consumer(broker.channel(), [queue], callbacks=[arrived]):
        drain(broker)
        drain(broker)
    assert seen == [False, True]


def test_a_rejected_message_is_a_dead_letter(broker: Any, curlew: Client, name: str) -> None:
    queue = direct(name)
    publish(broker, queue, "bad")
    with Consumer(broker.channel(), [queue], callbacks=[lambda _, message: message.reject()]):
        drain(broker)
    wait_until(lambda: curlew.admin.get_lag(name)["dead"] == 1)


def test_the_prefetch_count_bounds_what_a_consumer_has(
    broker: Any, curlew: Client, name: str
) -> None:
    queue = direct(name)
    publish(broker, queue, *range(10))
    held: list[Any] = []
    with Consumer(
        broker.channel(), [queue], callbacks=[lambda _, message: held.append(message)]
    ) as consumer:
        consumer.qos(prefetch_count=3)
        consumer.cancel()
        consumer.consume()
        for _ in range(3):
            drain(broker)
        with pytest.raises(TimeoutError):
            drain(broker, 0.3)
        assert curlew.admin.get_lag(name)["in_flight"] == 3
        held.pop().ack()
        drain(broker)
    assert len(held) == 3


def test_what_is_not_acked_is_there_for_others_when_its_channel_closes(
    broker: Any, name: str, curlew_node: TestNode
) -> None:
    queue = direct(name)
    publish(broker, queue, *range(5))
    with connected(curlew_node.url) as other:
        held: list[Any] = []
        consumer = Consumer(
            other.channel(), [queue], callbacks=[lambda _, message: held.append(message)]
        )
        consumer.consume()
        for _ in range(5):
            drain(other)
    found = take(broker, queue, 5)
    assert sorted(body for body, _ in found) == list(range(5))
    assert {message.delivery_info["redelivered"] for _, message in found} == {False}


def test_two_consumers_share_a_queue(broker: Any, name: str, curlew_node: TestNode) -> None:
    queue = direct(name)
    publish(broker, queue, *range(40))
    found: dict[int, list[int]] = {0: [], 1: []}
    with connected(curlew_node.url) as other:
        consumers = []
        for number, connection in enumerate((broker, other)):

            def arrived(body: int, message: Any, number: int = number) -> None:
                found[number].append(body)
                message.ack()

            channel = connection.channel()
            channel.basic_qos(0, 4, False)
            consumers.append(Consumer(channel, [queue], callbacks=[arrived]))
            consumers[-1].consume()
        while len(found[0]) + len(found[1]) < 40:
            for connection in (broker, other):
                with suppress(TimeoutError):
                    drain(connection, 0.05)
    assert sorted(found[0] + found[1]) == list(range(40))
    assert found[0]
    assert found[1]


def test_a_simple_queue_is_asked_purged_and_empty(broker: Any, name: str) -> None:
    with broker.SimpleQueue(name) as simple:
        for number in range(5):
            simple.put(number)
        first = simple.get(timeout=20)
        first.ack()
        channel = broker.channel()
        wait_until(lambda: channel.queue_declare(name, passive=True).message_count <= 4)
        assert channel.queue_purge(name) >= 0
    assert broker.channel().basic_get(name) is None


def test_basic_get_gives_one_and_settles_it(broker: Any, curlew: Client, name: str) -> None:
    queue = direct(name)
    publish(broker, queue, 1, 2)
    bound = queue(broker.channel())
    bound.declare()
    first = bound.get()
    assert first is not None
    first.requeue()
    got: list[int] = []
    while len(got) < 2:
        message = bound.get()
        if message is not None:
            message.ack()
            got.append(message.payload)
    assert sorted(got) == [1, 2]
    assert bound.get() is None
    assert ready(curlew, name) == 0


def test_a_task_that_is_due_later_waits_in_the_node(broker: Any, curlew: Client, name: str) -> None:
    queue = direct(name)
    now = datetime.fromtimestamp(time.time_ns() / 1e9, UTC)
    due = now + timedelta(hours=1)
    publish(broker, queue, 1, headers={"eta": due.isoformat()})
    far = now + timedelta(days=400)
    publish(broker, queue, 2, headers={"eta": far.isoformat()})
    publish(broker, queue, 3, headers={"eta": "tomorrow"})
    publish(broker, queue, 4, headers={"eta": now.isoformat()})
    found = [body for body, _ in take(broker, queue, 2)]
    assert sorted(found) == [3, 4]
    assert len(curlew.admin.list_scheduled_messages(name)["messages"]) == 2


def test_a_task_that_comes_before_it_is_due_is_sent_on(
    curlew: Client, name: str, curlew_node: TestNode
) -> None:
    """The node delays for a second at most here, and the task is due in an hour."""
    queue = direct(name)
    due = datetime.fromtimestamp(time.time_ns() / 1e9, UTC) + timedelta(hours=1)
    with connected(curlew_node.url, delay_max=1) as broker:
        publish(broker, queue, 1, headers={"eta": due.isoformat()})
    with (
        connected(curlew_node.url) as broker,
        Consumer(broker.channel(), [queue], callbacks=[print]),
    ):
        wait_until(
            lambda: (
                [
                    each["deliver_time_ms"] == round(due.timestamp() * 1_000)
                    for each in curlew.admin.list_scheduled_messages(name)["messages"]
                ]
                == [True]
            )
        )


def test_a_task_that_curl_sends_needs_no_routing_key(
    broker: Any, name: str, curlew_node: TestNode
) -> None:
    queue = direct(name)
    queue(broker.channel()).declare()
    headers = {"mq-tag": name, "mq-properties": '{"kombu": "{\\"headers\\": {\\"id\\": \\"1\\"}}"}'}
    httpx.post(
        f"{curlew_node.url}/v1/topics/{name}/messages", content=b"x", headers=headers
    ).raise_for_status()
    ((_, message),) = take(broker, queue, 1)
    assert (message.headers, message.delivery_info["routing_key"]) == ({"id": "1"}, name)


@pytest.mark.parametrize("said", ["[]", "no JSON", '{"headers": 1}'])
def test_what_kombu_cannot_have_written_is_a_dead_letter(
    broker: Any, name: str, curlew_node: TestNode, curlew: Client, said: str
) -> None:
    queue = direct(name)
    queue(broker.channel()).declare()
    curlew.send(name, b"x", tag=name, properties={"kombu": said})
    with Consumer(broker.channel(), [queue], callbacks=[lambda _, message: message.ack()]):
        wait_until(lambda: curlew.admin.get_lag(name)["dead"] == 1)


def test_cancelling_and_consuming_again_delivers_nothing_twice(
    broker: Any, curlew: Client, name: str
) -> None:
    queue = direct(name)
    publish(broker, queue, *range(6))
    found: list[int] = []

    def arrived(body: int, message: Any) -> None:
        found.append(body)
        message.ack()

    consumer = Consumer(broker.channel(), [queue], callbacks=[arrived])
    for count in (1, 2, 6):
        consumer.consume()
        while len(found) < count:
            drain(broker)
        wait_until(lambda: curlew.admin.get_lag(name)["in_flight"] <= 6)
        consumer.cancel()
    wait_until(lambda: ready(curlew, name) == 0)
    assert sorted(found) == list(range(6))


def test_two_channels_consume_one_queue(broker: Any, name: str) -> None:
    queue = direct(name)
    found: dict[int, list[int]] = {0: [], 1: []}
    consumers = []
    for number in range(2):

        def arrived(body: int, message: Any, number: int = number) -> None:
            found[number].append(body)
            message.ack()

        consumers.append(Consumer(broker.channel(), [queue], callbacks=[arrived]))
        consumers[-1].consume()
    consumers[1].cancel()
    publish(broker, queue, *range(4))
    while len(found[0]) < 4:
        drain(broker)
    assert found[1] == []


def test_the_channel_has_no_more_than_its_prefetch_of_several_queues(
    broker: Any, name: str
) -> None:
    queues = [direct(f"{name}-{number}") for number in range(3)]
    for queue in queues:
        publish(broker, queue, 1, 2)
    channel = broker.channel()
    channel.basic_qos(0, 1, False)
    held: list[Any] = []
    with Consumer(channel, queues, callbacks=[lambda _, message: held.append(message)]):
        drain(broker)
        with pytest.raises(TimeoutError):
            drain(broker, 0.3)
        channel.basic_qos(0, 4, False)
        for _ in range(3):
            drain(broker)
    assert len(held) == 4


def test_several_are_acked_at_once(broker: Any, curlew: Client, name: str) -> None:
    queue = direct(name)
    publish(broker, queue, 1, 2, 3)
    held: list[Any] = []
    with Consumer(broker.channel(), [queue], callbacks=[lambda _, message: held.append(message)]):
        for _ in range(3):
            drain(broker)
        held[1].ack(multiple=True)
        wait_until(lambda: ready(curlew, name) == 1)

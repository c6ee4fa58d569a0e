"""Exchanges, queues and bindings of kombu over a node, of one program and of several."""

from typing import Any

import pytest
from curlew_client import Client
from curlew_client.testing import TestNode
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.exceptions import ChannelError

from tests.client.celery.brokers import connected, direct, drain, publish, publish_to, take


def test_a_fanout_exchange_gives_to_every_queue_what_comes_after_its_binding(
    broker: Any, curlew: Client, name: str
) -> None:
    news = Exchange(name, type="fanout")
    first, second = (Queue(f"{name}-{n}", news, auto_delete=True) for n in range(2))
    first(broker.channel()).declare()
    Producer(broker.channel()).publish("before", exchange=news, declare=[news])
    second(broker.channel()).declare()
    Producer(broker.channel()).publish("after", exchange=news)
    assert [body for body, _ in take(broker, first, 2)] == ["before", "after"]
    assert [body for body, _ in take(broker, second, 1)] == ["after"]


def test_a_topic_exchange_gives_what_the_pattern_takes(
    broker: Any, curlew: Client, name: str
) -> None:
    events = Exchange(name, type="topic")
    tasks = Queue(f"{name}-tasks", events, routing_key="task.#", auto_delete=True)
    tasks(broker.channel()).declare()
    for key in ("task.sent", "worker.online", "task", "task.sent.late"):
        Producer(broker.channel()).publish(key, exchange=events, routing_key=key)
    found = [body for body, _ in take(broker, tasks, 3)]
    assert sorted(found) == ["task", "task.sent", "task.sent.late"]


def test_a_direct_exchange_parts_by_routing_key(broker: Any, curlew: Client, name: str) -> None:
    shop = Exchange(name)
    paid, sent = (Queue(f"{name}-{key}", shop, routing_key=key) for key in ("paid", "a | *"))
    for queue in (paid, sent):
        queue(broker.channel()).declare()
        Producer(broker.channel()).publish(
            queue.routing_key, exchange=shop, routing_key=queue.routing_key
        )
    assert [body for body, _ in take(broker, paid, 1)] == ["paid"]
    assert [body for body, _ in take(broker, sent, 1)] == ["a | *"]


def test_a_queue_keeps_the_keys_that_other_programs_bound_it_by(
    broker: Any, name: str, curlew_node: TestNode
) -> None:
    shop = Exchange(name)
    Queue(name, shop, routing_key="paid")(broker.channel()).declare()
    with connected(curlew_node.url) as other:
        Queue(name, shop, routing_key="sent")(other.channel()).declare()
        for key in ("paid", "sent", "lost"):
            Producer(other.channel()).publish(key, exchange=shop, routing_key=key)
    with connected(curlew_node.url) as third:
        both = Queue(
            name,
            shop,
            bindings=None,
            routing_key="paid",
        )
        channel = third.channel()
        both(channel).declare()
        channel.queue_bind(name, name, "sent")
        found = [body for body, _ in take(third, both, 2)]
    assert sorted(found) == ["paid", "sent"]


def test_the_default_exchange_reaches_a_queue_by_its_name(broker: Any, name: str) -> None:
    queue = Queue(name)
    queue(broker.channel()).declare()
    Producer(broker.channel()).publish("hello", exchange="", routing_key=name)
    assert [body for body, _ in take(broker, queue, 1)] == ["hello"]


def test_a_passing_queue_goes_with_its_channel_and_a_lasting_one_stays(
    broker: Any, curlew: Client, name: str
) -> None:
    lasting, passing = direct(name), direct(f"{name}-p", auto_delete=True)
    for queue in (lasting, passing):
        with broker.channel() as channel, Consumer(channel, [queue]):
            assert curlew.admin.get_group(queue.name)
    groups = [group["name"] for group in curlew.admin.list_groups(prefix=name)]
    assert groups == [name]


def test_a_deleted_lasting_queue_does_not_give_again_what_is_done(broker: Any, name: str) -> None:
    queue = direct(name)
    publish(broker, queue, 1)
    take(broker, queue, 1)
    publish(broker, queue, 2)
    queue(broker.channel()).delete()
    publish(broker, queue, 3)
    assert [body for body, _ in take(broker, queue, 1)] == [3]


def test_a_prefix_keeps_programs_apart(curlew: Client, name: str, curlew_node: TestNode) -> None:
    with connected(curlew_node.url, prefix=f"{name}-") as one:
        publish(one, direct("celery"), 1)
    assert [each["name"] for each in curlew.admin.list_topics(prefix=name)] == [f"{name}-celery"]


def test_a_bound_queue_reads_the_default_exchange_too(broker: Any, name: str) -> None:
    """Celery publishes so to a queue that is named."""
    queue = Queue(name, Exchange(f"{name}-tasks"), routing_key="high")
    same = Queue(f"{name}-q", Exchange(f"{name}-q"), routing_key="tasks.default")
    for each in (queue, same):
        each(broker.channel()).declare()
        publish_to(broker, "", each.name, "by its name")
        publish_to(broker, each.exchange, each.routing_key, "by its key")
        assert sorted(body for body, _ in take(broker, each, 2)) == ["by its key", "by its name"]


def test_what_another_program_bound_a_queue_by_is_not_dropped(
    broker: Any, name: str, curlew_node: TestNode
) -> None:
    shop = Exchange(name)
    paid = Queue(name, shop, routing_key="paid")
    paid(broker.channel()).declare()
    with connected(curlew_node.url) as other:
        Queue(name, shop, routing_key="sent")(other.channel()).declare()
        publish_to(other, shop, "sent", "sent")
    assert [body for body, _ in take(broker, paid, 1)] == ["sent"]


def test_to_unbind_leaves_what_other_programs_bound(
    broker: Any, name: str, curlew_node: TestNode
) -> None:
    shop = Exchange(name)
    with connected(curlew_node.url) as other:
        for key in ("paid", "sent"):
            Queue(name, shop, routing_key=key)(other.channel()).declare()
    channel = broker.channel()
    shop(channel).declare()
    channel.queue_unbind(name, name, "paid")
    for key in ("paid", "sent"):
        publish_to(broker, shop, key, key)
    assert [body for body, _ in take(broker, Queue(name), 1)] == ["sent"]
    assert broker.channel().basic_get(name) is None


def test_a_passing_queue_is_bound_again_over_another_channel(broker: Any, name: str) -> None:
    """As Celery's remote control does after a command that failed."""
    news = Exchange(name, type="fanout")
    queue = Queue(f"{name}-p", news, auto_delete=True)
    for number in range(2):
        with broker.channel() as channel:
            found: list[int] = []
            consumer = Consumer(channel, [queue])
            consumer.register_callback(lambda body, message, found=found: found.append(body))
            with consumer:
                publish_to(broker, news, "", number)
                drain(broker)
            assert found == [number]


def test_a_queue_that_nobody_read_yet_says_how_many_wait(
    broker: Any, curlew: Client, name: str
) -> None:
    publish(broker, direct(name), 1, 2, 3)
    assert curlew.admin.get_lag(name)["ready"] == 3
    channel = broker.channel()
    assert channel.queue_declare(name, passive=True).message_count == 3
    assert channel.queue_delete(name, if_unused=True) is None
    assert channel.queue_purge(name) == 3
    assert channel.queue_purge(name) == 0


def test_what_was_there_before_a_passing_queue_was_bound_again_does_not_come(
    broker: Any, name: str, curlew_node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program died, and did not delete it; nobody was seen since."""
    monkeypatch.setattr("curlew_client.celery.topology.SEEN_MS", -60_000)
    news = Exchange(name, type="fanout")
    queue = Queue(f"{name}-p", news, auto_delete=True)
    queue(broker.channel()).declare()
    publish_to(broker, news, "", "old")
    with connected(curlew_node.url) as other:
        queue(other.channel()).declare()
        publish_to(other, news, "", "new")
        assert [body for body, _ in take(other, queue, 1)] == ["new"]


def test_what_no_queue_is_for_is_dropped(broker: Any, curlew: Client, name: str) -> None:
    publish_to(broker, "", name, "lost")
    assert not curlew.admin.list_topics(prefix=name)


@pytest.mark.parametrize("key", ["sql:a", "", "*", "k" * 200, "a || b", "é ", "100%"])
def test_odd_routing_keys(broker: Any, name: str, key: str) -> None:
    queue = Queue(name, Exchange(name), routing_key=key)
    bound = queue(broker.channel())
    bound.declare()
    publish_to(broker, queue.exchange, key, "x")
    ((_, message),) = take(broker, queue, 1)
    assert message.delivery_info["routing_key"] == key


def test_exchanges_and_queues_that_are_not_there_are_told(broker: Any, name: str) -> None:
    with pytest.raises(ChannelError, match="no exchange"):
        broker.channel().exchange_declare(name, passive=True)
    with pytest.raises(ChannelError, match="no queue"):
        broker.channel().queue_declare(name, passive=True)
    Exchange(name)(broker.channel()).declare()
    publish_to(broker, Exchange(name), "x", "x")
    with pytest.raises(ValueError, match="client_id"):
        Connection("curlew://", transport_options={"client": {"client_id": "me"}}).connect()


def test_too_many_bindings_are_refused(broker: Any, name: str) -> None:
    queue = direct(name)
    channel = broker.channel()
    queue(channel).declare()
    for number in range(41):
        channel.queue_bind(name, name, f"{number}-" + "k" * 90)
    with pytest.raises(ValueError, match="routing keys of a queue"):
        channel.queue_bind(name, name, "k" * 120 + "-" * 8)

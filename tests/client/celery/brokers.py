"""What the tests of kombu over a node share: connections, and sending and taking over them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from curlew_client import Client
from curlew_client.celery import register
from kombu import Connection, Consumer, Exchange, Producer, Queue

register()  # as importing the package does, whichever module of the tests is the first


@contextmanager
def connected(url: str, **options: Any) -> Iterator[Any]:
    """A connection with a channel; `channel.default_channel` is none of its."""
    broker = f"curlew://{urlsplit(url).netloc}"
    with Connection(broker, transport_options=options) as connection:
        yield connection


def direct(name: str, routing_key: str | None = None, **settings: Any) -> Any:
    return Queue(name, Exchange(name), routing_key=routing_key or name, **settings)


def publish(broker: Any, queue: Any, *bodies: Any, **message: Any) -> None:
    with broker.channel() as channel:
        for body in bodies:
            Producer(channel).publish(
                body,
                exchange=queue.exchange,
                routing_key=message.get("routing_key", queue.routing_key),
                declare=[queue],
                headers=message.get("headers"),
            )


def drain(broker: Any, seconds: float = 20.0) -> None:
    """Deliver one message."""
    broker.drain_events(timeout=seconds)


def drain_on(broker: Any) -> None:
    while True:
        drain(broker)


def take(broker: Any, queue: Any, count: int) -> list[tuple[Any, Any]]:
    """So many messages, each with its body; acked."""
    found: list[tuple[Any, Any]] = []

    def arrived(body: Any, message: Any) -> None:
        found.append((body, message))
        message.ack()

    with Consumer(broker.channel(), [queue], callbacks=[arrived]):
        while len(found) < count:
            drain(broker)
    return found


def ready(curlew: Client, group: str) -> int:
    shown = curlew.admin.get_lag(group)
    return (shown["ready"] or 0) + shown["in_flight"] + shown["retrying"] + shown["delayed"]


def publish_to(broker: Any, exchange: Any, routing_key: str, body: Any) -> None:
    Producer(broker.channel()).publish(body, exchange=exchange, routing_key=routing_key)

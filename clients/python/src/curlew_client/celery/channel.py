"""A channel of kombu: what is declared, published, consumed and settled over it."""

import logging
import threading
import uuid
from collections import deque
from time import time_ns
from typing import Any, Final

from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.virtual.base import queue_declare_ok_t

from curlew_client.celery.consuming import (
    ACK,
    REJECT,
    RELEASE,
    REQUEUE,
    Delivery,
    QueueConsumer,
    Wiring,
)
from curlew_client.celery.payloads import Origin, message_of, payload_of
from curlew_client.celery.topology import Queue, Topology
from curlew_client.errors import CurlewError

LOG: Final = logging.getLogger("curlew_client")
PREFETCH_MAX: Final = 256
"""What a consumer without a prefetch count has at once."""


class QoS(virtual.QoS):  # type: ignore[misc]
    """Keeps the prefetch count alone: who has which message is known by the channel."""

    restore_at_shutdown = False


class Channel(virtual.Channel):  # type: ignore[misc]
    """One channel. Consumes in the thread of its connection; settles in any."""

    QoS = QoS
    do_restore = False
    supports_fanout = True

    def __init__(self, connection: Any, **arguments: Any) -> None:
        super().__init__(connection, **arguments)
        self._topology: Topology = connection.topology
        self._consuming: dict[str, QueueConsumer] = {}
        self._callbacks: dict[str, tuple[Any, bool]] = {}
        self._paused: list[QueueConsumer] = []
        self._passing: dict[str, Queue] = {}
        self._line: deque[tuple[str, Delivery]] = deque()
        """What has come: the consumer tag, and the message."""
        self._held: dict[str, Delivery | _Got] = {}
        """What the program has, by delivery tag."""
        self._lock = threading.Lock()

    # --- what there is

    def exchange_declare(
        self, exchange: str | None = None, type: str = "direct", **arguments: Any
    ) -> None:
        """Declare an exchange; passively: ask whether anybody has."""
        is_known = exchange in self.state.exchanges
        if arguments.pop("passive", False) and exchange and not is_known:
            if not self._topology.has_topic(exchange):
                raise _not_found("exchange", exchange, "exchange_declare")
            return
        super().exchange_declare(exchange, type, **arguments)

    def exchange_delete(self, exchange: str, **_: Any) -> None:
        """Forget an exchange; its topic stays, as others may use it."""
        self.state.exchanges.pop(exchange, None)

    def queue_declare(
        self, queue: str | None = None, passive: bool = False, **arguments: Any
    ) -> Any:
        """Declare a queue: `exclusive` and `auto_delete` ones go with their user."""
        name = queue or f"amq.gen-{uuid.uuid4()}"
        if passive and not self._topology.is_there(name):
            raise _not_found("queue", name, "queue_declare")
        is_passing = bool(arguments.get("exclusive") or arguments.get("auto_delete"))
        declared = self._topology.declare(name, is_passing=is_passing)
        size = self._topology.size(declared) if passive else 0
        return queue_declare_ok_t(name, size, 0)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **_: Any,
    ) -> None:
        """Let a queue read what is published to an exchange."""
        exchange = exchange or "amq.direct"
        if not self.state.has_binding(queue, exchange, routing_key):
            kind = self.typeof(exchange).type
            self._topology.bind(self._declared(queue), exchange, kind, routing_key or "")
            self.state.binding_declare(queue, exchange, routing_key, arguments)

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **_: Any,
    ) -> None:
        """Let it not read that any more."""
        exchange = exchange or "amq.direct"
        self.state.binding_delete(queue, exchange, routing_key)
        self._topology.unbind(self._declared(queue), exchange, routing_key or "")

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        """Delete a queue. One that lasts is emptied; `if_unused` leaves it, as other programs may
        use it."""
        declared = self._declared(queue)
        if if_unused and not declared.is_passing:
            return
        if if_empty and self._topology.size(declared):
            return
        self._delete_now(declared)

    def _delete_now(self, declared: Queue) -> None:
        if declared.is_passing:
            self.state.queue_bindings_delete(declared.name)
        self._topology.delete(declared)

    def queue_purge(self, queue: str, **_: Any) -> int:
        """Pass over what is ready in a queue; how many that are."""
        return self._topology.purge(self._declared(queue))

    def _size(self, queue: str) -> int:
        return self._topology.size(self._declared(queue))

    def _declared(self, name: str) -> Queue:
        return self._topology.queues.get(name) or self._topology.declare(name, is_passing=False)

    # --- sending

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any
    ) -> None:
        """Send, and wait until it is as safe as the topic promises. What the default exchange has
        no queue for is dropped, as AMQP does."""
        topic = self._topology.topic_to_send_to(exchange, routing_key)
        if topic is None:
            LOG.warning("a message for queue %r is dropped: there is no such queue", routing_key)
            return
        self._send(topic, message, Origin(exchange, routing_key))

    def _send(self, topic: str, payload: dict[str, Any], origin: Origin) -> None:
        connection = self.connection
        sent = message_of(payload, origin, time_ns() // 1_000_000, connection.delay_ms_max)
        connection.curlew.send(
            topic,
            sent.body,
            tag=sent.tag,
            keys=sent.keys,
            properties=sent.properties,
            content_type=sent.content_type,
            deliver_at_ms=sent.deliver_at_ms,
        )

    def _send_on(self, topic: str, payload: dict[str, Any]) -> None:
        info = payload["properties"]["delivery_info"]
        self._send(topic, payload, Origin(info["exchange"], info["routing_key"]))

    # --- consuming

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **_: Any
    ) -> None:
        """Consume a queue."""
        for consumer in [each for each in self._paused if each.is_idle]:
            consumer.stop()
            self._paused.remove(consumer)
        declared = self._declared(queue)
        if declared.is_passing:
            self._passing[queue] = declared
        self._begin(consumer_tag, declared)
        self._callbacks[consumer_tag] = callback, no_ack
        self._tag_to_queue[consumer_tag] = queue
        self._consumers.add(consumer_tag)

    def _begin(self, consumer_tag: str, declared: Queue) -> None:
        def arrived(delivery: Delivery) -> None:
            self._line.append((consumer_tag, delivery))
            connection.wake()

        connection = self.connection
        wiring = Wiring(connection.worker, arrived, self._send_on, connection.lease)
        prefetch = self.qos.prefetch_count or PREFETCH_MAX
        sources = self._topology.sources_of(declared)
        consumer = QueueConsumer(declared, sources, prefetch, wiring)
        consumer.start()
        self._consuming[consumer_tag] = consumer

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False
    ) -> None:
        """How many messages the program may have. Consumers of fewer begin anew."""
        self.qos.prefetch_count = prefetch_count
        for consumer_tag, consumer in list(self._consuming.items()):
            if consumer.prefetch < (prefetch_count or PREFETCH_MAX):
                self._pause(consumer_tag)
                self._begin(consumer_tag, consumer.queue)
        self.connection.wake()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Read a queue no more; what was delivered can still be settled."""
        self._consumers.discard(consumer_tag)
        self._tag_to_queue.pop(consumer_tag, None)
        self._callbacks.pop(consumer_tag, None)
        self._pause(consumer_tag)

    def _pause(self, consumer_tag: str) -> None:
        consumer = self._consuming.pop(consumer_tag, None)
        if consumer is not None:
            consumer.pause()
            self._paused.append(consumer)

    def deliver_next(self) -> bool:
        """Call the consumer of the next message; False when there is none, or the program has as
        many as it may. Raises what ended one of the consumers."""
        for consumer in self._consuming.values():
            consumer.check()
        while self._line and self._has_room():
            consumer_tag, delivery = self._line.popleft()
            found = self._callbacks.get(consumer_tag)
            if found is None:
                delivery.give_back()
            elif delivery.take():
                callback, no_ack = found
                callback(self._message(delivery, is_acked=no_ack))
                return True
        return False

    def _has_room(self) -> bool:
        prefetch: int = self.qos.prefetch_count
        return not prefetch or len(self._held) < prefetch

    def _message(self, delivery: Delivery, *, is_acked: bool) -> Any:
        tag = delivery.payload["properties"]["delivery_tag"]
        if is_acked:
            delivery.settle(ACK)
        else:
            with self._lock:
                self._held[tag] = delivery
        return self.Message(delivery.payload, channel=self)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """One message, or None when there is none."""
        declared = self._declared(queue)
        for source in self._topology.sources_of(declared):
            while found := self.connection.curlew.receive_batch(
                source.topic,
                group=declared.group,
                max_messages=1,
                invisible=self.connection.lease.hold_s,
            ):
                (message,) = found
                tag = uuid.uuid4().hex
                payload = payload_of(message, tag, source.exchange)
                if not source.takes(payload["properties"]["delivery_info"]["routing_key"]):
                    message.ack()
                    continue
                if no_ack:
                    message.ack()
                else:
                    with self._lock:
                        self._held[tag] = _Got(message)
                return self.Message(payload, channel=self)
        return None

    # --- settling

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """It is done; with `multiple` all that came before it, too."""
        tags = [delivery_tag]
        if multiple:
            with self._lock:
                held = list(self._held)
            if delivery_tag in held:
                tags = held[: held.index(delivery_tag) + 1]
        for tag in tags:
            self._settle(tag, ACK)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Deliver it again at once, or let it be a dead letter of the queue's group."""
        self._settle(delivery_tag, REQUEUE if requeue else REJECT)

    def basic_recover(self, requeue: bool = False) -> None:
        """Release what is not settled."""
        with self._lock:
            held, self._held = self._held, {}
        for delivery in held.values():
            try:
                delivery.settle(RELEASE)
            except (CurlewError, ValueError) as error:
                LOG.warning("a message is not released, and comes again later: %s", error)

    def _settle(self, delivery_tag: str, how: str) -> None:
        with self._lock:
            delivery = self._held.pop(delivery_tag, None)
        if delivery is not None:
            delivery.settle(how)
            connection = self.connection
            if connection is not None:
                connection.wake()

    # --- the end

    def close(self) -> None:
        """Release what is not settled, stop, and delete the queues that go with this channel."""
        if self.closed:
            return
        try:
            for consumer_tag in list(self._consuming):
                self.basic_cancel(consumer_tag)
            self.basic_recover(requeue=True)
            while self._paused:
                self._paused.pop().stop()
            for declared in self._passing.values():
                self._delete_quietly(declared)
        finally:
            self._consumers.clear()
            super().close()

    def _delete_quietly(self, declared: Queue) -> None:
        try:
            self._delete_now(declared)
        except CurlewError as error:
            LOG.warning("queue %r is not deleted: %s", declared.name, error)

    def forget(self) -> None:
        """In a forked process: nothing of this is ours."""
        self.closed = True


class _Got:
    """A message of `basic_get`, which is settled at once."""

    def __init__(self, message: Any) -> None:
        self._message = message

    def settle(self, how: str) -> None:
        """Raises what the node says against it."""
        if how == ACK:
            self._message.ack()
        elif how == REQUEUE:
            self._message.nack(0)
        elif how == REJECT:
            self._message.dead_letter("rejected")
        else:
            self._message.release()


def _not_found(what: str, name: str, method: str) -> ChannelError:
    return ChannelError(
        f"NOT_FOUND - there is no {what} {name!r}", (50, 10), f"Channel.{method}", "404"
    )

"""Who consumes a queue: a worker in the background, whose messages wait for the program's acks.

kombu asks for messages in one thread, and settles them in any. A message is a handler's call that
waits until it is settled; so the worker of this package bounds what is under way, extends leases,
settles many at once, and releases what nobody has begun.
"""

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from time import time_ns
from typing import Any, Final, NamedTuple

from curlew_client.celery.payloads import due_ms_of, payload_of
from curlew_client.celery.topology import Queue, Source
from curlew_client.consuming.messages import Received
from curlew_client.errors import DeadLetter, Retry
from curlew_client.worker import Worker

LOG: Final = logging.getLogger("curlew_client")
DRAIN_S: Final = 5.0
"""How long a stop waits until the node has heard what was settled."""
EARLY_MS: Final = 60_000
"""A task that is due in less time waits in the program: clocks differ, and the node rounds."""

ACK: Final = "ack"
REQUEUE: Final = "requeue"
"""Hand it back at once, with its attempt counted, so that it ends as a dead letter one day."""
REJECT: Final = "reject"
RELEASE: Final = "release"


class Delivery:
    """A message that came for the program: it is taken once, or given back; then settled once.

    Any thread may call `take`, `give_back` and `settle`.
    """

    def __init__(self, message: Received[Any], payload: dict[str, Any]) -> None:
        """On the event loop of its worker."""
        self.message = message
        self.payload = payload
        self._loop = asyncio.get_running_loop()
        self._settled: asyncio.Future[str] = self._loop.create_future()
        self._lock = threading.Lock()
        self._waits = True

    def take(self) -> bool:
        """Whether the program has it from now on; False: it was given back."""
        with self._lock:
            is_first, self._waits = self._waits, False
        return is_first

    def give_back(self) -> None:
        """Release it, unless the program has it."""
        if self.take():
            self.settle(RELEASE)

    async def settled(self) -> str:
        """How, when it is."""
        return await self._settled

    def settle(self, how: str) -> None:
        """A second settling is nothing, and neither is one after the end of the worker: the message
        comes again then."""
        try:
            self._loop.call_soon_threadsafe(self._settle, how)
        except RuntimeError:
            LOG.warning("%r is settled after its consumer has ended: it comes again", self.message)

    def _settle(self, how: str) -> None:
        if not self._settled.done():
            self._settled.set_result(how)


class Lease(NamedTuple):
    """How long a message is one consumer's."""

    invisible_s: float
    """Without an extension; the worker extends it."""
    hold_s: float
    """With all of them."""


class Wiring(NamedTuple):
    """What a consumer needs of its channel."""

    worker: Callable[[], Worker]
    arrived: Callable[[Delivery], None]
    """On the event loop of the worker."""
    send_on: Callable[[str, dict[str, Any]], None]
    """Send a task to the topic again, which waits there for its time. Blocks."""
    lease: Lease


class QueueConsumer:
    """Reads one queue until it is stopped.

    Its worker is a client of its own: several channels may consume one queue, and who is cancelled
    may still have messages when the next one begins.
    """

    def __init__(
        self, declared: Queue, sources: Sequence[Source], prefetch: int, wiring: Wiring
    ) -> None:
        self.queue = declared
        self.prefetch = prefetch
        self._wiring = wiring
        self._held: set[Delivery] = set()
        self._is_over = threading.Event()
        self._process = os.getpid()
        self._worker = wiring.worker()
        for source in sources:
            register = self._worker.consumer(
                source.topic,
                group=declared.group,
                concurrency=prefetch,
                max_messages=prefetch,
                invisible=wiring.lease.invisible_s,
                consume_timeout=wiring.lease.hold_s,
            )
            register(self._handler(source))

    def _handler(self, source: Source) -> Any:
        async def handle(message: Received[Any]) -> None:
            try:
                payload = payload_of(message, uuid.uuid4().hex, source.exchange)
            except ValueError as wrong:
                raise DeadLetter(str(wrong)) from wrong
            if not source.takes(payload["properties"]["delivery_info"]["routing_key"]):
                return  # of a topic exchange, and not for this queue: done
            if due_ms_of(payload["headers"]) > time_ns() // 1_000_000 + EARLY_MS:
                await asyncio.to_thread(self._wiring.send_on, source.topic, payload)
                return
            await self._deliver(Delivery(message, payload))

        return handle

    async def _deliver(self, delivery: Delivery) -> None:
        self._held.add(delivery)
        try:
            self._wiring.arrived(delivery)
            if self._is_over.is_set():
                delivery.give_back()
            how = await delivery.settled()
        finally:
            self._held.discard(delivery)
        if how == REQUEUE:
            raise Retry(delay=0)
        if how == REJECT:
            raise DeadLetter("rejected")
        if how == RELEASE:
            await delivery.message.release()

    def start(self) -> None:
        """Begin to read."""
        self._worker.start()

    def check(self) -> None:
        """Raise what ended the worker."""
        failure = self._worker.failure
        if failure is not None:
            raise failure

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be settled."""
        return not self._held

    def pause(self) -> None:
        """Read nothing more, and release what the program has not taken; what it has can still be
        settled."""
        self._is_over.set()
        if self._process != os.getpid():
            return
        self._worker.pause(self.queue.group)
        for delivery in list(self._held):
            delivery.give_back()

    def stop(self) -> None:
        """End; what is not settled is released, and others get it at once. What had ended the
        worker before is told in the log. In a process that was forked since: nothing."""
        self._is_over.set()
        if self._process != os.getpid():
            return
        for delivery in list(self._held):
            delivery.take()
            delivery.settle(RELEASE)
        try:
            self._worker.stop()
        except Exception as error:  # noqa: BLE001  # the others have to be stopped, too
            LOG.warning("the consumer of queue %r had ended: %s", self.queue.name, error)

"""Batches of `send_async`: what waits to be sent together, and the futures of it.

A batch is open until it is full or its linger is over. Messages for one named queue, and those with
sharding keys, go one batch after the other, which keeps their order; others go at once. Bounded by
`under_way_messages` and `under_way_bytes`, of all batches together.

Thread-safe: threads add, and one event loop sends.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final, NamedTuple

from curlew_client.errors import CurlewError
from curlew_client.producing.messages import Message
from curlew_client.results import SendResult

LOG: Final = logging.getLogger("curlew_client")

Callback = Callable[["SendFuture"], object]


class BatchKey(NamedTuple):
    """Messages of one key go together."""

    topic: str
    queue_id: int | None
    is_framed: bool
    is_one_way: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether one batch has to be over before the next one goes."""
        return self.queue_id is not None or not self.is_framed


class Batch:
    """Messages that go in one request, and where their results are put."""

    __slots__ = ("_callbacks", "_event", "_lock", "key", "messages", "opened_s", "results", "size")

    def __init__(self, key: BatchKey, opened_s: float) -> None:
        self.key = key
        self.opened_s = opened_s
        self.messages: list[Message] = []
        self.size = 0
        self.results: Sequence[SendResult | CurlewError] | CurlewError | None = None
        self._lock = threading.Lock()
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] = []

    def resolve(self, results: Sequence[SendResult | CurlewError] | CurlewError) -> None:
        """What became of the messages. Callbacks run in this thread."""
        with self._lock:
            self.results = results
            callbacks, self._callbacks = self._callbacks, []
            event = self._event
        if event is not None:
            event.set()
        for callback in callbacks:
            _call(callback)

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back when there are results, or now."""
        with self._lock:
            if self.results is None:
                self._callbacks.append(callback)
                return
        _call(callback)

    def wait(self, timeout_s: float | None) -> bool:
        """Block the thread until there are results; whether there are."""
        with self._lock:
            if self.results is not None:
                return True
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return event.wait(timeout_s)


def _call(callback: Callable[[], object]) -> None:
    """What it raises keeps nothing from the other messages of the batch, and from those behind."""
    try:
        callback()
    except Exception:
        LOG.exception("a callback of a sent message failed")


class SendFuture:
    """The result of one `send_async`. Wait for it with `result()`, or `await` it."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether there is a result."""
        return self._batch.results is not None

    def result(self, timeout: float | None = None) -> SendResult:
        """The result, or the `CurlewError` raised. Blocks; `TimeoutError` after `timeout` s."""
        found = self._found(timeout)
        if isinstance(found, CurlewError):
            raise found
        return found

    def exception(self, timeout: float | None = None) -> CurlewError | None:
        """The error, or None. Blocks as `result` does."""
        found = self._found(timeout)
        return found if isinstance(found, CurlewError) else None

    def add_done_callback(self, callback: Callback) -> None:
        """Call back with this future, in the thread that learns the result."""
        self._batch.when_done(lambda: callback(self))

    def _found(self, timeout: float | None) -> SendResult | CurlewError:
        if not self._batch.wait(timeout):
            raise TimeoutError(f"no result within {timeout} s; the message is still under way")
        results = self._batch.results
        if results is None:
            raise CancelledError
        return results if isinstance(results, CurlewError) else results[self._index]

    def __await__(self) -> Generator[Any, None, SendResult]:
        if not self.done():
            yield from _until_done(self._batch).__await__()
        return self.result(0)


async def _until_done(batch: Batch) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    batch.when_done(lambda: loop.call_soon_threadsafe(wake))
    await waiter


Added = tuple[SendFuture, bool]
"""A message was added; whether the sending loop has to look."""


class Batches:
    """All batches of one client."""

    def __init__(
        self,
        *,
        messages_max: int,
        bytes_max: int,
        under_way_messages: int,
        under_way_bytes: int,
        linger_s: float,
    ) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._room_messages = under_way_messages
        self._room_bytes = under_way_bytes
        self._bytes_limit = under_way_bytes
        self._linger_s = linger_s
        self._open: dict[tuple[str, int | None, bool, bool], Batch] = {}
        self._full: deque[Batch] = deque()
        self._busy: set[BatchKey] = set()
        self._held: dict[BatchKey, deque[Batch]] = {}
        """Batches of ordered keys that wait for the one before."""
        self._lock = threading.Lock()
        self.room = threading.Condition(self._lock)

    def add(
        self, topic: str, message: Message, now_s: float, *, is_one_way: bool = False
    ) -> Added | None:
        """Add a message; None: there is no room."""
        is_framed = (  # as `Message.is_framed` has it, without the call
            message.sharding_key is None and message.delay is None and message.deliver_at_ms is None
        )
        size = len(message.body) + 64 if message.properties is None else message.size
        key = (topic, message.queue_id, is_framed, is_one_way)
        with self._lock:
            is_alone = self._room_bytes == self._bytes_limit  # any one message fits
            if self._room_messages <= 0 or (self._room_bytes < size and not is_alone):
                return None
            self._room_messages -= 1
            self._room_bytes -= size
            batch = self._open.get(key)
            wakes = batch is None
            if batch is None:
                batch = self._open[key] = Batch(BatchKey(*key), now_s)
            messages = batch.messages
            messages.append(message)
            batch.size += size
            count = len(messages)
            if count >= self._messages_max or batch.size >= self._bytes_max:
                del self._open[key]
                self._full.append(batch)
                wakes = True
            return SendFuture(batch, count - 1), wakes

    def ready(self, now_s: float, *, all_of_them: bool = False) -> list[Batch]:
        """Batches to send now; each must be given to `over` afterwards."""
        with self._lock:
            found = list(self._full)
            self._full.clear()
            for key, batch in list(self._open.items()):
                if all_of_them or batch.opened_s + self._linger_s <= now_s:
                    del self._open[key]
                    found.append(batch)
            return [batch for batch in found if self._may_go(batch)]

    def _may_go(self, batch: Batch) -> bool:
        key = batch.key
        if not key.is_ordered:
            return True
        if key in self._busy:
            self._held.setdefault(key, deque()).append(batch)
            return False
        self._busy.add(key)
        return True

    def next_due_s(self) -> float | None:
        """When the linger of an open batch is over; None: there is none."""
        with self._lock:
            opened = min((batch.opened_s for batch in self._open.values()), default=None)
        return None if opened is None else opened + self._linger_s

    def over(self, batch: Batch) -> Batch | None:
        """A batch has its results; the one of its key that goes now."""
        with self.room:
            self._room_messages += len(batch.messages)
            self._room_bytes += batch.size
            self.room.notify_all()
            key = batch.key
            if not key.is_ordered:
                return None
            held = self._held.get(key)
            if held:
                return held.popleft()
            self._held.pop(key, None)
            self._busy.discard(key)
            return None

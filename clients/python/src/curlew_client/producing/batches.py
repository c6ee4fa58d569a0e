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
from time import monotonic
from typing import Any, Final, NamedTuple

from curlew_client.errors import ClientClosed, CurlewError
from curlew_client.producing.messages import BESIDE_BYTES, Waiting, size_of
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

    __slots__ = (
        *("_callbacks", "_event", "_lock", "bytes_granted", "key", "messages", "messages_granted"),
        *("opened_s", "results", "size"),
    )

    def __init__(self, key: BatchKey, opened_s: float) -> None:
        self.key = key
        self.opened_s = opened_s
        self.messages: list[Waiting] = []
        self.size = 0
        self.messages_granted = self.bytes_granted = 0
        """Up to where it may grow without a look at the room for all."""
        self.results: Sequence[SendResult | CurlewError] | CurlewError | None = None
        self._lock = threading.Lock()
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] = []

    def resolve(self, results: Sequence[SendResult | CurlewError] | CurlewError) -> None:
        """What became of the messages, of which nothing else is kept: futures may be kept for long.
        Callbacks run in this thread."""
        with self._lock:
            self.results = results
            self.messages = []
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


_Key = tuple[str, int | None, bool, bool]
"""A `BatchKey`, made faster."""


class Batches:
    """All batches of one client.

    `call`: called, in any thread, when the sending loop has to look: at `ready`, and afterwards at
    `next_due_s`, which says when it looks again by itself. `clock`: monotonic seconds.
    """

    def __init__(
        self,
        call: Callable[[], object],
        clock: Callable[[], float] = monotonic,
        *,
        messages_max: int,
        bytes_max: int,
        under_way_messages: int,
        under_way_bytes: int,
        linger_s: float,
    ) -> None:
        self._call = call
        self._clock = clock
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._room_messages = under_way_messages
        self._room_bytes = under_way_bytes
        self._bytes_limit = under_way_bytes
        self._linger_s = linger_s
        self._open: dict[_Key, Batch] = {}
        self._full: deque[Batch] = deque()
        self._busy: set[BatchKey] = set()
        self._held: dict[BatchKey, deque[Batch]] = {}
        """Batches of ordered keys that wait for the one before."""
        self._is_called = False
        """The loop has to look, and knows it."""
        self._is_timed = False
        """The loop looks again when the linger of the oldest open batch is over, or before."""
        self._is_closed = False
        self._lock = threading.Lock()
        self._waiting: list[threading.Lock] = []
        """Of threads that wait for room: each waits for its own, which is held until then. No
        `Condition`, as Ctrl-C within its Python code leaves the lock taken, or given back twice."""

    def add(self, topic: str, message: Waiting, is_one_way: bool = False) -> SendFuture | None:
        """Add a message; None: there is no room. Raises `ClientClosed` after `close`."""
        if isinstance(message, bytes):
            key: _Key = (topic, None, True, is_one_way)
            size = len(message) + BESIDE_BYTES
        else:
            key, size = (topic, message.queue_id, message.is_framed, is_one_way), message.size
        try:
            with self._lock:
                batch = self._open.get(key)
                if batch is not None:
                    messages = batch.messages
                    index, bytes_then = len(messages), batch.size + size
                    if index < batch.messages_granted and bytes_then <= batch.bytes_granted:
                        messages.append(message)
                        batch.size = bytes_then
                        return SendFuture(batch, index)
                self._check_open()
                if not self._fits(size):
                    return None
                batch, calls = self._added(key, message, size)
                future = SendFuture(batch, len(batch.messages) - 1)
            if calls:
                self._call()
        except BaseException:  # such as Ctrl-C, before the loop was called or while it was
            self._forget_call()
            raise
        return future

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the client is closing; make another one")

    def _forget_call(self) -> None:
        """Nobody knows whether the loop was called: the next message calls it."""
        with self._lock:
            self._is_called = False
            self._ungrant_all()

    def _added(self, key: _Key, message: Waiting, size: int) -> tuple[Batch, bool]:
        """The batch that has the message now, and whether the loop has to be called."""
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = Batch(BatchKey(*key), self._clock())
        batch.messages.append(message)
        batch.size += size
        self._ungrant(batch)
        will_look = self._is_called
        if len(batch.messages) >= self._messages_max or batch.size >= self._bytes_max:
            del self._open[key]
            self._full.append(batch)
        else:
            self._grant(batch)
            will_look |= self._is_timed
        self._is_called |= not will_look
        return batch, not will_look

    def close(self) -> None:
        """Take no more messages, not of those either who wait for room: when all has gone that is
        there, nobody looks for more."""
        with self._lock:
            self._is_closed = True
            self._ungrant_all()
            self._let_waiting_look()

    def _grant(self, batch: Batch) -> None:
        """Room for messages that then need no reckoning: at most all but the one that makes it
        full, and of all open batches at most half of what is left, as others come."""
        shares = 2 * len(self._open)
        messages = min(self._messages_max - 1 - len(batch.messages), self._room_messages // shares)
        size = min(self._bytes_max - 1 - batch.size, self._room_bytes // shares)
        if messages > 0 and size > 0:
            batch.messages_granted += messages
            batch.bytes_granted += size
            self._room_messages -= messages
            self._room_bytes -= size

    def _ungrant(self, batch: Batch) -> None:
        """Take back what it has not used, and from the room what it has used beyond that: so what
        is cut off between two steps of an `add` is reckoned here."""
        count = len(batch.messages)
        self._room_messages += batch.messages_granted - count
        self._room_bytes += batch.bytes_granted - batch.size
        batch.messages_granted, batch.bytes_granted = count, batch.size

    def _ungrant_all(self) -> None:
        for batch in self._open.values():
            self._ungrant(batch)

    def wait_for_room(self, message: Waiting, timeout_s: float) -> None:
        """Block the thread until the message may fit, or is refused, or the time is over."""
        size = size_of(message)
        turn = threading.Lock()
        turn.acquire()
        with self._lock:
            if self._is_closed or self._fits(size):
                return
            self._waiting.append(turn)
        try:
            turn.acquire(timeout=timeout_s)
        finally:
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)

    def _let_waiting_look(self) -> None:
        for turn in self._waiting:
            turn.release()
        self._waiting.clear()

    def _fits(self, size: int) -> bool:
        """Whether there is room; any one message fits alone."""
        if self._room_messages > 0 and self._room_bytes >= size:
            return True
        self._ungrant_all()
        is_alone = self._room_bytes == self._bytes_limit
        return self._room_messages > 0 and (self._room_bytes >= size or is_alone)

    def ready(self, *, all_of_them: bool = False) -> list[Batch]:
        """Batches to send now; each must be given to `over` afterwards."""
        now_s = self._clock()
        with self._lock:
            self._is_called = self._is_timed = False
            found = list(self._full)
            self._full.clear()
            for key, batch in list(self._open.items()):
                if all_of_them or batch.opened_s + self._linger_s <= now_s:
                    self._ungrant(batch)
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
        """When the linger of an open batch is over, and the loop looks; None: there is none."""
        with self._lock:
            opened = min((batch.opened_s for batch in self._open.values()), default=None)
            self._is_timed = opened is not None
        return None if opened is None else opened + self._linger_s

    def over(self, batch: Batch) -> Batch | None:
        """A batch has its results; the one of its key that goes now."""
        with self._lock:
            self._room_messages += len(batch.messages)
            self._room_bytes += batch.size
            self._let_waiting_look()
            key = batch.key
            if not key.is_ordered:
                return None
            held = self._held.get(key)
            if held:
                return held.popleft()
            self._held.pop(key, None)
            self._busy.discard(key)
            return None

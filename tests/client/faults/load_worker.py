"""One process of a history that uses the Python client: its producers, its worker.

    python -m tests.client.faults.load_worker ROLE PORT FILE NAME SEED INVISIBLE_MS

Roles: `send` sends one message after the other, `gather` many at once with asyncio, `hurry` does
the same and gives each up soon, `batch` sends by `send_async`; `work` and `poll` run a `Worker`, by
lease or with assigned queues, in a group of its own and record what its handler did; the handlers
of `fail` and `block`, which share the group of `work`, raise, hang beyond their leases, or stop the
event loop before they do it.
"""

import asyncio
import os
import signal
import threading
from time import monotonic
from typing import Any, Final

import curlew_client
from curlew_client import AsyncClient, Client, CurlewError, SendFuture, SendResult

from tests.history.events import Seen, Sent
from tests.history.worker import KEYS, STOPPING, TOPIC, Worker, run

WORKED: Final = "worked"
POLLED: Final = "polled"
AT_ONCE: Final = 8
HASTE: Final = "300ms"


class ClientWorker(Worker):
    """Records what the client says of each message."""

    timeout = "60s"
    sent_count = 0

    def options(self) -> dict[str, Any]:
        """Of a client: it loses patience at its timeout, and not before."""
        return {"timeout": self.timeout, "retries": 1_000, "async_retries": 1_000}

    def goes_on(self) -> bool:
        """Whether a producer sends more."""
        return not STOPPING.is_set()

    def _body(self) -> str:
        self.sent_count += 1
        return f"{self.name}.{self.sent_count}"

    def _next(self) -> tuple[str, str]:
        return self._body(), f"key{self.random.randrange(KEYS)}.{self.name}"

    def note(self, began_s: float, sent: tuple[str, str], result: SendResult | CurlewError) -> None:
        """Record what became of a message."""
        body, key = sent
        if isinstance(result, CurlewError):
            is_certain = result.outcome == "not_stored"
            place = "refused" if is_certain else "unknown", body, key, -1, -1
        elif result.queue_id is None or result.queue_offset is None:
            place = "unknown", body, key, -1, -1  # stored, and where is forgotten
        else:
            place = "ok", body, key, result.queue_id, result.queue_offset
        self.record(Sent(began_s, monotonic(), *place))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.client.port}"

    def send(self) -> None:
        with Client(self.url, **self.options()) as curlew:
            while self.goes_on():
                body, key = self._next()
                began_s = monotonic()
                result: SendResult | CurlewError
                try:
                    result = curlew.send(TOPIC, body, sharding_key=key)
                except CurlewError as error:
                    result = error
                self.note(began_s, (body, key), result)
                STOPPING.wait(self.pause_s)

    def gather(self) -> None:
        async def one(curlew: AsyncClient) -> None:
            body, key = self._next()
            began_s = monotonic()
            result: SendResult | CurlewError
            try:
                result = await curlew.send(TOPIC, body, sharding_key=key)
            except CurlewError as error:
                result = error
            self.note(began_s, (body, key), result)

        async def work() -> None:
            async with AsyncClient(self.url, **self.options()) as curlew:
                while self.goes_on():
                    await asyncio.gather(*(one(curlew) for _ in range(AT_ONCE)))
                    await asyncio.sleep(AT_ONCE * self.pause_s)

        asyncio.run(work())

    def hurry(self) -> None:
        """What it gives up may be stored later."""
        self.timeout = HASTE
        self.gather()

    def batch(self) -> None:
        """Without keys, so that batch frames carry them, whose order nobody promises."""
        with Client(self.url, **self.options()) as curlew:
            while self.goes_on():
                sent: list[tuple[str, SendFuture]] = []
                began_s = monotonic()
                for _ in range(4 * AT_ONCE):
                    body = self._body()
                    sent.append((body, curlew.send_async(TOPIC, body)))
                for body, future in sent:
                    error = future.exception()
                    self.note(began_s, (body, ""), error or future.result())
                STOPPING.wait(4 * AT_ONCE * self.pause_s)

    def worker(self) -> curlew_client.Worker:
        return curlew_client.Worker(self.url)

    def work(self) -> None:
        worker = self.worker()

        @worker.consumer(TOPIC, group=WORKED, concurrency=4, invisible="2s")
        def handle(message: curlew_client.Received[None]) -> None:
            self._see(message)

        self.run(worker)

    def fail(self) -> None:
        """A handler that raises, and hangs until its lease is over."""
        worker = curlew_client.Worker(self.url)

        @worker.consumer(TOPIC, group=WORKED, concurrency=2, invisible="1s", consume_timeout="1s")
        def handle(message: curlew_client.Received[None]) -> None:
            chance = self.random.random()
            if chance < 0.02:
                STOPPING.wait(3)
            elif chance < 0.2:
                raise RuntimeError("the handler of this history fails")
            self._see(message)

        self.run(worker)

    def block(self) -> None:
        """A handler that blocks the event loop until its leases are over."""
        worker = curlew_client.Worker(self.url)

        @worker.consumer(TOPIC, group=WORKED, concurrency=4, invisible="1s")
        async def handle(message: curlew_client.Received[None]) -> None:
            if self.random.random() < 0.01:
                STOPPING.wait(2)
            self._see(message)

        self.run(worker)

    def poll(self) -> None:
        worker = self.worker()

        @worker.assigned_consumer(TOPIC, group=POLLED, concurrency=4)
        def handle(message: curlew_client.Received[None]) -> None:
            self._see(message)
            if self.random.randrange(10) == 0:
                raise curlew_client.Retry(delay="0s")

        self.run(worker)

    def _see(self, message: curlew_client.Received[None]) -> None:
        now_s = monotonic()
        self.record(Seen(now_s, now_s, [message.text], is_whole=False))

    def run(self, worker: curlew_client.Worker) -> None:
        """Until SIGTERM."""

        def stop() -> None:
            STOPPING.wait()
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=stop, daemon=True).start()
        worker.run()


if __name__ == "__main__":
    run(
        ClientWorker,
        {
            "send": ClientWorker.send,
            "gather": ClientWorker.gather,
            "hurry": ClientWorker.hurry,
            "batch": ClientWorker.batch,
            "work": ClientWorker.work,
            "poll": ClientWorker.poll,
            "fail": ClientWorker.fail,
            "block": ClientWorker.block,
        },
    )

"""One process of a history that uses the Python client: its producers, its worker.

    python -m tests.client.faults.load_worker ROLE PORT FILE NAME SEED INVISIBLE_MS

Roles: `send` sends one message after the other, `gather` many at once with asyncio, `batch` by
`send_async`; `work` and `poll` run a `Worker`, by lease or with assigned queues, in a group of its
own and record what its handler did; the handlers of `fail` and `block`, which share the group of
`work`, raise, hang beyond their leases, or stop the event loop before they do it.
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
PATIENT: Final[dict[str, Any]] = {"timeout": "60s", "retries": 1_000, "async_retries": 1_000}


class ClientWorker(Worker):
    """Records what the client says of each message."""

    def _next(self, number: int) -> tuple[str, str]:
        return f"{self.name}.{number}", f"key{self.random.randrange(KEYS)}.{self.name}"

    def _note(
        self, began_s: float, sent: tuple[str, str], result: SendResult | CurlewError
    ) -> None:
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
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.client.port}"

    def send(self) -> None:
        with Client(self._url, **PATIENT) as curlew:
            number = 0
            while not STOPPING.is_set():
                number += 1
                body, key = self._next(number)
                began_s = monotonic()
                result: SendResult | CurlewError
                try:
                    result = curlew.send(TOPIC, body, sharding_key=key)
                except CurlewError as error:
                    result = error
                self._note(began_s, (body, key), result)
                STOPPING.wait(self.pause_s)

    def gather(self) -> None:
        async def one(curlew: AsyncClient, number: int) -> None:
            body, key = self._next(number)
            began_s = monotonic()
            result: SendResult | CurlewError
            try:
                result = await curlew.send(TOPIC, body, sharding_key=key)
            except CurlewError as error:
                result = error
            self._note(began_s, (body, key), result)

        async def work() -> None:
            async with AsyncClient(self._url, **PATIENT) as curlew:
                number = 0
                while not STOPPING.is_set():
                    await asyncio.gather(*(one(curlew, number + n) for n in range(AT_ONCE)))
                    number += AT_ONCE
                    await asyncio.sleep(AT_ONCE * self.pause_s)

        asyncio.run(work())

    def batch(self) -> None:
        """Without keys, so that batch frames carry them, whose order nobody promises."""
        with Client(self._url, **PATIENT) as curlew:
            number = 0
            while not STOPPING.is_set():
                sent: list[tuple[str, SendFuture]] = []
                began_s = monotonic()
                for _ in range(4 * AT_ONCE):
                    number += 1
                    body = f"{self.name}.{number}"
                    sent.append((body, curlew.send_async(TOPIC, body)))
                for body, future in sent:
                    error = future.exception()
                    self._note(began_s, (body, ""), error or future.result())
                STOPPING.wait(4 * AT_ONCE * self.pause_s)

    def work(self) -> None:
        worker = curlew_client.Worker(self._url)

        @worker.consumer(TOPIC, group=WORKED, concurrency=4, invisible="2s")
        def handle(message: curlew_client.Received[None]) -> None:
            self._see(message)

        self._run(worker)

    def fail(self) -> None:
        """A handler that raises, and hangs until its lease is over."""
        worker = curlew_client.Worker(self._url)

        @worker.consumer(TOPIC, group=WORKED, concurrency=2, invisible="1s", consume_timeout="1s")
        def handle(message: curlew_client.Received[None]) -> None:
            chance = self.random.random()
            if chance < 0.02:
                STOPPING.wait(3)
            elif chance < 0.2:
                raise RuntimeError("the handler of this history fails")
            self._see(message)

        self._run(worker)

    def block(self) -> None:
        """A handler that blocks the event loop until its leases are over."""
        worker = curlew_client.Worker(self._url)

        @worker.consumer(TOPIC, group=WORKED, concurrency=4, invisible="1s")
        async def handle(message: curlew_client.Received[None]) -> None:
            if self.random.random() < 0.01:
                STOPPING.wait(2)
            self._see(message)

        self._run(worker)

    def poll(self) -> None:
        worker = curlew_client.Worker(self._url)

        @worker.assigned_consumer(TOPIC, group=POLLED, concurrency=4)
        def handle(message: curlew_client.Received[None]) -> None:
            self._see(message)
            if self.random.randrange(10) == 0:
                raise curlew_client.Retry(delay="0s")

        self._run(worker)

    def _see(self, message: curlew_client.Received[None]) -> None:
        now_s = monotonic()
        self.record(Seen(now_s, now_s, [message.text], is_whole=False))

    def _run(self, worker: curlew_client.Worker) -> None:
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
            "batch": ClientWorker.batch,
            "work": ClientWorker.work,
            "poll": ClientWorker.poll,
            "fail": ClientWorker.fail,
            "block": ClientWorker.block,
        },
    )

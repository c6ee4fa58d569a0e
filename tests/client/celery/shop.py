"""A program with tasks, for the tests: what was done is a line of a file."""

import os
import time
from pathlib import Path
from typing import Any

import curlew_client.celery
from celery import Celery

curlew_client.celery.register()
DONE = Path(os.environ["SHOP_DONE"])
app = Celery("shop", broker=os.environ["SHOP_BROKER"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=2,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"invisible": 2},
)


def tell(*words: object) -> None:
    with DONE.open("a") as lines:
        lines.write(" ".join(map(str, words)) + "\n")


@app.task
def bill(number: int) -> int:
    tell("bill", number)
    return number


@app.task
def ship(number: int, seconds: float) -> None:
    tell("begin", number, os.getpid())
    time.sleep(seconds)  # it stands for work
    tell("ship", number)


@app.task(bind=True, max_retries=2)
def flaky(self: Any, number: int) -> None:
    tell("flaky", number, self.request.retries)
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)


@app.task(acks_on_failure_or_timeout=False)
def bad() -> None:
    tell("bad")
    raise ValueError("a task that fails and is not acked")

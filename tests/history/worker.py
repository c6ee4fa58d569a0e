"""One client process of a history: produces or consumes until it is told to stop.

    python -m tests.history.worker produce|consume|watch PORT FILE NAME SEED INVISIBLE_MS

Each event is a line of FILE, written at once, so that a worker that is killed loses none but the
last. SIGTERM ends it after the request in progress.
"""

import http.client
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import ClassVar, Final, NamedTuple, TypeVar

from tests.history.events import Committed, Delivered, Event, Received, Sent, Settled, encode_event

TOPIC: Final = "history"
GROUP: Final = "judged"
KEYS: Final = 12
WAIT_SECONDS: Final = 0.5
REQUEST_SECONDS: Final = 10.0
KEY: Final = "CURLEW_KEY"
"""In the environment of a worker: the API key that it shows."""

STOPPING = threading.Event()


class Answer(NamedTuple):
    """What came back. `status` is 0 when nothing did."""

    status: int
    document: dict[str, object]


class Client:
    """HTTP to the node, with a new connection after each failure."""

    def __init__(self, port: int, key: str | None = None) -> None:
        self.port = port
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._connection: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()} | self._headers
        encoded: str | None = None
        if isinstance(body, str):
            encoded = body
        elif body is not None:
            encoded, named["Content-Type"] = json.dumps(body), "application/json"
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(
                    "127.0.0.1", self.port, timeout=REQUEST_SECONDS
                )
            self._connection.request(method, path, encoded, named)
            response = self._connection.getresponse()
            return Answer(response.status, json.loads(response.read() or b"{}"))
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
            STOPPING.wait(0.05)
            return Answer(0, {})

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Worker:
    """Records what one client does."""

    pause_s: ClassVar[float] = 0.004
    """Between one send and the next."""

    def __init__(self, port: int, file: Path, name: str, seed: int, invisible_ms: int) -> None:
        self.client = Client(port, os.environ.get(KEY))
        self.file = file
        self._file = file.open("ab", buffering=0)
        self.name = name
        self.random = random.Random(seed)
        self._invisible_ms = invisible_ms

    def close(self) -> None:
        self.client.close()
        self._file.close()

    def record(self, event: Event) -> None:
        self._file.write(encode_event(event))

    def produce(self) -> None:
        number = 0
        while not STOPPING.is_set():
            number += 1
            body = f"{self.name}.{number}"
            key = f"key{self.random.randrange(KEYS)}.{self.name}"
            began_s = monotonic()
            answer = self.client.call(
                "POST", f"/v1/topics/{TOPIC}/messages", body, MQ_Sharding_Key=key
            )
            outcome = outcome_of(answer, 201)
            place = answer.document if outcome == "ok" else {"queue_id": -1, "queue_offset": -1}
            queue_id, offset = as_int(place["queue_id"]), as_int(place["queue_offset"])
            self.record(Sent(began_s, monotonic(), outcome, body, key, queue_id, offset))
            STOPPING.wait(self.pause_s)

    def consume(self) -> None:
        path = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages:receive"
        while not STOPPING.is_set():
            began_s = monotonic()
            answer = self.client.call(
                "POST",
                path,
                {"max_messages": 8, "wait": WAIT_SECONDS, "invisible_ms": self._invisible_ms},
            )
            outcome = outcome_of(answer, 200)
            messages = delivered_of(answer) if outcome == "ok" else []
            self.record(
                Received(
                    began_s,
                    monotonic(),
                    outcome,
                    self.name,
                    self._invisible_ms / 1_000,
                    messages,
                )
            )
            for message in messages:
                self._deal_with(message)

    def _deal_with(self, message: Delivered) -> None:
        """Mostly ack; sometimes fail, be slow, forget, or ack twice."""
        luck = self.random.random()
        if luck < 0.05:
            self._settle("nack", message.handle)
        elif luck < 0.08:
            return
        elif luck < 0.10:
            STOPPING.wait(self._invisible_ms / 1_000 * 1.3)
            self._settle("ack", message.handle)
        elif luck < 0.14:
            handle = self._settle("extend", message.handle) or message.handle
            self._settle("ack", message.handle if luck < 0.11 else handle)
        else:
            self._settle("ack", message.handle)
            if luck > 0.97:
                self._settle("ack", message.handle)

    def _settle(self, action: str, handle: str) -> str:
        began_s = monotonic()
        path = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages:{action}"
        body: dict[str, object] = {"receipt_handles": [handle]}
        if action == "extend":
            body["invisible_ms"] = self._invisible_ms
        answer = self.client.call("POST", path, body)
        new_handle = ""
        if answer.status == 200 and action == "extend":
            (result,) = as_list(answer.document["results"])
            new_handle = str(result["receipt_handle"])
        self.record(
            Settled(
                began_s,
                monotonic(),
                outcome_of(answer, 200),
                action,
                handle,
                new_handle,
                self._invisible_ms / 1_000 if action == "extend" else 0.0,
            )
        )
        return new_handle

    def watch(self) -> None:
        while not STOPPING.is_set():
            began_s = monotonic()
            answer = self.client.call("GET", f"/v1/groups/{GROUP}/offsets/{TOPIC}")
            if answer.status == 200:
                rows = as_list(answer.document["offsets"])
                offsets = {as_int(row["queue_id"]): as_int(row["offset"]) for row in rows}
                self.record(Committed(began_s, monotonic(), offsets))
            STOPPING.wait(0.05)


AnyWorker = TypeVar("AnyWorker", bound=Worker)


def outcome_of(answer: Answer, wanted: int) -> str:
    """What is certain after an answer: done, not done, or neither."""
    if answer.status == wanted:
        return "ok"
    is_refused = 400 <= answer.status < 500 or answer.document.get("outcome") == "not_stored"
    return "refused" if is_refused else "unknown"


def delivered_of(answer: Answer) -> list[Delivered]:
    return [
        Delivered(
            str(each["text"]),
            str(each.get("sharding_key", "")),
            as_int(each["queue_id"]),
            as_int(each["queue_offset"]),
            as_int(each["delivery_attempt"]),
            str(each["receipt_handle"]),
        )
        for each in as_list(answer.document["messages"])
    ]


def as_list(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list), value
    return value


def as_int(value: object) -> int:
    assert isinstance(value, int), value
    return value


def run(kind: type[AnyWorker], roles: Mapping[str, Callable[[AnyWorker], None]]) -> None:
    """Be what the command line says, until SIGTERM."""
    role, port, file, name, seed, invisible_ms = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: STOPPING.set())
    worker = kind(int(port), Path(file), name, int(seed), int(invisible_ms))
    try:
        roles[role](worker)
    finally:
        worker.close()


if __name__ == "__main__":
    run(Worker, {"produce": Worker.produce, "consume": Worker.consume, "watch": Worker.watch})

"""Clients of a topic that is deleted and made again, one process each; see `worker`.

    python -m tests.history.remade.remaking remake|send|read|take PORT FILE NAME SEED INVISIBLE_MS

`remake` is one process, so that lives do not overlap: it repeats a request until it knows what is.
No body is sent twice.
"""

from time import monotonic
from typing import Final

from tests.history.events import Deleted, Made, Seen, SentTo
from tests.history.worker import STOPPING, Answer, Worker, as_list, outcome_of, run

REMADE_TOPIC: Final = "remade"
REMADE_GROUP: Final = "remaking"
LIFE_SECONDS: Final = 0.25
PAGE: Final = 10_000
_PATH: Final = f"/v1/topics/{REMADE_TOPIC}"
_GROUP: Final = f"/v1/groups/{REMADE_GROUP}"
ATTEMPTS_MAX: Final = 1_000


class RemadeTopicWorker(Worker):
    """Records what one client of the topic does."""

    def remake(self) -> None:
        """A life after another, the last one without an end; some groups are made again, too."""
        lives = 0
        while True:
            began_s = monotonic()
            self._insist("PUT", _PATH, 200, 201, body={"queues": 1, "flush": "async"})
            lives += 1
            self.record(Made(began_s, monotonic(), lives))
            STOPPING.wait(LIFE_SECONDS)
            if STOPPING.is_set():
                return
            if lives % 3 == 0:
                self._insist("DELETE", _GROUP, 204, 404)
            began_s = monotonic()
            self._insist("DELETE", _PATH, 204, 404)
            self.record(Deleted(began_s, monotonic(), lives))

    def _insist(self, method: str, path: str, *statuses: int, body: object = None) -> Answer:
        answer = Answer(0, {})
        for _ in range(ATTEMPTS_MAX):
            answer = self.client.call(method, path, body)
            if answer.status in statuses:
                return answer
            STOPPING.wait(0.02)
        raise AssertionError(f"{method} {path} does not succeed: {answer}")

    def send(self) -> None:
        number = 0
        while not STOPPING.is_set():
            number += 1
            body = f"{self.name}.{number}"
            began_s = monotonic()
            answer = self.client.call("POST", f"{_PATH}/messages", body)
            outcome = outcome_of(answer, 201)
            self.record(SentTo(began_s, monotonic(), outcome, body))
            STOPPING.wait(0.004)

    def read(self) -> None:
        while not STOPPING.is_set():
            self.read_once()
            STOPPING.wait(0.02)

    def read_once(self) -> None:
        """Record everything that is readable, by offset."""
        began_s = monotonic()
        path = f"{_PATH}/queues/0/messages?offset=0&clamp=true&max_messages={PAGE}"
        answer = self.client.call("GET", path)
        if answer.status == 200:
            bodies = [str(each["text"]) for each in as_list(answer.document["messages"])]
            is_whole = answer.document["next_offset"] == answer.document["max_offset"]
            self.record(Seen(began_s, monotonic(), bodies, is_whole))

    def take(self) -> None:
        base = f"{_PATH}/groups/{REMADE_GROUP}/messages"
        while not STOPPING.is_set():
            began_s = monotonic()
            answer = self.client.call("POST", f"{base}:receive", {"max_messages": 8, "wait": 0.2})
            if answer.status != 200:
                STOPPING.wait(0.02)
                continue
            messages = as_list(answer.document["messages"])
            bodies = [str(each["text"]) for each in messages]
            self.record(Seen(began_s, monotonic(), bodies, is_whole=False))
            if bodies:
                handles = [each["receipt_handle"] for each in messages]
                action = "nack" if self.random.random() < 0.2 else "ack"
                self.client.call("POST", f"{base}:{action}", {"receipt_handles": handles})


if __name__ == "__main__":
    run(
        RemadeTopicWorker,
        {
            "remake": RemadeTopicWorker.remake,
            "send": RemadeTopicWorker.send,
            "read": RemadeTopicWorker.read,
            "take": RemadeTopicWorker.take,
        },
    )

"""Clients of a group that is deleted and made again while its topic goes on, one process each; see
`worker`.

    python -m tests.history.remade.remaking_groups remake|send|take PORT FILE NAME SEED INVISIBLE_MS

`remake` is one process, so that lives do not overlap: it repeats a request until it knows what is.
The others cannot make the group: the node is told that use makes none.
"""

from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import ClassVar, Final

from tests.history.events import (
    Committed,
    DeadLetters,
    Deleted,
    Delivered,
    Made,
    Received,
    Settled,
)
from tests.history.worker import (
    GROUP,
    STOPPING,
    TOPIC,
    Answer,
    Worker,
    as_int,
    as_list,
    delivered_of,
    outcome_of,
    run,
)

MAX_ATTEMPTS: Final = 8
SETTINGS: Final = {
    "start": "earliest",
    "max_attempts": MAX_ATTEMPTS,
    "retry_policy": {"customized": ["50ms", "200ms", "400ms"]},
}
LONG_MS: Final = 60_000
"""How long the old life would keep a message from its successor; longer than the test takes."""

PASSED_AT_LEAST: Final = 40
REMAKE_ATTEMPTS_MAX: Final = 1_000
LOOKS_MAX: Final = 300
_GROUP: Final = f"/v1/groups/{GROUP}"
_MESSAGES: Final = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages"


class RemadeGroupWorker(Worker):
    """Records what one client of the group does."""

    pause_s: ClassVar[float] = 0.02

    def remake(self) -> None:
        """A life after another, the last one without an end.

        Each leaves an ack, a retry, a dead letter and a lease behind, whose handles the next one
        tries. Every other life lasts until it has passed what the ones before it had passed.
        """
        self._insist("DELETE", _GROUP, 204, 404)
        lives, wanted = 0, PASSED_AT_LEAST
        old: list[tuple[str, Delivered]] = []
        while True:
            began_s = monotonic()
            self._insist("PUT", _GROUP, 200, 201, body=SETTINGS)
            lives += 1
            self.record(Made(began_s, monotonic(), lives))
            self.look()
            self.look_at_letters()
            left = self._leave_traces(lives)
            for action, message in old:
                self._settle_all(action, [message.handle])
            if lives % 2 == 0:
                wanted = self._go_on_until(wanted)
            if STOPPING.is_set():
                return
            # A deletion always follows, so that the last life comes to rest.
            left += [("ack", each) for each in self._receive(1, 1.0, LONG_MS)]
            old = left
            self.look_at_letters()
            began_s = monotonic()
            self._insist("DELETE", _GROUP, 204, 404)
            self.record(Deleted(began_s, monotonic(), lives))

    def _leave_traces(self, life: int) -> list[tuple[str, Delivered]]:
        """An ack, a retry that waits and a dead letter, and what to try in the next life.

        They take turns, for each life begins with the same messages.
        """
        left = []
        actions = deque((("ack", "ack"), ("nack", "ack"), ("dead-letter", "nack")))
        actions.rotate(life)
        for (now, later), message in zip(
            actions, self._receive(3, 1.0, self._invisible_ms), strict=False
        ):
            self._settle_all(now, [message.handle])
            left.append((later, message))
        return left

    def _go_on_until(self, wanted: int) -> int:
        """Look until so many messages are passed, or enough was looked; how many are passed."""
        for _ in range(LOOKS_MAX):
            passed = self.look()
            if passed >= wanted or STOPPING.is_set():
                return max(passed, wanted)
            STOPPING.wait(0.02)
        return wanted

    def _insist(self, method: str, path: str, *statuses: int, body: object = None) -> None:
        answer = Answer(0, {})
        for _ in range(REMAKE_ATTEMPTS_MAX):
            answer = self.client.call(method, path, body)
            if answer.status in statuses:
                return
            STOPPING.wait(0.02)
        raise AssertionError(f"{method} {path} does not succeed: {answer}")

    def look(self) -> int:
        """Record the committed offsets; their sum."""
        began_s = monotonic()
        answer = self.client.call("GET", f"{_GROUP}/offsets/{TOPIC}")
        if answer.status != 200:
            return 0
        rows = as_list(answer.document["offsets"])
        offsets = {as_int(row["queue_id"]): as_int(row["offset"]) for row in rows}
        self.record(Committed(began_s, monotonic(), offsets))
        return sum(offsets.values())

    def look_at_letters(self) -> None:
        began_s = monotonic()
        answer = self.client.call("GET", f"{_GROUP}/dlq/messages?page_size=1000")
        if answer.status == 200:
            rows = as_list(answer.document["messages"])
            letters = [(str(row["text"]), as_int(row["attempts"])) for row in rows]
            self.record(DeadLetters(began_s, monotonic(), letters))

    def take(self) -> None:
        while not STOPPING.is_set():
            messages = self._receive(64, 0.2, self._invisible_ms)
            if messages:
                action = "nack" if self.random.random() < 0.1 else "ack"
                self._settle_all(action, [each.handle for each in messages])

    def _receive(self, most: int, wait_s: float, invisible_ms: int) -> list[Delivered]:
        began_s = monotonic()
        wish = {"max_messages": most, "wait": wait_s, "invisible_ms": invisible_ms}
        answer = self.client.call("POST", f"{_MESSAGES}:receive", wish)
        outcome = outcome_of(answer, 200)
        messages = delivered_of(answer) if outcome == "ok" else []
        event = Received(began_s, monotonic(), outcome, self.name, invisible_ms / 1_000, messages)
        self.record(event)
        if outcome == "refused":
            STOPPING.wait(0.01)
        return messages

    def _settle_all(self, action: str, handles: Sequence[str]) -> None:
        began_s = monotonic()
        body: dict[str, object] = {"receipt_handles": handles}
        if action == "nack" and len(handles) == 1:
            body["delay_ms"] = LONG_MS
        answer = self.client.call("POST", f"{_MESSAGES}:{action}", body)
        ended_s = monotonic()
        outcomes = [outcome_of(answer, 200)] * len(handles)
        if "results" in answer.document:
            results = as_list(answer.document["results"])
            outcomes = ["ok" if each["status"] == 200 else "refused" for each in results]
        for handle, outcome in zip(handles, outcomes, strict=True):
            self.record(Settled(began_s, ended_s, outcome, action, handle))


if __name__ == "__main__":
    run(
        RemadeGroupWorker,
        {
            "remake": RemadeGroupWorker.remake,
            "send": RemadeGroupWorker.produce,
            "take": RemadeGroupWorker.take,
        },
    )

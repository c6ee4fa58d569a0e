"""The end of a history: nothing is under way any more, and all that is left is taken."""

from time import monotonic
from typing import Final

from tests.history.events import DeadLetters, Event, Received, Settled
from tests.history.worker import GROUP, TOPIC, Client, as_int, as_list, delivered_of
from tests.history.workers import INVISIBLE_MS

DRAIN_SECONDS: Final = 60.0
EMPTY_POLLS: Final = 2
"""A poll waits longer than any lease or retry delay, so two empty ones say that it is all."""


def drain(client: Client) -> list[Event]:
    """Take everything that is left and ack it, until nothing comes any more."""
    events: list[Event] = []
    empty = 0
    deadline_s = monotonic() + DRAIN_SECONDS
    path = f"/v1/topics/{TOPIC}/groups/{GROUP}/messages"
    while empty < EMPTY_POLLS:
        assert monotonic() < deadline_s, "the group does not come to rest"
        began_s = monotonic()
        wish = {"max_messages": 64, "wait": 1.5 * INVISIBLE_MS / 1_000, "invisible_ms": 5_000}
        answer = client.call("POST", f"{path}:receive", wish)
        assert answer.status == 200, answer
        messages = delivered_of(answer)
        events.append(Received(began_s, monotonic(), "ok", "drain", 5.0, messages))
        empty = 0 if messages else empty + 1
        if messages:
            handles = [message.handle for message in messages]
            began_s = monotonic()
            answer = client.call("POST", f"{path}:ack", {"receipt_handles": handles})
            assert answer.status == 200, answer
            ended_s = monotonic()
            events += [Settled(began_s, ended_s, "ok", "ack", handle) for handle in handles]
    return events


def dead_letters(client: Client) -> DeadLetters:
    """All of the group."""
    letters: list[tuple[str, int]] = []
    cursor = ""
    began_s = monotonic()
    while True:
        url = f"/v1/groups/{GROUP}/dlq/messages?page_size=1000{cursor}"
        answer = client.call("GET", url)
        assert answer.status == 200, answer
        rows = as_list(answer.document["messages"])
        letters += [(str(row["text"]), as_int(row["attempts"])) for row in rows]
        if "next_cursor" not in answer.document:
            return DeadLetters(began_s, monotonic(), letters)
        cursor = f"&cursor={answer.document['next_cursor']}"

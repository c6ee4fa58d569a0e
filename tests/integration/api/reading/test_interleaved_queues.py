"""Frames of a queue whose messages stand among those of another in the log."""

from collections.abc import Sequence
from itertools import count

import httpx
import pytest

from app.api.formats.media import FRAMES
from app.domain.message import Message
from tests.support.clients.frames import read_frame, request_frame

_NUMBERS = count(1)


def send_in_turns(http: httpx.Client, topic: str, turns: Sequence[tuple[int, int]]) -> list[bytes]:
    """Fill queues 0 and 1 in turns of so many messages of so many bytes; the bodies of queue 0."""
    bodies: list[bytes] = []
    for turn, (messages, body_bytes) in enumerate(turns):
        for queue in (0, 1):
            sent = [
                b"%d/%d/%d " % (queue, turn, number) + bytes(body_bytes)
                for number in range(messages)
            ]
            frame = request_frame([Message(body) for body in sent], topic)
            answer = http.post(
                f"/v1/topics/{topic}/messages:batch?queue_id={queue}",
                content=frame,
                headers={"content-type": FRAMES},
            )
            assert answer.status_code == 200, answer.text
            if queue == 0:
                bodies += sent
    return bodies


def pulled(http: httpx.Client, topic: str, start: int, end: int) -> list[bytes]:
    """The bodies of queue 0 from `start` to `end` (excluded), in one frame."""
    url = f"/v1/topics/{topic}/queues/0/messages?max_messages=1000&max_bytes={8 * 2**20}"
    answer = http.get(f"{url}&offset={start}&until_offset={end}", headers={"accept": FRAMES})
    assert answer.status_code == 200, answer.text
    return [message.body for message in read_frame(answer.content)]


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param([(100, 2000)] * 4, id="large pieces"),
        pytest.param([(1, 100)] * 70, id="one by one"),
        pytest.param([(5, 20_000)] * 12, id="too far apart to be read together"),
        pytest.param([(1, 10), (300, 1000), (2, 10), (60, 5000), (1, 10)], id="mixed"),
    ],
)
def test_a_queue_is_put_together(http: httpx.Client, turns: list[tuple[int, int]]) -> None:
    topic = f"interleaved-{next(_NUMBERS)}"
    http.put(f"/v1/topics/{topic}", json={"queues": 2, "flush": "async"}).raise_for_status()
    bodies = send_in_turns(http, topic, turns)
    assert pulled(http, topic, 0, len(bodies)) == bodies
    assert pulled(http, topic, 0, len(bodies)) == bodies, "of what is known to be good by now"
    assert pulled(http, topic, 1, len(bodies) - 1) == bodies[1:-1]

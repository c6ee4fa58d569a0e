"""What the nodes of a cluster are asked, and what processor time they took."""

import json
import os
import time
from pathlib import Path
from typing import Final

from benchmarks.frames import request_frame, request_record
from benchmarks.load import Connection, Work
from benchmarks.rows import posting

BODY: Final = b"x" * 1024
TOPIC: Final = "bench"
FRAME_MESSAGES: Final = 1_000
CONNECTIONS: Final = 64
IDLE_SENDS: Final = 400
IDLE_PAUSE_S: Final = 0.003
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def send_path(queue_id: int = 0) -> str:
    """Of a message for a queue."""
    return f"/v1/topics/{TOPIC}/messages?queue_id={queue_id}"


def posting_frames(queue_id: int = 0) -> Work:
    """Frames of `FRAME_MESSAGES` for a queue."""
    body = request_frame([request_record(TOPIC, BODY)] * FRAME_MESSAGES)
    path = f"/v1/topics/{TOPIC}/messages:batch?queue_id={queue_id}"
    return posting(path, body, FRAME_MESSAGES, "Content-Type: application/vnd.curlew.batch")


def posting_json(queue_ids: tuple[int, ...], messages: int) -> Work:
    """Batches as JSON whose messages name the queues in turn."""
    entries = [
        {"text": BODY.decode(), "queue_id": queue_ids[number % len(queue_ids)]}
        for number in range(messages)
    ]
    body = json.dumps({"messages": entries}).encode()
    path = f"/v1/topics/{TOPIC}/messages:batch"
    return posting(path, body, messages, "Content-Type: application/json")


def idle_ms(url: str, queue_id: int = 0) -> list[float]:
    """How long each send takes where nothing else is asked."""
    connection = Connection(url)
    request = connection.build("POST", send_path(queue_id), BODY)
    taken: list[float] = []
    for _ in range(IDLE_SENDS):
        time.sleep(IDLE_PAUSE_S)
        began = time.perf_counter()
        status, _, answer = connection.exchange(request)
        taken.append(1_000 * (time.perf_counter() - began))
        assert status == 201, answer[:300]
    connection.close()
    return taken


def spent_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS

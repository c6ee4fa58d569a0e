"""Fills a shard with what a take-over has to know: delayed messages, transactions, groups."""

import json
import random
import struct
import threading
import time
from collections.abc import Callable
from typing import Final

import google_crc32c

from benchmarks.frames import request_record
from benchmarks.load import Connection

TOPIC: Final = "bench"
GROUPS_TOPIC: Final = "read"
DELAYED_TOPIC: Final = "later"
BODY: Final = b"x" * 100
FRAME_MESSAGES: Final = 10_000
THREADS: Final = 16
GROUP_THREADS: Final = 4
"""Each makes groups in the database, which renews the leader's lease as well."""
DAY_MS: Final = 86_400_000
REFUSED_S: Final = 60.0
"""A shard that is filled on a busy machine may get another leader meanwhile."""
MESSAGES_OF_A_GROUP: Final = 4
"""In the topic that groups read: each group has acked the second, and holds the first."""


def delayed_frame(records: list[bytes], due_ms: list[int]) -> bytes:
    """A request frame with a delivery time for each record (flag 32)."""
    count = len(records)
    columns = struct.pack(f">{count}I{count}q{count}q", *map(len, records), *[0] * count, *due_ms)
    rest = columns + b"".join(records)
    head = struct.pack(">4sBBHII", b"CRLW", 1, 4 | 32, 0, count, google_crc32c.value(rest))
    return head + struct.pack(">qq", 0, sum(map(len, records))) + rest


def fill_delayed(url: str, count: int, within_s: float) -> int:
    """So many messages that are due in two to forty days, in no order; how many there are, which
    are fewer when it would take longer than `within_s`."""
    sent: list[int] = []
    ends = time.monotonic() + within_s
    chance = random.Random(1)
    first_ms = time.time_ns() // 1_000_000 + 2 * DAY_MS
    record = request_record(DELAYED_TOPIC, BODY)

    def send(connection: Connection, number: int) -> None:
        size = min(FRAME_MESSAGES, count - number * FRAME_MESSAGES)
        if time.monotonic() > ends:
            return
        due_ms = [first_ms + chance.randrange(37 * DAY_MS) for _ in range(size)]
        body = delayed_frame([record] * size, due_ms)
        asked = "Content-Type: application/vnd.curlew.batch"
        path = f"/v1/topics/{DELAYED_TOPIC}/messages:batch?queue_id=0"
        expect(connection, "POST", path, body, asked)
        sent.append(size)

    side_by_side(url, -(-count // FRAME_MESSAGES), send, threads=2)
    return sum(sent)


def fill_transactions(url: str, count: int) -> str:
    """So many that nobody has decided; the id of one of them."""
    found: list[bytes] = []

    def prepare(connection: Connection, _number: int) -> None:
        asked = "MQ-Transaction: prepare; group=shop; check-after=12h"
        found[:] = [expect(connection, "POST", f"/v1/topics/{TOPIC}/messages", BODY, asked)]

    side_by_side(url, count, prepare)
    return str(json.loads(found[0])["transaction_id"])


def fill_groups(url: str, count: int) -> None:
    """So many groups, each with an open delivery and one acked behind it."""
    for _ in range(MESSAGES_OF_A_GROUP):
        with_connection(url, lambda to: expect(to, "POST", sending(GROUPS_TOPIC), BODY))

    def use(connection: Connection, number: int) -> None:
        received = receive(connection, group_name(number))
        if len(received) == 2:  # else an answer was lost, and the group has what it is to have
            expect(connection, "DELETE", f"/v1/receipts/{received[1]}")

    side_by_side(url, count, use, threads=GROUP_THREADS)


def group_name(number: int) -> str:
    """Of the groups that were filled."""
    return f"group-{number:05}"


def receive(connection: Connection, group: str) -> list[str]:
    """Receipt handles of two messages at most, which are held for twelve hours."""
    path = f"/v1/topics/{GROUPS_TOPIC}/groups/{group}/messages:receive"
    answer = expect(connection, "POST", f"{path}?max_messages=2&invisible=12h")
    return [part.split(b'"')[0].decode() for part in answer.split(b'"receipt_handle":"')[1:]]


def sending(topic: str) -> str:
    """The path of a send."""
    return f"/v1/topics/{topic}/messages?queue_id=0"


def expect(connection: Connection, method: str, path: str, body: bytes = b"", *head: str) -> bytes:
    """The answer's body; raises `RuntimeError` when it is a refusal that does not pass."""
    ends = time.monotonic() + REFUSED_S
    while True:
        status, _, answer = connection.exchange(connection.build(method, path, body, *head))
        if status < 500 or time.monotonic() > ends:
            break
        time.sleep(0.1)
    if status >= 300:
        raise RuntimeError(f"{method} {path}: {status} {answer[:300]!r}")
    return answer


def with_connection(url: str, call: Callable[[Connection], object]) -> None:
    """Call with a connection of its own."""
    connection = Connection(url)
    try:
        call(connection)
    finally:
        connection.close()


def side_by_side(
    url: str, count: int, call: Callable[[Connection, int], object], threads: int = THREADS
) -> None:
    """Call for each number, each thread with a connection of its own. Raises the first failure."""
    numbers = iter(range(count))
    lock, failures = threading.Lock(), list[BaseException]()

    def work(connection: Connection) -> None:
        while not failures:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                call(connection, number)
            except BaseException as error:  # noqa: BLE001 - raised by who waits
                failures.append(error)

    def run() -> None:
        with_connection(url, work)

    running = [threading.Thread(target=run) for _ in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    if failures:
        raise failures[0]

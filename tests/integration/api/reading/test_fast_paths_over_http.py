"""What a client pulls is the same, byte for byte, whichever fast paths the node's store takes."""

import contextlib
from functools import partial
from pathlib import Path

import pytest

from app.api.server.file_sending import FileSending
from app.domain.limits import KIB, MIB, Limits
from app.domain.message import Message
from app.node_parts import from_config
from app.store import StoreConfig
from app.store.config import FastPaths
from tests.support.clients.frames import request_frame
from tests.support.clients.wire import Served, served_node
from tests.support.stores.fast_paths import ALL, LESS

pytestmark = pytest.mark.anyio

LIMITS = Limits(request_body_ms_max=600_000, unread_answer_ms_max=600_000)
COUNT = 256
"""Of 4 KiB: 1 MiB, two large blocks, which may be sent from the files."""
SEND = b"/v1/topics/orders/messages"
HEAD = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
PULL = "/v1/topics/orders/queues/0/messages?max_bytes=4194304&"
FRAMES = "application/vnd.curlew.batch"
ASKED = {
    "frame": (f"offset=0&max_messages={COUNT}", FRAMES),
    "frame with CRC-32": (f"offset=0&max_messages={COUNT}&checksum=crc32", FRAMES),
    "part of a frame": ("offset=3&max_messages=100&checksum=crc32", FRAMES),
    "few as frame": ("offset=7&max_messages=5", FRAMES),
    "tags as frame": ("offset=0&max_messages=200&filter=a", FRAMES),
    "JSON": ("offset=1&max_messages=90", "application/json"),
    "NDJSON": (f"offset={COUNT - 9}&max_messages=200", "application/x-ndjson"),
    "CloudEvents": ("offset=0&max_messages=60", "application/cloudevents-batch+json"),
}
VARYING = {"date", "mq-request-id", "cache-control", "etag"}
"""Frames from files are unverified: no cache may keep them (ADR 0035)."""

Answers = dict[str, tuple[int, dict[str, str], bytes]]


async def fill(server: Served) -> None:
    """Frames of records that are alike and of others, and some messages sent alone."""
    alike = [Message(b"%d" % (n % 10) + bytes(4 * KIB), tag="ab"[n % 2]) for n in range(COUNT)]
    others = [Message(bytes(n), tag="a", keys=(f"key-{n}",)) for n in range(70)]
    async with contextlib.aclosing(await server.connect()) as connection:
        for messages in (alike, others):
            frame = request_frame(messages, "orders")
            await connection.say(HEAD % (SEND + b":batch", FRAMES.encode(), len(frame)) + frame)
            assert (await connection.answer()).status == 200
        for _ in range(3):
            await connection.say(HEAD % (SEND, b"application/json", 5) + b"[1,2]")
            assert (await connection.answer()).status == 201


async def pulled(server: Served) -> Answers:
    """Each pull twice: what the first one learns spares the second one work."""
    found: Answers = {}
    async with contextlib.aclosing(await server.connect()) as connection:
        for turn in ("first", "second"):
            for name, (query, accept) in ASKED.items():
                head = f"GET {PULL}{query} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n"
                await connection.say(head.encode())
                answer = await connection.answer()
                assert answer.status == 200, answer.body
                headers = {k: v for k, v in answer.headers.items() if k not in VARYING}
                found[f"{turn} {name}"] = (answer.status, headers, answer.body)
    return found


class FromFiles:
    """Counts answers that were sent from the files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        run = FileSending.run

        async def noting(sending: FileSending, *place: object) -> None:
            self.count += 1
            await run(sending, *place)  # type: ignore[arg-type]

        monkeypatch.setattr(FileSending, "run", noting)


async def test_pulls_are_the_same_with_fewer_fast_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One directory is opened in each way; each knows no block when it is opened."""
    from_files = FromFiles(monkeypatch)

    async def answers(fast_paths: FastPaths) -> Answers:
        monkeypatch.setattr(from_config, "StoreConfig", partial(StoreConfig, fast_paths=fast_paths))
        async with served_node(tmp_path, LIMITS) as server:
            assert server.node.store._config.fast_paths == fast_paths
            return await pulled(server)

    async with served_node(tmp_path, LIMITS) as server:
        await fill(server)
    expected = await answers(ALL)
    assert from_files.count, "no fast path of all"
    assert len(expected["first frame"][2]) > MIB
    for name, fast_paths in LESS.items():
        from_files.count = 0
        found = await answers(fast_paths)
        assert not [each for each in expected if found[each] != expected[each]], name
        may_send_files = fast_paths.verified_blocks and fast_paths.zero_copy
        assert (from_files.count > 0) == may_send_files, name

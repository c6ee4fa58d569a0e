"""What each kind of request costs beside another commit: processor time a message, in process, from
the bytes that came on a connection to those of the answer, with a transport that does nothing.

`python -m benchmarks.in_process.requests --against COMMIT` serves the working tree in one process
and `app` and `migrations` of the commit in another, both with the libraries of this environment.
They take windows in turn; a ratio is that of two windows that follow each other, and the median of
those says what the change costs (1.03: three per cent more). Commits since 2026-11-23 are known.
"""

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from time import process_time
from typing import Any, Final, Protocol, cast

import uvloop
from typing_extensions import override

from app.cluster import migrate
from app.config import Config
from app.domain.positions import FlushMode
from app.main import NodeServer
from app.node import Node
from benchmarks.frames import request_frame, request_record
from benchmarks.servers import HERE, code_of

TOPIC: Final = "orders"
PATH: Final = f"/v1/topics/{TOPIC}"
BODY: Final = b"x" * 1_024
CONNECTIONS: Final = 32
ROUNDS: Final = 20
"""Of one window, in each of which all connections ask once."""
OF_A_BATCH: Final = 100
OF_A_RECEIVE: Final = 16
RECEIVES: Final = 40
"""Of one window, each with its settle."""
COLLECTOR_THRESHOLDS: Final = (20_000, 10, 10)
JSON: Final = "content-type: application/json\r\n"
PRODUCER: Final = "mq-producer-id: bench\r\nmq-producer-epoch: 0\r\n"
FRAME: Final = "application/vnd.curlew.batch"


def request(method: str, target: str, body: bytes = b"", headers: str = "") -> bytes:
    """The bytes of a request; `headers` are whole lines."""
    head = f"{method} {PATH}{target} HTTP/1.1\r\nhost: 127.0.0.1:8710\r\n{headers}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Server(Protocol):
    """What the server has for each connection."""

    def connection_made(self, transport: object) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def data_received(self, data: bytes) -> None: ...


class Connection:
    """A transport that leads nowhere, with the server's protocol for it."""

    def __init__(self, make: Callable[[], Server]) -> None:
        self._make = make
        self._is_open = False
        self._left = 0
        self._parts: list[bytes] = []
        self._server: Server
        self._answered: asyncio.Future[bytes]

    def ask(self, data: bytes) -> "asyncio.Future[bytes]":
        """The body of the answer, which has to say that all went well."""
        if not self._is_open:
            self._server = self._make()
            self._server.connection_made(self)
            self._is_open = True
        self._answered = asyncio.get_running_loop().create_future()
        self._server.data_received(data)
        return self._answered

    def write(self, data: bytes) -> None:
        """Take a part of an answer, whose head comes whole and with its length."""
        if not self._left:
            end = data.find(b"\r\n\r\n") + 4
            head = bytes(data[:end]).lower()
            assert head.startswith(b"http/1.1 2"), bytes(data)
            self._left = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
            data = data[end:]
        self._left -= len(data)
        self._parts.append(data)
        if not self._left:
            parts, self._parts = self._parts, []
            self._answered.set_result(parts[0] if len(parts) == 1 else b"".join(parts))

    def writelines(self, parts: list[bytes]) -> None:
        """The same for several."""
        for part in parts:
            self.write(part)

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Of a connection within this machine."""
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def get_write_buffer_size(self) -> int:
        """All has gone out."""
        return 0

    def is_closing(self) -> bool:
        """Whether the server has closed it."""
        return not self._is_open

    def close(self) -> None:
        """The server has not heard of it for a while."""
        if self._is_open:
            self._is_open = False
            asyncio.get_running_loop().call_soon(self._server.connection_lost, None)


class Case:
    """One kind of request; its window is measured again and again."""

    async def prepare(self, connections: list[Connection]) -> None:
        """Before each window, unmeasured."""

    @abstractmethod
    async def window(self, connections: list[Connection]) -> int:
        """The messages that it was about."""


class Sends(Case):
    """All connections send at the same time."""

    def __init__(self, data: bytes, messages: int = 1, rounds: int = ROUNDS) -> None:
        self._data = data
        self._messages = messages
        self._rounds = rounds

    @override
    async def window(self, connections: list[Connection]) -> int:
        for _ in range(self._rounds):
            for answered in [each.ask(self._data) for each in connections]:
                await answered
        return self._rounds * len(connections) * self._messages


class KeyedSends(Case):
    """One producer sends under its numbers, one after the other."""

    def __init__(self) -> None:
        self._number = 0

    @override
    async def window(self, connections: list[Connection]) -> int:
        count = ROUNDS * len(connections)
        for _ in range(count):
            named = f"{PRODUCER}mq-producer-seq: {self._number}\r\n"
            await connections[0].ask(request("POST", "/messages?queue_id=0", BODY, named))
            self._number += 1
        return count


class Pulls(Case):
    """One connection reads the same messages again and again."""

    def __init__(self, headers: str = "") -> None:
        target = f"/queues/0/messages?offset=0&max_messages={OF_A_BATCH}"
        self._data = request("GET", target, b"", headers)
        self._is_filled = False

    @override
    async def prepare(self, connections: list[Connection]) -> None:
        sent = request("POST", "/messages?queue_id=0", BODY)
        for _ in range(0 if self._is_filled else OF_A_BATCH):
            await connections[0].ask(sent)
        self._is_filled = True

    @override
    async def window(self, connections: list[Connection]) -> int:
        for _ in range(ROUNDS):
            answer = await connections[0].ask(self._data)
            assert len(answer) > OF_A_BATCH * len(BODY)
        return ROUNDS * OF_A_BATCH


class Receives(Case):
    """One consumer that receives and settles what was sent before."""

    @override
    async def prepare(self, connections: list[Connection]) -> None:
        sent = request("POST", "/messages", BODY)
        for _ in range(RECEIVES * OF_A_RECEIVE // len(connections)):
            for answered in [each.ask(sent) for each in connections]:
                await answered

    @override
    async def window(self, connections: list[Connection]) -> int:
        connection, count = connections[0], 0
        path = "/groups/billing/messages"
        receive = request("POST", f"{path}:receive?max_messages={OF_A_RECEIVE}")
        for _ in range(RECEIVES):
            found = json.loads(await connection.ask(receive))["messages"]
            count += len(found)
            acks = json.dumps({"acks": [each["receipt_handle"] for each in found]}).encode()
            await connection.ask(request("POST", f"{path}:settle", acks, JSON))
        assert count > RECEIVES
        return count


def cases() -> Mapping[str, Case]:
    """By name."""
    envelope = json.dumps({"text": BODY.decode(), "tag": "created", "keys": ["order-17"]})
    batch = json.dumps({"messages": [{"text": BODY.decode()}] * OF_A_BATCH})
    frame = request_frame([request_record(TOPIC, BODY)] * OF_A_BATCH)
    kind = "content-type: application/vnd.curlew+json\r\n"
    named = "mq-tag: created\r\nmq-keys: order-17\r\n"
    few = max(1, ROUNDS // 10)
    return {
        "send": Sends(request("POST", "/messages", BODY)),
        "send an envelope": Sends(request("POST", "/messages", envelope.encode(), kind)),
        "send with tag and key": Sends(request("POST", "/messages", BODY, named)),
        "send under numbers": KeyedSends(),
        "send batches": Sends(
            request("POST", "/messages:batch", batch.encode(), JSON), OF_A_BATCH, few
        ),
        "send frames": Sends(
            request("POST", "/messages:batch", frame, f"content-type: {FRAME}\r\n"), OF_A_BATCH, few
        ),
        "pull": Pulls(),
        "pull frames": Pulls(f"accept: {FRAME}\r\n"),
        "receive and settle": Receives(),
    }


async def serve(place: Path) -> None:
    """Read names of cases, one a line, and write what a window of each costs, in microseconds."""
    config = Config(data_dir=place, port=0, flush=FlushMode.ASYNC)
    migrate(config.database)
    node = await Node.open(config)
    try:
        server = NodeServer(node)
        server.config.load()
        kind: Any = server.config.http_protocol_class

        def make() -> Server:
            return cast(
                "Server", kind(config=server.config, server_state=server.server_state, app_state={})
            )

        connections = [Connection(make) for _ in range(CONNECTIONS)]
        body = json.dumps({"queues": 4, "flush": "async"}).encode()
        await connections[0].ask(request("PUT", "", body, JSON))
        known = cases()
        gc.freeze()
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        print("ready", flush=True)
        while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
            await known[name].prepare(connections)
            gc.collect()
            began = process_time()
            messages = await known[name].window(connections)
            print((process_time() - began) * 1e6 / messages, flush=True)
    finally:
        await node.drain()
        await node.close()


class Tree:
    """A process that measures the code of one tree."""

    def __init__(self, *roots: Path) -> None:
        self._place = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __spec__.name, "--serve", self._place.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._place.name,
            umask=0o077,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))},
        )
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def window(self, name: str) -> float:
        """Microseconds of processor time a message."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        """End it."""
        self._process.communicate()
        self._place.cleanup()


def compare(before: Tree, now: Tree, name: str, windows: int) -> None:
    """Print the line of a case."""
    pairs: list[tuple[float, float]] = []
    for number in range(windows + 2):
        if number % 2:
            was, is_now = before.window(name), now.window(name)
        else:
            is_now, was = now.window(name), before.window(name)
        if number >= 2:  # the first ones warm up
            pairs.append((was, is_now))
    ratios = [is_now / was for was, is_now in pairs]
    low, _, high = quantiles(ratios, n=4)
    was, is_now = (median(column) for column in zip(*pairs, strict=True))
    print(
        f"{name:24} {was:8.2f} → {is_now:8.2f} µs a message, ratio {median(ratios):.3f}"
        f" (half of the pairs within {low:.3f} and {high:.3f})",
        flush=True,
    )


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.in_process.requests", description=__doc__
    )
    parser.add_argument("--against", default="HEAD", metavar="COMMIT", help="of before (HEAD)")
    parser.add_argument("--windows", type=int, default=40, help="of each case, at least 2 (40)")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        uvloop.run(serve(options.serve))
        return
    with code_of(options.against, "app", "migrations") as code:
        before, now = Tree(code, HERE), Tree(HERE)
        for name in cases():
            if options.only in name:
                compare(before, now, name, options.windows)
        before.close()
        now.close()


if __name__ == "__main__":
    main()

"""What an API key costs a single send, in process: processor time, from the bytes that came on a
connection to those of the answer, with a transport that does nothing.

`python -m benchmarks.in_process.keys` has one node, to which 32 connections send in turn: without a
key while it is open, with one while it has one principal, and with the same one among
`--principals` and `--policies`. The ratios are medians of those of windows that follow each other.
"""

import argparse
import asyncio
import gc
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final, cast

import uvicorn
import uvloop
from uvicorn.server import ServerState

from app.api.server import Connections, guarded
from app.cluster import migrate
from app.commands.node_commands import COLLECTOR_THRESHOLDS
from app.config import Config
from app.domain.access.evaluator import Evaluator, Principal
from app.domain.access.keyring import Keyring, KnownKey
from app.domain.access.keys import KEY_ID_BYTES, KEY_SECRET_BYTES, digest_of, make_key
from app.domain.access.policies import Effect, Policy, read_actions, read_pattern, read_subject
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings
from app.node import Node
from app.node_app import NodeApp
from tests.support.nodes.brokers import put_topic

TOPIC: Final = "orders"
BODY: Final = b"x" * 1_024
CONNECTIONS: Final = 32
ROUNDS: Final = 40


class Nowhere:
    """A transport that does nothing with what is written, and tells who waits for it."""

    def __init__(self, answered: Callable[[bytes], None]) -> None:
        self.write = answered

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Of a connection within this machine."""
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def is_closing(self) -> bool:
        """It stays open."""
        return False


class Sender:
    """All connections of one node."""

    def __init__(self, node: Node, header: bytes) -> None:
        connections = Connections(node.limits)
        config = uvicorn.Config(NodeApp(node, connections), lifespan="off", log_config=None)
        config.load()
        self._left = 0
        self._done = asyncio.Event()
        head = f"POST /v1/topics/{TOPIC}/messages HTTP/1.1\r\nHost: 127.0.0.1:8710\r\n".encode()
        self._request = b"%bcontent-length: %d\r\n%b\r\n%b" % (head, len(BODY), header, BODY)
        kind = cast("Any", guarded(connections))
        self._protocols = [
            kind(config=config, server_state=ServerState(), app_state={})
            for _ in range(CONNECTIONS)
        ]
        for protocol in self._protocols:
            protocol.connection_made(Nowhere(self._answered))

    def _answered(self, data: bytes) -> None:
        assert data.startswith(b"HTTP/1.1 201"), data
        self._left -= 1
        if not self._left:
            self._done.set()

    async def window(self) -> float:
        """Microseconds of processor time a send."""
        began = process_time()
        for _ in range(ROUNDS):
            self._left = CONNECTIONS
            self._done.clear()
            for protocol in self._protocols:
                protocol.data_received(self._request)
            await self._done.wait()
        return (process_time() - began) * 1e6 / (ROUNDS * CONNECTIONS)


async def opened(stack: AsyncExitStack, place: Path) -> Node:
    """A node with one topic, whose messages are not synced."""
    config = Config(data_dir=place, port=0, flush=FlushMode.ASYNC)
    await asyncio.to_thread(place.mkdir)
    migrate(config.database)
    node = await Node.open(config)
    stack.push_async_callback(node.close)
    await put_topic(node.broker, TOPIC, TopicSettings(queues=4, flush=FlushMode.ASYNC))
    return node


def crowded(known: Keyring, principals: int, policies: int) -> Keyring:
    """The same with so many principals more, each with a key, and so many policies."""
    names = [f"team-{number}" for number in range(principals)]
    keys = {}
    for number, name in enumerate(names):
        made = make_key(number.to_bytes(KEY_ID_BYTES), number.to_bytes(KEY_SECRET_BYTES))
        keys[digest_of(made.text.encode())] = KnownKey(name, made.key_id, None)
    rules = [
        Policy(
            f"p{number}",
            read_subject(f"principal:{names[number % len(names)]}" if number % 2 else "role:admin"),
            Effect.ALLOW,
            read_actions(["PUB", "SUB"]),
            (read_pattern(f"topic:team-{number}-*"),),
        )
        for number in range(policies)
    ]
    return replace(
        known,
        keys={**known.keys, **keys},
        principals={**known.principals, **{name: Principal(name, ("producer",)) for name in names}},
        evaluator=Evaluator(rules),
    )


async def measure(windows: int, principals: int, policies: int) -> None:
    """Print the figures."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        node = await opened(stack, Path(directory, "data"))
        access = node.metadata.principals
        key = await access.make_first()
        await access.refresh()
        with_key = Sender(node, f"Authorization: Bearer {key.text}\r\n".encode())
        one = access.keyring
        cases = {
            "without a key": (Sender(node, b""), replace(one, is_closed=False)),
            "with a key": (with_key, one),
            "one of many": (with_key, crowded(one, principals, policies)),
        }
        found: dict[str, list[float]] = {name: [] for name in cases}
        names = list(cases)
        for turn in range(-5, windows):
            if turn == 0:
                gc.collect()
                gc.freeze()
            for name in names[turn % 3 :] + names[: turn % 3]:
                sender, access.keyring = cases[name]
                took = await sender.window()
                if turn >= 0:
                    found[name].append(took)
    without, alone, among = found.values()
    for name, figures in found.items():
        print(f"{name:15} median {median(figures):6.2f} µs, least {min(figures):6.2f}")
    print(f"without / with        {_ratio(without, alone):.3f}")
    print(f"one of many / alone   {_ratio(among, alone):.3f}")


def _ratio(one: list[float], other: list[float]) -> float:
    return median(a / b for a, b in zip(one, other, strict=True))


def main() -> None:
    """Measure as the flags say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--principals", type=int, default=9_999)
    parser.add_argument("--policies", type=int, default=1_000)
    options = parser.parse_args()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    uvloop.install()
    asyncio.run(measure(options.windows, options.principals, options.policies))


if __name__ == "__main__":
    main()

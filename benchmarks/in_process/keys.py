"""What an API key costs a single send, in process: processor time, from the bytes that came on a
connection to those of the answer, with a transport that does nothing.

`python -m benchmarks.in_process.keys` has two nodes, to which 32 connections send in turn. One is
open, then it has one principal, then that and `--principals` and `--policies` more. The other has
every quota set, far above what is sent. Sends with keys name another `MQ-Keys` each, so that no
head is known from before. The ratios are medians of those of windows that follow each other.
"""

import argparse
import asyncio
import gc
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final, NamedTuple, cast

import uvloop

from app.cluster import migrate
from app.commands.node_commands import COLLECTOR_THRESHOLDS
from app.config import Config
from app.domain.access.evaluator import Evaluator, Principal
from app.domain.access.keyring import Keyring, KnownKey
from app.domain.access.keys import KEY_ID_BYTES, KEY_SECRET_BYTES, digest_of, make_key
from app.domain.access.policies import Effect, Policy, read_actions, read_pattern, read_subject
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings
from app.main import NodeServer
from app.node import Node
from tests.support.nodes.brokers import put_topic

TOPIC: Final = "orders"
BODY: Final = b"x" * 1_024
CONNECTIONS: Final = 32
ROUNDS: Final = 40
QUOTAS: Final = dict.fromkeys(
    (
        "quota_requests_per_second",
        "quota_bytes_in_per_second",
        "quota_bytes_out_per_second",
        "quota_concurrent_requests",
        "quota_parked_polls",
        "quota_connections",
        "quota_topic_requests_per_second",
        "quota_topic_bytes_in_per_second",
        "quota_topic_bytes_out_per_second",
    ),
    2**40,
)
"""All that a send is counted by, each too large to be used up."""


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
    """Connections of one node, which send by one kind of head."""

    def __init__(self, server: NodeServer, header: str = "", *, keys: bool = False) -> None:
        self._left = 0
        self._done = asyncio.Event()
        head = f"POST /v1/topics/{TOPIC}/messages HTTP/1.1\r\nHost: 127.0.0.1:8710\r\n{header}"
        self._head = f"{head}content-length: {len(BODY)}\r\n".encode()
        self._numbers = count() if keys else None
        kind = cast("Any", server.config.http_protocol_class)
        self._protocols = [
            kind(config=server.config, server_state=server.server_state, app_state={})
            for _ in range(CONNECTIONS)
        ]
        for protocol in self._protocols:
            protocol.connection_made(Nowhere(self._answered))

    def _answered(self, data: bytes) -> None:
        assert data.startswith(b"HTTP/1.1 201"), data
        self._left -= 1
        if not self._left:
            self._done.set()

    def _requests(self) -> list[bytes]:
        if self._numbers is None:
            return [b"%b\r\n%b" % (self._head, BODY)] * (ROUNDS * CONNECTIONS)
        return [
            b"%bmq-keys: order-%09d\r\n\r\n%b" % (self._head, next(self._numbers), BODY)
            for _ in range(ROUNDS * CONNECTIONS)
        ]

    async def window(self) -> float:
        """Microseconds of processor time a send."""
        requests = iter(self._requests())
        began = process_time()
        for _ in range(ROUNDS):
            self._left = CONNECTIONS
            self._done.clear()
            for protocol in self._protocols:
                protocol.data_received(next(requests))
            await self._done.wait()
        return (process_time() - began) * 1e6 / (ROUNDS * CONNECTIONS)


async def opened(stack: AsyncExitStack, place: Path, **settings: int) -> Node:
    """A node with one topic, whose messages are not synced."""
    config = replace(Config(data_dir=place, port=0, flush=FlushMode.ASYNC), **cast("Any", settings))
    await asyncio.to_thread(place.mkdir)
    migrate(config.database)
    node = await Node.open(config)
    stack.push_async_callback(node.close)
    await put_topic(node.broker, TOPIC, TopicSettings(queues=4, flush=FlushMode.ASYNC))
    return node


def serving(node: Node) -> NodeServer:
    """Its server, as it is run, but that it listens nowhere."""
    server = NodeServer(node)
    server.config.load()
    return server


class Case(NamedTuple):
    """What sends, to whom, and by what the node knows then."""

    sender: Sender
    node: Node
    keyring: Keyring


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


async def cases(
    stack: AsyncExitStack, place: Path, principals: int, policies: int
) -> dict[str, Case]:
    """By name, in the order in which they are printed."""
    node = await opened(stack, place / "plain")
    bounded = await opened(stack, place / "bounded", **QUOTAS)
    headers = []
    for each in (node, bounded):
        key = await each.metadata.principals.make_first()
        await each.metadata.principals.refresh()
        headers.append(f"authorization: Bearer {key.text}\r\n")
    server, bounded_server = serving(node), serving(bounded)
    one, of_bounded = node.metadata.principals.keyring, bounded.metadata.principals.keyring
    is_open = replace(one, is_closed=False)
    with_key = Sender(server, headers[0])
    return {
        "without": Case(Sender(server), node, is_open),
        "with": Case(with_key, node, one),
        "one of many": Case(with_key, node, crowded(one, principals, policies)),
        "with, quotas": Case(Sender(bounded_server, headers[1]), bounded, of_bounded),
        "keys, without": Case(Sender(server, keys=True), node, is_open),
        "keys, with": Case(Sender(server, headers[0], keys=True), node, one),
        "keys, with, quotas": Case(
            Sender(bounded_server, headers[1], keys=True), bounded, of_bounded
        ),
    }


RATIOS: Final = (
    ("without", "with"),
    ("without", "with, quotas"),
    ("keys, without", "keys, with"),
    ("keys, without", "keys, with, quotas"),
    ("one of many", "with"),
)


async def measure(windows: int, principals: int, policies: int) -> None:
    """Print the figures."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        known = await cases(stack, Path(directory), principals, policies)
        found: dict[str, list[float]] = {name: [] for name in known}
        names = list(known)
        for turn in range(-5, windows):
            if turn == 0:
                gc.collect()
                gc.freeze()
            begin = turn % len(names)
            for name in names[begin:] + names[:begin]:
                case = known[name]
                case.node.metadata.principals.keyring = case.keyring
                took = await case.sender.window()
                if turn >= 0:
                    found[name].append(took)
    for name, figures in found.items():
        print(f"{name:20} median {median(figures):6.2f} µs, least {min(figures):6.2f}")
    for one, other in RATIOS:
        print(f"{one} / {other}: {_ratio(found[one], found[other]):.3f}")


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

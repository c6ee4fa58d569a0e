"""The rows beside other brokers: the same load, in turn, on the same cores.

What each of them does with a message differs; `benchmarks/README.md` says how. Each peer is
measured as its own users would call fast and, where it has one, in the mode that keeps as much as
our `async` flush does.
"""

import json
import socket
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import peers
from benchmarks.load import RECEIVE_BYTES, Rate, generate, wrk
from benchmarks.row import Row
from benchmarks.rows import BODY, send_frames, send_path
from benchmarks.servers import node

CONNECTIONS = 32
PIPELINE = 64
_XADD = b"*5\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$1\r\n*\r\n$4\r\nbody\r\n$%d\r\n%b\r\n"

Measure = Callable[[float], tuple[float, float]]


def redis_over_http(seconds: float, *, append_only: bool) -> tuple[float, float]:
    """Requests a second: `XADD` through webdis, the body of the request as the value."""
    with peers.redis(append_only=append_only) as port, peers.webdis(port) as address:
        url = f"{address}/XADD/{peers.REDIS_STREAM}/*/body"
        baseline = wrk(url, BODY, CONNECTIONS, seconds, method="PUT")
        _check_stored(port, baseline, seconds)
    return baseline.per_second, _single_sends(seconds)


def redis_pipeline(seconds: float, *, append_only: bool) -> tuple[float, float]:
    """Messages a second: `XADD`, 64 before the answers are read; one connection, as for frames."""
    with peers.redis(append_only=append_only) as port:
        baseline = generate(_adding, f"127.0.0.1:{port}", 1, seconds)
        _check_stored(port, baseline, seconds)
    return baseline.per_second, send_frames(seconds)


def _adding(address: str, _number: int) -> Iterator[int]:
    connection = _connect(int(address.rpartition(":")[2]))
    name = peers.REDIS_STREAM.encode()
    request = _XADD % (len(name), name, len(BODY), BODY) * PIPELINE
    yield 0
    while True:
        connection.sendall(request)
        answers = bytearray()
        # Each answer is the id of the message as a bulk string: two lines.
        while answers.count(b"\n") < 2 * PIPELINE:
            answers += _receive(connection)
        if b"-ERR" in answers:
            raise RuntimeError(answers[:200].decode(errors="replace"))
        yield PIPELINE


def _check_stored(port: int, rate: Rate, seconds: float) -> None:
    """All that Redis confirmed is in the stream, a whole body each."""
    with _connect(port) as connection:
        connection.sendall(f"XLEN {peers.REDIS_STREAM}\r\n".encode())
        stored = int(_receive(connection)[1:])
        connection.sendall(f"XREVRANGE {peers.REDIS_STREAM} + - COUNT 1\r\n".encode())
        last = b""
        while len(last) < len(BODY):
            last += _receive(connection)
    if stored < rate.per_second * seconds * 0.9 or BODY not in last:
        raise peers.PeerFailed(f"Redis has {stored} messages at {rate.per_second:.0f} a second")


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(RECEIVE_BYTES)
    if not data:
        raise ConnectionError("Redis closed the connection")
    return data


def rabbitmq_over_http(seconds: float, *, persistent: bool) -> tuple[float, float]:
    """Requests a second: `publish` of the management plugin, which waits until it is routed."""
    message = {
        "properties": {"delivery_mode": 2 if persistent else 1},
        "routing_key": peers.RABBITMQ_QUEUE,
        "payload": BODY.decode(),
        "payload_encoding": "string",
    }
    with peers.rabbitmq() as (address, headers):
        url = f"{address}/api/exchanges/%2F/amq.default/publish"
        body = json.dumps(message).encode()
        baseline = wrk(url, body, CONNECTIONS, seconds, headers=headers)
    return baseline.per_second, _single_sends(seconds)


def _single_sends(seconds: float) -> float:
    with node("async") as (url, _):
        return wrk(url + send_path(), BODY, CONNECTIONS, seconds).per_second


def _beside_redis(
    case: str, what: str, target: str, measure: Callable[..., tuple[float, float]], *packages: str
) -> list[Row]:
    """One row with Redis in memory alone, one with its log."""
    missing = partial(peers.missing, "redis-server", *packages)
    unit = "req/s" if packages else "msg/s"
    return [
        Row(f"{case}: {name}", unit, f"{what}, {kept}", target,
            partial(measure, append_only=append_only), missing=missing)
        for name, kept, append_only in (
            ("Redis", "in memory", False),
            ("Redis, log", "appendfsync everysec", True),
        )
    ]  # fmt: skip


PEER_ROWS = [
    *(
        Row(f"single send: RabbitMQ, {kept}", "req/s", f"RabbitMQ HTTP publish, {kept}", "≥ 10",
            partial(rabbitmq_over_http, persistent=persistent),
            missing=partial(peers.missing, "rabbitmq-server"))
        for kept, persistent in (("transient", False), ("persistent", True))
    ),
    *_beside_redis("single send", "webdis XADD", "≥ 0.5", redis_over_http, "webdis"),
    *_beside_redis("frames sent", f"XADD, pipeline of {PIPELINE}", "≥ 2.5", redis_pipeline),
]  # fmt: skip

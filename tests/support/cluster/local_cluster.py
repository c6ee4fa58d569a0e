"""`make cluster`: a PostgreSQL and three nodes of three shards on this machine, to try things on;
`make cluster REPLICAS=3`: three nodes of one shard, each with a replica of it.

Everything is under `build/cluster` and begins anew with each start: the PostgreSQL does not sync.
Ctrl-C ends it all.
"""

import shlex
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import Final

from app.cluster import migrate
from tests.support.metadata.postgres import PostgresServer

NAMES: Final = ("a", "b", "c")
PORT: Final = 8710
CLUSTER_PORT: Final = 8810
STOP_SECONDS: Final = 20

_LINES: Final = """
Three nodes of one cluster, each with a shard: {urls}
Ctrl-C ends them. Each queue is in one shard; any node takes any request:

  curl -X PUT localhost:8710/v1/topics/orders --json '{{"queues": 3}}'
  curl localhost:8711/v1/topics/orders/messages -H 'MQ-Sharding-Key: order-17' -d '{{"id": 17}}'
  curl localhost:8712/v1/topics/orders/route
  curl localhost:8712/v1/cluster

A node that is gone takes its shard along until it is back, and nothing of it is lost:

  kill -9 {victim}      # the node at {victim_url}
  curl 'localhost:8710/v1/topics/orders/messages?queue_id=2' -d 'refused: not_stored'
  curl 'localhost:8710/v1/topics/orders/messages?queue_id=0' -d 'goes on'
  {again}
"""

_OF_REPLICAS: Final = """
Three nodes with one shard, each with a replica of it: {urls}
Ctrl-C ends them. Any node takes any request, and what is confirmed is on two of them at least:

  curl -X PUT localhost:8710/v1/topics/orders --json '{{"queues": 3}}'
  curl localhost:8711/v1/topics/orders/messages -H 'MQ-Sharding-Key: order-17' -d '{{"id": 17}}'
  curl localhost:8712/v1/topics/orders/route      # who leads
  curl localhost:8712/v1/cluster/events           # and who led before

Kill any node, also the one that leads. Another one leads some seconds later, and has it all:

  kill -9 {victim}      # the node at {victim_url}
  curl localhost:8710/readyz
  curl 'localhost:8710/v1/topics/orders/messages' -d 'goes on'
  {again}
"""


def main() -> None:
    """Run it until Ctrl-C."""
    replicas = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    root = Path("build/cluster").absolute()
    rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    secret = root / "secret"
    secret.touch(0o600)
    secret.write_text(token_hex(32), encoding="ascii")
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as stack:
        server = PostgresServer.create()
        stack.callback(server.destroy)
        url = root / "database.url"
        url.touch(0o600)
        url.write_text(server.new_database(), encoding="ascii")
        migrate(url.read_text(encoding="ascii"))
        nodes = [_start(root, stack, number, replicas) for number in range(len(NAMES))]
        again = shlex.join(_command(root, 2, replicas))
        urls = " ".join(f"http://localhost:{PORT + number}" for number in range(len(NAMES)))
        sys.stdout.write(
            (_LINES if replicas == 1 else _OF_REPLICAS).format(
                urls=urls,
                victim=nodes[2].pid,
                victim_url=f"http://localhost:{PORT + 2}",
                again=again,
            )
        )
        sys.stdout.flush()
        ended.wait()


def _command(root: Path, number: int, replicas: int) -> list[str]:
    cluster = f"127.0.0.1:{CLUSTER_PORT + number}"
    settings = {
        "data-dir": str(root / NAMES[number]),
        "port": str(PORT + number),
        "shard": NAMES[number] if replicas == 1 else "orders",
        "replicas": str(replicas),
        "database-url-file": str(root / "database.url"),
        "cluster-listen": cluster,
        "cluster-secret-file": str(root / "secret"),
        "advertise-url": f"http://localhost:{PORT + number}",
    }
    flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
    return [sys.executable, "-m", "app.cli", "serve", *flags]


def _start(root: Path, stack: ExitStack, number: int, replicas: int) -> "subprocess.Popen[bytes]":
    log = stack.enter_context((root / f"{NAMES[number]}.log").open("wb"))
    node = subprocess.Popen(_command(root, number, replicas), stdout=subprocess.PIPE, stderr=log)
    stack.callback(_stop, node)
    assert node.stdout is not None
    line = node.stdout.readline()  # it is up
    if not line:
        raise SystemExit((root / f"{NAMES[number]}.log").read_text(errors="replace"))
    return node


def _stop(node: "subprocess.Popen[bytes]") -> None:
    if node.poll() is None:
        node.terminate()
        try:
            node.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()


if __name__ == "__main__":
    main()

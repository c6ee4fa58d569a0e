"""Nodes of one cluster, each a process, over a database of their own."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final

from app.cluster import migrate
from benchmarks.servers import running
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.free_ports import free_port

LOG_CACHE_MIB: Final = 1_536
"""Of all logs together, what stays in memory: each node by itself would take the machine for its
own, and several would let the kernel make new pages where one uses old ones again."""


@contextmanager
def started(
    server: PostgresServer, shards: Sequence[str], replicas: int = 1
) -> Iterator[list[tuple[str, int]]]:
    """A node for each of the named shards, of which one may be named several times: addresses and
    process ids. Who leads is not waited for."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curlew-bench-")))
        url = server.new_database()
        migrate(url)
        for name, text in (("secret", token_hex(32)), ("database.url", url)):
            (root / name).touch(0o600)
            (root / name).write_text(text)
        found: list[tuple[str, int]] = []
        for number, shard in enumerate(shards):
            flags = [
                *("--port", "0", "--data-dir", str(root / str(number)), "--shard", shard),
                *("--replicas", str(replicas), "--database-url-file", str(root / "database.url")),
                *("--cluster-listen", f"127.0.0.1:{free_port()}"),
                *("--cluster-secret-file", str(root / "secret")),
                *("--log-cache-mib", str(LOG_CACHE_MIB // len(shards))),
            ]
            found.append(stack.enter_context(running("app.cli", "dev", *flags)))
        yield found

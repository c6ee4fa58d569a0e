"""Nodes of one cluster, each a process, over a database of their own."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final

from app.cluster import migrate
from benchmarks.cluster.slow_disk import SYNC_MS
from benchmarks.servers import running
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.free_ports import free_port

LOG_CACHE_MIB: Final = 1_536
"""Of all logs together, what stays in memory: each node by itself would take the machine for its
own, and several would let the kernel make new pages where one uses old ones again."""


@dataclass(frozen=True)
class Cluster:
    """Where its nodes are, and what is of all of them."""

    root: Path
    replicas: int
    log_cache_mib: int
    """Of each node."""
    sync_ms: float = 0
    """How much longer each sync takes than the disk's."""

    def node(self, name: str, shard: str) -> AbstractContextManager[tuple[str, int]]:
        """Address and process id, until the block ends. One of the same name has what the one
        before has left."""
        flags = [
            *("--port", "0", "--data-dir", str(self.root / name), "--shard", shard),
            *("--replicas", str(self.replicas)),
            *("--database-url-file", str(self.root / "database.url")),
            *("--cluster-listen", f"127.0.0.1:{free_port()}"),
            *("--cluster-secret-file", str(self.root / "secret")),
            *("--log-cache-mib", str(self.log_cache_mib)),
        ]
        if not self.sync_ms:
            return running("app.cli", "dev", *flags)
        environment = {SYNC_MS: str(self.sync_ms)}
        return running("benchmarks.cluster.slow_disk", "dev", *flags, environment=environment)


@contextmanager
def cluster(
    server: PostgresServer, replicas: int, log_cache_mib: int, sync_ms: float = 0
) -> Iterator[Cluster]:
    """One without nodes yet."""
    with tempfile.TemporaryDirectory(prefix="curlew-bench-") as directory:
        root = Path(directory)
        url = server.new_database()
        migrate(url)
        for name, text in (("secret", token_hex(32)), ("database.url", url)):
            (root / name).touch(0o600)
            (root / name).write_text(text)
        yield Cluster(root, replicas, log_cache_mib, sync_ms)


@contextmanager
def started(
    server: PostgresServer, shards: Sequence[str], replicas: int = 1, sync_ms: float = 0
) -> Iterator[list[tuple[str, int]]]:
    """A node for each of the named shards, of which one may be named several times: addresses and
    process ids. Who leads is not waited for."""
    with (
        cluster(server, replicas, LOG_CACHE_MIB // len(shards), sync_ms) as made,
        ExitStack() as stack,
    ):
        yield [
            stack.enter_context(made.node(str(number), shard))
            for number, shard in enumerate(shards)
        ]

"""Three real nodes of three shards over one PostgreSQL, each a process that can be killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_connector.tests.support.real_node import RealNode
from tests.support.cluster.three_nodes import secret_file
from tests.support.nodes.free_ports import free_port
from tests.support.nodes.node import RunningNode, start_node


class RealCluster:
    """Nodes of the shards a, b and c; each takes any request, and leads its own shard."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self._folder = folder
        self._database_url = database_url
        self._ports = {name: (free_port(), free_port()) for name in "abc"}
        self._running: dict[str, RunningNode] = {}
        for name in self._ports:
            self.start(name)

    def __getitem__(self, name: str) -> RealNode:
        return RealNode(self._running[name].url)

    def start(self, name: str) -> None:
        """Start the node, for the first time or on what it left behind."""
        port, cluster_port = self._ports[name]
        settings = {
            "port": str(port),
            "shard": name,
            "cluster-listen": f"127.0.0.1:{cluster_port}",
            "cluster-secret-file": str(secret_file(self._folder)),
        }
        flags = [part for key, value in settings.items() for part in (f"--{key}", value)]
        environment = {"CURLEW_DATABASE_URL": self._database_url}
        self._running[name] = start_node(self._folder / name, *flags, environment=environment)

    def kill(self, name: str) -> None:
        """kill -9."""
        node = self._running.pop(name)
        node.kill()
        assert node.process.stdout is not None
        node.process.stdout.close()

    def kill_all(self) -> None:
        for name in list(self._running):
            self.kill(name)


@contextmanager
def run_real_cluster(folder: Path, database_url: str) -> Iterator[RealCluster]:
    """Until the block ends. `database_url`: of a database with the newest schema."""
    cluster = RealCluster(folder, database_url)
    try:
        yield cluster
    finally:
        cluster.kill_all()

"""Nodes as processes of their own: one is killed, the others go on, and it comes back with all."""

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import httpx
import pytest

from app.cluster import migrate
from tests.support.cluster.three_nodes import free_port, secret_file
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.node import RunningNode, run_node

pytestmark = pytest.mark.postgres


def test_a_killed_node_takes_its_queues_along_until_it_is_back(
    tmp_path: Path, postgres_databases: PostgresDatabases
) -> None:
    url = postgres_databases.empty()
    migrate(url)
    environment = {"CURLEW_DATABASE_URL": url}
    secret = str(secret_file(tmp_path))

    def flags(name: str) -> list[str]:
        cluster = f"127.0.0.1:{free_port()}"
        return ["--shard", name, "--cluster-listen", cluster, "--cluster-secret-file", secret]

    def node(name: str) -> AbstractContextManager[RunningNode]:
        return run_node(tmp_path / name, *flags(name), command="serve", environment=environment)

    with ExitStack() as stack:
        first = stack.enter_context(node("a"))
        with node("b") as second:
            assert httpx.put(f"{first.url}/v1/topics/orders", json={"queues": 2}).is_success
            send = f"{first.url}/v1/topics/orders/messages?queue_id="
            assert httpx.post(f"{send}1", content=b"kept").status_code == 201
            assert httpx.post(f"{second.url}/v1/topics/orders/messages?queue_id=0").is_success
            second.kill()
            refused = httpx.post(f"{send}1", content=b"lost")
            assert refused.status_code in (502, 503)
            assert refused.json()["outcome"] in ("not_stored", "unknown")
            refused = httpx.post(f"{send}1", content=b"lost")
            assert (refused.status_code, refused.json()["outcome"]) == (503, "not_stored")
            assert httpx.post(f"{send}0", content=b"goes on").status_code == 201
        with node("b") as second:
            queue = f"{second.url}/v1/topics/orders/queues/1/messages?offset=0"
            assert len(httpx.get(queue).json()["messages"]) == 1
            again = httpx.get(f"{first.url}/v1/topics/orders/queues/1/messages?offset=0")
            assert again.status_code in (200, 503)  # 503: it has not heard of the new port yet

"""Three nodes of three shards in the test's event loop, over one PostgreSQL."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.peers import pool
from app.api.relay.consuming import receives
from app.config import Config
from app.domain.limits import Limits
from app.main import NodeServer, bind
from app.node import Node
from tests.support.nodes.free_ports import free_port

PATIENCE_S = 60
SECRET = b"0" * 64


@dataclass
class ServedNode:
    """One of them."""

    name: str
    node: Node
    client: httpx.AsyncClient
    server: NodeServer
    serving: "asyncio.Task[None]"
    listener: socket.socket

    async def stop(self) -> None:
        """In order."""
        await self.client.aclose()
        self.server.should_exit = True
        await asyncio.wait_for(self.serving, PATIENCE_S)
        self.listener.close()
        await self.node.close()


def secret_file(directory: Path, content: bytes = SECRET) -> Path:
    """A file with a cluster secret, for its owner alone."""
    file = directory / f"secret-{content[:4].hex()}"
    file.write_bytes(content)
    file.chmod(0o600)
    return file


async def start_node(
    directory: Path,
    url: str,
    name: str,
    limits: Limits | None = None,
    trusts: ssl.SSLContext | None = None,
    **settings: Any,
) -> ServedNode:
    """A node of the shard `name`, or of another that the settings name. `trusts`: what its client
    does, where the settings give it a certificate."""
    settings = {
        "shard": name,
        "cluster_listen": f"127.0.0.1:{free_port()}",
        "cluster_secret_file": secret_file(directory),
        **settings,
    }
    config = Config(
        **{"data_dir": directory / name, "port": free_port(), "database_url": url, **settings}
    )
    node = await Node.open(config, limits=limits or Limits())
    listener = bind(config)
    server = NodeServer(node)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    base = f"{'https' if trusts else 'http'}://127.0.0.1:{config.port}"
    client = httpx.AsyncClient(base_url=base, timeout=PATIENCE_S, verify=trusts or True)
    return ServedNode(name, node, client, server, serving, listener)


@contextlib.asynccontextmanager
async def three_nodes(
    directory: Path,
    url: str,
    limits: Limits | None = None,
    trusts: ssl.SSLContext | None = None,
    **settings: Any,
) -> AsyncIterator[list[ServedNode]]:
    """Nodes of the shards a, b and c, which know of each other, with a topic `orders` of three
    queues, one in each.

    They have one event loop. So whatever holds that up counts as the silence of the node that is
    asked, and a busy machine holds it up for a second: they are patient with each other.
    """
    nodes: list[ServedNode] = []
    patience = pytest.MonkeyPatch()
    patience.setattr(pool, "CONNECT_SECONDS", PATIENCE_S)
    patience.setattr(pool, "SECONDS", PATIENCE_S)
    patience.setattr(receives, "WAIT_SECONDS", PATIENCE_S)
    patience.setattr(receives, "SLOW_SECONDS", PATIENCE_S)
    try:
        for name in "abc":
            node = await start_node(directory, url, name, limits, trusts, **settings)
            nodes.append(node)
        made = await nodes[0].client.put("/v1/topics/orders", json={"queues": 3})
        assert made.status_code == 201, made.text
        for each in nodes:
            await each.node.metadata.refresh()
        yield nodes
    finally:
        for each in nodes:
            if not each.serving.done():
                await each.stop()
        patience.undo()

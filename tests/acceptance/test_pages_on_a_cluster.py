"""What the pages tell a user to paste prints the same on a cluster of three shards, through a node
chosen at random for each request."""

import asyncio
import os
import random
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
from typing_extensions import override

from tests.support.clients.curl_pages import Shell, blocks_of
from tests.support.cluster.three_nodes import start_node
from tests.support.length import selection
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.node import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

SEED: Final = int(os.environ.get("CURLEW_PAGES_SEED", "17"))
"""Of the choices of nodes."""
_NODE: Final = re.compile(r"(?:localhost|127\.0\.0\.1):8710\b")
ALL: Final = sorted(
    str(page.relative_to(ROOT))
    for place in ("*.md", "docs/**/*.md", "clients/**/*.md", "spark_connector/*.md")
    for page in ROOT.glob(place)
    if blocks_of(page.read_text()) and "node_modules" not in page.parts
)
PAGES: Final = selection(
    ALL,
    [
        *("docs/first-steps.md", "docs/guides/members.md", "docs/guides/retries.md"),
        *("docs/guides/transactions.md", "docs/namespaces.md", "docs/reference/http-api.md"),
        "docs/rocketmq/samples.md",
    ],
)


class AnyNode(Shell):
    """Pastes each request to a node that it chooses."""

    def __init__(self, ports: list[int], directory: Path, chooses: random.Random) -> None:
        super().__init__(0, directory)
        self.ports = ports
        self.chooses = chooses

    @override
    def at_node(self, lines: str) -> str:
        return _NODE.sub(lambda _: f"127.0.0.1:{self.chooses.choice(self.ports)}", lines)


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_prints_the_same_through_any_node(
    page: str, tmp_path: Path, postgres_databases: PostgresDatabases
) -> None:
    url = postgres_databases.migrated()
    chooses = random.Random(f"{SEED} {page}")
    async with AsyncExitStack() as stack:
        nodes = []
        for name in "abc":
            node = await start_node(tmp_path, url, name, auto_create_topics=True)
            stack.push_async_callback(node.stop)
            nodes.append(node)
        for node in nodes:
            await node.node.metadata.refresh()
        ports = [node.node.config.port for node in nodes]
        shell = AnyNode(ports, tmp_path, chooses)
        for block in blocks_of((ROOT / page).read_text()):
            for command in block:
                await asyncio.to_thread(shell.paste, command)

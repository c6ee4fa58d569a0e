"""What is free of the disk: in the statistics, and on the overview, which warns of a full one."""

import asyncio
import re
from http import HTTPStatus

import httpx
import pytest

from app.store import DiskUsage
from app.web.rendering.values import UNKNOWN
from tests.support.nodes.closed import ClosedNode, closed_node
from tests.support.stores.memory_store import MemoryStore

BASE = "http://localhost:8710"
OF_THE_DISK = re.compile(
    r'<div class="([^"]*)">\s*<dt>Disk free</dt>\s*<dd><span class="value">([^<]*)</span>'
)


async def figures_of(node: ClosedNode) -> tuple[tuple[int | None, int | None], list[str]]:
    """The two members of the statistics; classes and value of the figure."""
    transport = httpx.ASGITransport(node.app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        answer = await client.get("/v1/stats")
        assert answer.status_code == HTTPStatus.OK
        stats = answer.json()
        found = OF_THE_DISK.search((await client.get("/ui/")).text)
        assert found is not None
        return (stats["disk_bytes"], stats["disk_free_bytes"]), [found[1], found[2]]


@pytest.mark.parametrize("disk", [DiskUsage(5_000, 1_024), None])
def test_the_disk_is_shown_when_it_answers(disk: DiskUsage | None) -> None:
    async def run() -> None:
        async with closed_node(is_closed=False, with_pages=True) as node:
            store = node.world.store
            assert isinstance(store, MemoryStore)
            store.disk = disk
            sizes, (_, shown) = await figures_of(node)
            assert sizes == ((None, None) if disk is None else (5_000, 1_024))
            assert shown == (UNKNOWN if disk is None else "1.0 KiB")

    asyncio.run(run())


def test_a_full_disk_is_a_warning_on_the_overview() -> None:
    async def run() -> None:
        async with closed_node(is_closed=False, with_pages=True) as node:
            store = node.world.store
            assert isinstance(store, MemoryStore)
            _, (before, _) = await figures_of(node)
            store.state.refusal = "the disk is nearly full"
            sizes, (then, _) = await figures_of(node)
            assert sizes == (2_000, 500)
            assert "warn" not in before
            assert "warn" in then

    asyncio.run(run())

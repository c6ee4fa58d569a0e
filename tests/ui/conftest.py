"""A browser for each module of tests; sites with made-up topics.

The scope is the module and not the session: while Playwright's synchronous interface is open, an
event loop runs in this thread, and tests elsewhere could not start one.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from starlette.applications import Starlette
from starlette.routing import Mount

from app.web import build_web
from tests.support.clients.browser import chromium
from tests.support.clients.serving import served
from tests.support.clients.web_fakes import FakeNode, busy_node
from tests.support.stores.clock import FakeClock


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def _site(node: FakeNode) -> Starlette:
    return Starlette(routes=[Mount("/ui", app=build_web(node, node, FakeClock()))])


@pytest.fixture(scope="module")
def busy() -> Iterator[str]:
    """The origin of a node with topics of all kinds."""
    with served(_site(busy_node())) as origin:
        yield origin


@pytest.fixture(scope="module")
def crowded() -> Iterator[str]:
    """The origin of a node with more topics than a page holds."""
    node = FakeNode()
    for number in range(120):
        node.add(f"{'even' if number % 2 == 0 else 'odd'}-{number:03}", {0: (0, number)})
    with served(_site(node)) as origin:
        yield origin


@pytest.fixture(scope="module")
def empty() -> Iterator[str]:
    """The origin of a node without topics."""
    with served(_site(FakeNode())) as origin:
        yield origin

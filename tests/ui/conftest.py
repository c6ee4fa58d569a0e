"""A browser for each module of tests; real nodes that are filled, or have nothing yet.

The scope is the module and not the session: while Playwright's synchronous interface is open, an
event loop runs in this thread, and tests elsewhere could not start one.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.clients.browser import chromium
from tests.support.clients.ui_pages import Filled, fill
from tests.support.nodes.node import run_node


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A node with something of everything."""
    with run_node(tmp_path_factory.mktemp("filled") / "data") as node:
        yield fill(node.url)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The origin of a node that has nothing yet."""
    with run_node(tmp_path_factory.mktemp("bare") / "data") as node:
        yield node.url

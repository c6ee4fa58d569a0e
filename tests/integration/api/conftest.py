"""One real node for all HTTP tests of this directory; every test has a topic of its own."""

from collections.abc import Iterator
from itertools import count

import httpx
import pytest

from tests.support.nodes.node import RunningNode, run_node

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    data_dir = tmp_path_factory.mktemp("http") / "data"
    with run_node(data_dir, "--auto-create-topics", "false") as running:
        yield running


@pytest.fixture(scope="session")
def http(node: RunningNode) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.url, timeout=60) as client:
        yield client


@pytest.fixture
def topic(http: httpx.Client) -> str:
    """A new topic with two queues."""
    name = f"topic-{next(_NUMBERS)}"
    http.put(f"/v1/topics/{name}", json={"queues": 2, "flush": "async"}).raise_for_status()
    return name

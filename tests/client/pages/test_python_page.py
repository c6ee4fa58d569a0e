"""Every block of Python on the client's page runs against a node."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.nodes.node import run_node

PAGE = Path(__file__).parents[3] / "docs" / "clients" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_node(tmp_path_factory.mktemp("page") / "node") as running:
        yield running.url


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block(number: int, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURLEW_URL", url)
    block = BLOCKS[number].replace("http://127.0.0.1:8710", url)
    httpx.put(f"{url}/v1/topics/orders", json={"queues": 4})
    exec(compile(block, f"{PAGE.name}, block {number}", "exec"), {"__name__": "page"})

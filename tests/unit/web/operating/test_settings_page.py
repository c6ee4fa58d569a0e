"""How the page of a node writes the values of its settings."""

import asyncio
import json
from typing import Any, Final

import httpx
import pytest

from app.web.serving.api import Answer, Api
from tests.support.nodes.closed import closed_node

KEPT: Final = {"source": "file", "restart": True, "changeable": False, "unit": None}
SETTINGS: Final[list[dict[str, Any]]] = [
    {**KEPT, "name": "port", "value": 8711, "default": 8710},
    {**KEPT, "name": "limit_topics_max", "value": 20_000, "default": 10_000},
]


def test_a_port_is_written_as_one_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Api.ask

    async def answered(api: Api, method: str, where: str, **more: Any) -> Answer:
        if where == "/v1/config":
            return Answer(200, {}, json.dumps({"settings": SETTINGS}).encode())
        return await ask(api, method, where, **more)

    async def shown() -> str:
        async with closed_node(is_closed=False, with_pages=True) as node:
            transport = httpx.ASGITransport(node.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost:8710"
            ) as client:
                return (await client.get("/ui/nodes/settings?show=all")).text

    monkeypatch.setattr(Api, "ask", answered)
    text = asyncio.run(shown())
    for value in ("8711", "8710", "20,000", "10,000"):
        assert f">{value}<" in text

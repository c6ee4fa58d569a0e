"""A key is made by one request at a time of a site, and by no other site's."""

import asyncio
import json

import httpx
import pytest
from starlette.applications import Starlette

from app.api.http.request_context import Receive, Scope, Send
from app.web import build_web
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio

BASE = "http://localhost:8710"
PRINCIPAL = {
    "name": "shop",
    "roles": [],
    "resources": [],
    "namespace": "",
    "allowed_from": [],
    "created_ms": 1,
    "disabled": False,
    "keys": [],
}


class PlayedNode:
    """Answers the pages of a principal. Keys are made when `may_answer` is set."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.made = 0
        self.site: Starlette = build_web(self, FakeClock())

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        document: dict[str, object] = PRINCIPAL
        if scope["path"] == "/v1/whoami":
            document = {"principal": None}
        elif scope["method"] == "POST":
            self.is_asked.set()
            await self.may_answer.wait()
            self.made += 1
            document = {"id": "k", "key": f"curlew_k_{self.made}", "expires_ms": None}
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})

    async def make_key(self) -> str:
        transport = httpx.ASGITransport(self.site)
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            return (await client.post("/principals/shop/keys", data={"seen": ""})).text


async def test_two_sites_of_one_process_make_a_key_each_at_once() -> None:
    one, other = PlayedNode(), PlayedNode()
    other.may_answer.set()
    first = asyncio.ensure_future(one.make_key())
    await one.is_asked.wait()
    assert "curlew_k_1" in await other.make_key()
    assert "none was made" in await one.make_key(), "the same site makes one at a time"
    one.may_answer.set()
    assert "curlew_k_1" in await first
    assert (one.made, other.made) == (1, 1)

"""The page says which keys its reader has seen, and what it means that there are others."""

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
    """Answers the pages of a principal, whose keys are `keys`."""

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)
        self.site: Starlette = build_web(self, FakeClock())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, document = 200, dict[str, object](PRINCIPAL)
        if scope["path"] == "/v1/whoami":
            document = {"principal": None}
        elif scope["method"] == "POST":
            known = json.loads((await receive())["body"])["known_keys"]
            if known == self.keys:
                self.keys.append("new")
                document = {"id": "new", "key": "curlew_new_1", "expires_ms": None}
            else:
                status, document = 412, {"status": 412, "code": "PRECONDITION_FAILED"}
        start = {"type": "http.response.start", "status": status}
        await send({**start, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})

    async def make_key(self, seen: str) -> str:
        transport = httpx.ASGITransport(self.site)
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            return (await client.post("/principals/shop/keys", data={"seen": seen})).text


@pytest.mark.parametrize("seen", ["", "a", "a b"])
async def test_a_form_that_is_sent_again_makes_no_second_key(seen: str) -> None:
    node = PlayedNode(*seen.split())
    assert "curlew_new_1" in await node.make_key(seen)
    assert "none was made" in await node.make_key(seen)
    assert node.keys == [*seen.split(), "new"]

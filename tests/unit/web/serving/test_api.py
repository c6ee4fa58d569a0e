"""Calls that a page makes of the node's own API."""

import asyncio

from app.api.http.request_context import Receive, Scope, Send
from app.web.serving.api import Api


async def at_once(_: Scope, __: Receive, send: Send) -> None:
    """Waits for nothing, as a call that is answered from memory."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def test_other_requests_go_on_between_the_calls_of_a_page() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        task = asyncio.ensure_future(others())
        api = Api(at_once, {"headers": []})
        for _ in range(100):
            await api.get("groups", "billing", "lag")
        task.cancel()

    asyncio.run(run())
    assert turns >= 100

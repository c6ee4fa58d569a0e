"""A client that asks again while a node says that it cannot answer now, as a careful one does."""

import asyncio

import httpx
from typing_extensions import override


class PatientTransport(httpx.AsyncHTTPTransport):
    """Repeats what was answered 503 and `retryable`, after the `Retry-After` that came with it.

    On a machine whose disk takes a second for a sync the metadata database keeps its callers
    waiting longer than the node lets them. Bounded by whoever waits for the answer.
    """

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        while True:
            answer = await super().handle_async_request(request)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                return answer
            answer.request = request
            await answer.aread()
            if not answer.json()["retryable"]:
                return answer
            await asyncio.sleep(float(answer.headers["Retry-After"]))

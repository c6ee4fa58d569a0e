"""Which node is read by who is far behind: any that has the queue in sync, but for its leader."""

import json
import random
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final

from curlew_client.aio.sending import AsyncSender
from curlew_client.assigned.records import QueueName
from curlew_client.errors import CurlewError
from curlew_client.session import Session
from curlew_client.wire.http1 import path_part

VALID_S: Final = 30.0
"""How long a route is kept, also where there is none."""


class Replicas:
    """Of one consumer. Event loop."""

    def __init__(self, session: Session, sender: AsyncSender) -> None:
        self._session = session
        self._sender = sender
        self._kept: dict[str, tuple[float, Mapping[int, Sequence[str]]]] = {}

    async def one_of(self, queue: QueueName) -> str | None:
        """The address of one; None: any node, as always."""
        until_s, found = self._kept.get(queue.topic, (0.0, {}))
        if until_s <= monotonic():
            found = await self._ask(queue.topic)
            self._kept[queue.topic] = monotonic() + VALID_S, found
        now_s, routes = monotonic(), self._session.routes
        urls = [url for url in found.get(queue.queue_id, ()) if routes.may_ask(url, now_s)]
        return random.choice(urls) if urls else None

    async def _ask(self, topic: str) -> dict[int, list[str]]:
        if not self._session.options.routes:
            return {}
        try:
            answer, _ = await self._sender.call(
                "GET", f"/v1/topics/{path_part(topic)}/route", timeout_s=self._session.timeout_s
            )
            rows = json.loads(answer.body)["queues"]
            return {row["queue_id"]: self._followers(row) for row in rows}
        except (CurlewError, ValueError, TypeError, KeyError):
            return {}

    def _followers(self, row: Mapping[str, Any]) -> list[str]:
        nodes = [self._session.learned(url) for url in row["replicas"] if url != row["leader"]]
        return [node.url for node in nodes if node is not None]

"""Offsets that are asked for: of times, ends, and what a group has committed."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from curlew_client.aio.sending import AsyncSender
from curlew_client.assigned.records import QueueName
from curlew_client.session import Session
from curlew_client.wire.http1 import path_part
from curlew_client.wire.problems import error_of_problem


class Places:
    """Of one client. On its event loop."""

    def __init__(self, session: Session, sender: AsyncSender) -> None:
        self._session = session
        self._sender = sender

    async def at(self, topic: str, when: str | int) -> dict[int, int]:
        """Where the queues of a topic are at `earliest`, `latest`, or a time in epoch ms."""
        path = f"/v1/topics/{path_part(topic)}/offsets?at={quote(str(when))}"
        return _by_queue(await self._get(path))

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        """What a group has committed."""
        return _by_queue(await self._get(_of(group, topic)))

    async def commit(self, group: str, places: Mapping[QueueName, int]) -> None:
        """Commit for queues that no member owns. Raises why a queue was not; the others are, and
        the same may be committed again."""
        by_topic: dict[str, list[dict[str, int]]] = {}
        for (topic, queue_id), offset in places.items():
            by_topic.setdefault(topic, []).append({"queue_id": queue_id, "offset": offset})
        refused: list[Any] = []
        for topic, offsets in by_topic.items():
            answer, _ = await self._sender.call(
                "PUT",
                _of(group, topic),
                json.dumps({"offsets": offsets}).encode(),
                lines="content-type: application/json\r\n",
                timeout_s=self._session.timeout_s,
                retries=self._session.options.retries,
            )
            refused += json.loads(answer.body).get("refused", ())
        if refused:
            raise error_of_problem(refused[0], HTTPStatus.SERVICE_UNAVAILABLE)

    async def _get(self, path: str) -> Any:
        answer, _ = await self._sender.call(
            "GET",
            path,
            timeout_s=self._session.timeout_s,
            retries=self._session.options.retries,
        )
        return json.loads(answer.body)


def _of(group: str, topic: str) -> str:
    return f"/v1/groups/{path_part(group)}/offsets/{path_part(topic)}"


def _by_queue(shown: Any) -> dict[int, int]:
    return {each["queue_id"]: each["offset"] for each in shown["offsets"]}

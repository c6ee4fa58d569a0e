"""The requests that the demo makes of a Curlew node; plain HTTP, as any program could."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import urllib3

from flights.failures import StageFailed

_JSON: Final = {"Content-Type": "application/json"}
_NDJSON: Final = {"Content-Type": "application/x-ndjson"}


class ServiceError(StageFailed):
    """The node answered something else than success; the text has its own words."""


class Delivery(NamedTuple):
    """A received message, as far as the demo looks at it."""

    receipt_handle: str
    tag: str
    carrier: str


class Service:
    """One node by its base address."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=5, read=60), retries=urllib3.Retry(connect=3, read=0)
        )

    def is_ready(self) -> bool:
        """Whether the node answers and takes requests."""
        try:
            answer = self._pool.request("GET", f"{self.endpoint}/readyz", retries=False)
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200

    def make_topic(self, topic: str, queues: int) -> None:
        self._request("PUT", f"/v1/topics/{topic}", json.dumps({"queues": queues}), _JSON)

    def depth(self, topic: str) -> int:
        """How many messages the topic holds."""
        stats = self._request("GET", f"/v1/topics/{topic}/stats", "", {})
        depth = stats["depth"]
        assert isinstance(depth, int)
        return depth

    def send(self, topic: str, envelopes: Sequence[str]) -> None:
        """Send a batch, one JSON envelope a line; all of it must be stored."""
        answer = self._request(
            "POST", f"/v1/topics/{topic}/messages:batch", "\n".join(envelopes), _NDJSON
        )
        if answer["succeeded"] != len(envelopes):
            raise ServiceError(f"{answer['failed']} of {len(envelopes)} messages were refused")

    def receive(self, topic: str, group: str, most: int) -> list[Delivery]:
        """Lease up to `most` messages; none when the group has read everything."""
        answer = self._request(
            "POST",
            f"/v1/topics/{topic}/groups/{group}/messages:receive",
            json.dumps({"max_messages": most, "wait": 2, "invisible": "60s"}),
            _JSON,
        )
        messages = answer["messages"]
        assert isinstance(messages, list)
        return [
            Delivery(message["receipt_handle"], message["tag"], message["sharding_key"])
            for message in messages
        ]

    def acknowledge(self, topic: str, group: str, deliveries: Sequence[Delivery]) -> None:
        handles = [delivery.receipt_handle for delivery in deliveries]
        answer = self._request(
            "POST",
            f"/v1/topics/{topic}/groups/{group}/messages:settle",
            json.dumps({"acks": handles}),
            _JSON,
        )
        if answer["succeeded"] != len(handles):
            raise ServiceError(f"{answer['failed']} of {len(handles)} acks were refused")

    def _request(
        self, method: str, path: str, body: str, headers: Mapping[str, str]
    ) -> dict[str, object]:
        try:
            answer = self._pool.request(
                method, self.endpoint + path, body=body.encode(), headers=dict(headers)
            )
        except urllib3.exceptions.HTTPError as error:
            raise ServiceError(f"{method} {self.endpoint}{path}: {error}") from error
        if answer.status not in {200, 201}:
            text = answer.data[:500].decode("utf-8", "replace")
            raise ServiceError(f"{method} {path} was answered with {answer.status}: {text}")
        document: dict[str, object] = json.loads(answer.data)
        return document

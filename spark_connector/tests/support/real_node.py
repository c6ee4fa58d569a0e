"""A real Curlew node for the connector's tests: `curlew dev` beside them, spoken to over HTTP."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import urllib3

from tests.support.nodes.node import run_node


class RealNode:
    """Topics and messages in the same words as `FakeNode`."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._pool = urllib3.PoolManager()

    def add_topic(self, name: str, queues: int) -> None:
        """Make the topic, or give it more queues."""
        self._request("PUT", f"/v1/topics/{name}", {"queues": queues})

    def remove_topic(self, name: str) -> None:
        """Delete the topic with its messages."""
        answer = self._pool.request("DELETE", f"{self.base_url}/v1/topics/{name}")
        assert answer.status == 204, answer.data

    def send(
        self,
        topic: str,
        queue: int,
        *bodies: bytes,
        tag: str = "t",
        more: Sequence[Mapping[str, object]] = (),
    ) -> list[str]:
        """Store the bodies behind each other in one queue; return the message ids. `more`: what
        else each of the messages has, if anything."""
        messages = [
            {"text": body.decode(), "queue_id": queue, "tag": tag, "keys": [f"k-{body.decode()}"]}
            | dict(others)
            for body, others in zip_longest(bodies, more, fillvalue={})
        ]
        answer = self._request("POST", f"/v1/topics/{topic}/messages:batch", {"messages": messages})
        return [result["message_id"] for result in answer["results"]]

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """What the group has committed; nothing if there is no such group."""
        answer = self._pool.request("GET", f"{self.base_url}/v1/groups/{group}/offsets/{topic}")
        rows = json.loads(answer.data).get("offsets", [])
        return {row["queue_id"]: row["offset"] for row in rows}

    def leaders(self, topic: str) -> int:
        """Of how many queues the node knows who leads them."""
        answer = self._pool.request("GET", f"{self.base_url}/v1/topics/{topic}/route")
        return sum(row["leader"] is not None for row in json.loads(answer.data)["queues"])

    def drain(self, shard: str, *, keys: bool) -> None:
        """Have the shard take nothing that is new; with `keys`, none of a key either."""
        self._request("POST", f"/v1/shards/{shard}/drain", {"keys": keys})

    def perms(self, topic: str) -> list[str]:
        """What clients may do with each queue."""
        answer = self._pool.request("GET", f"{self.base_url}/v1/topics/{topic}/route")
        return [row["perm"] for row in json.loads(answer.data)["queues"]]

    def _request(self, method: str, path: str, document: object) -> dict[str, list[dict[str, str]]]:
        answer = self._pool.request(
            method,
            self.base_url + path,
            body=json.dumps(document),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status in {200, 201}, answer.data
        found: dict[str, list[dict[str, str]]] = json.loads(answer.data)
        return found


@contextmanager
def run_real_node(folder: Path) -> Iterator[RealNode]:
    """Run until the block ends, with the data below `folder`."""
    with run_node(folder / "data") as node:
        yield RealNode(node.url)

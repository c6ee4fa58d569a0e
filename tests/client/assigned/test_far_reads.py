"""Reads of chosen queues that are far behind: at other replicas, as the node has suggested."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from curlew_client.assigned.pulling import ChosenPulls
from curlew_client.assigned.queues import OwnedQueue
from curlew_client.assigned.records import QueueName
from curlew_client.errors import ConnectionFailed

pytestmark = pytest.mark.anyio

QUEUE = QueueName("orders", 0)
ROW = {"queue_id": 0, "leader": "http://a", "replicas": ["http://a", "http://b", "http://x"]}


class ScriptedSender:
    """Answers pulls in turn, and routes; keeps how it was asked."""

    def __init__(self, *answers: dict[str, str], route: Any = None) -> None:
        self.answers = list(answers)
        self.route = {"queues": [ROW]} if route is None else route
        self.asked: list[tuple[bool, str | None]] = []
        self.routes = 0

    async def leader_of_most(self, _queues: object) -> str | None:
        return None

    async def call(
        self, _method: str, target: str, *, lines: str = "", first: str | None = None, **_: Any
    ) -> tuple[Any, str]:
        if target.endswith("/route"):
            self.routes += 1
            if isinstance(self.route, Exception):
                raise self.route
            return SimpleNamespace(body=json.dumps(self.route).encode()), "http://a"
        self.asked.append(("mq-read: any\r\n" in lines, first))
        said = {"mq-next-offset": "0", "mq-up-to-date": "false", **self.answers.pop(0)}
        return SimpleNamespace(headers=said, body=b""), "http://a"


def learned(url: str) -> Any:
    """`http://x` cannot be used from here."""
    return None if url == "http://x" else SimpleNamespace(url=url)


async def asked_with(sender: ScriptedSender, gone: str = "") -> list[tuple[bool, str | None]]:
    session: Any = SimpleNamespace(
        timeout_s=1.0,
        options=SimpleNamespace(retries=0, routes=True),
        learned=learned,
        routes=SimpleNamespace(may_ask=lambda url, _now_s: url != gone),
    )
    options: Any = SimpleNamespace(group="billing", topics={}, start=None)
    nothing: Any = None
    scripted: Any = sender
    pulls = ChosenPulls(session, scripted, options, lambda _decision: None, nothing)
    pulls.queues[QUEUE] = OwnedQueue(QUEUE, 0, 0)
    while sender.answers:
        await pulls.read(10, 0.0, ())
    return sender.asked


async def test_a_suggestion_is_followed_until_the_end_of_the_queue() -> None:
    far, far_yet, end = {"mq-suggest-read": "any"}, dict[str, str](), {"mq-up-to-date": "true"}
    sender = ScriptedSender({}, far, far_yet, end, {})
    assert await asked_with(sender) == [
        (False, None),
        (False, None),
        (True, "http://b"),
        (True, "http://b"),
        (False, None),
    ]
    assert sender.routes == 1


@pytest.mark.parametrize(
    "route",
    [
        ConnectionFailed("down", "not_stored"),
        {},
        {"queues": [None]},
        {"queues": [{**ROW, "replicas": ["http://a"]}]},
        {"queues": [{**ROW, "replicas": None}]},
    ],
)
async def test_without_a_route_any_node_is_asked(route: Any) -> None:
    sender = ScriptedSender({"mq-suggest-read": "any"}, {}, route=route)
    assert await asked_with(sender) == [(False, None), (True, None)]


async def test_a_replica_that_cannot_be_reached_is_left_alone() -> None:
    sender = ScriptedSender({"mq-suggest-read": "any"}, {})
    assert await asked_with(sender, gone="http://b") == [(False, None), (True, None)]

"""While shards drain, the sink places each key where the service sends it."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_curlew.http.client import CurlewClient, Plan
from pyspark_curlew.http.http_options import HttpOptions
from pyspark_curlew.http.reply import Answer
from pyspark_curlew.http.transport import Request
from pyspark_curlew.writing.producer_identity import Producer
from pyspark_curlew.writing.routing import by_queue

from app.cluster.metadata.snapshot import TopicView
from app.domain.message import queue_for_sharding_key
from app.domain.shards.takes import Takes
from tests.unit.domain.shards.test_takes import DRAINS, SHARDS, topic

T = TypeVar("T")
KEYS = [*(f"key-{number}" for number in range(200)), "", "é-1", "工人"]


class Told:
    """A transport whose answers are these documents, whatever is asked."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._answer = Answer(200, {}, json.dumps(document).encode())

    def run(self, what: str, request: Request, read: Callable[[Answer], T]) -> T:
        return read(self._answer)

    def once(self, request: Request) -> Answer:
        return self._answer

    def require_success(self, answer: Answer, subject: str) -> None:
        pass


def told(document: Mapping[str, Any]) -> CurlewClient:
    client = CurlewClient(HttpOptions(("http://localhost:9",), 1, 1, 1, 1))
    client._transport = client._once = Told(document)  # type: ignore[assignment]
    return client


def route_of(view: TopicView) -> dict[str, Any]:
    """As `GET /v1/topics/{topic}/route` and `GET /v1/topics/{topic}` tell it."""
    rows = [
        {
            "queue_id": queue,
            "perm": view.permission_of(queue).value,
            "takes": view.takes_of(queue).value,
        }
        for queue in range(view.queues)
    ]
    return {"queues": rows, "write_queues": view.write_queues}


def open_plan(view: TopicView) -> Plan:
    client = told(route_of(view))
    client.queue_count = lambda _: view.queues  # type: ignore[method-assign]
    return client.open_plan("orders", 10)


def producers_plan(view: TopicView) -> Plan:
    drains = len(view.open_queues) != view.write_queues
    document = {
        "queues": len(view.open_queues),
        "queue_ids": list(view.open_queues) if drains else None,
        "write_queues": view.write_queues if drains else None,
        "key_queue_ids": list(view.key_queues) if drains else None,
        "messages_per_turn": 10,
    }
    return told(document).plan("orders", Producer("spark:q", 0, 7), 10)


def places(plan: Plan, keys: list[str]) -> dict[str, int]:
    column = pa.array([key.encode() for key in keys], pa.binary())
    turns = np.zeros(len(keys), dtype=np.int64)
    placed = by_queue(plan.queues, None, column, turns, plan.queue_ids, "queue", plan.of_keys)
    return {keys[row]: queue for queue, rows in placed for row in rows}


@pytest.mark.parametrize("planned", [open_plan, producers_plan])
@given(SHARDS, DRAINS, st.none() | st.integers(1, 12))
def test_a_key_goes_where_the_service_sends_it(
    planned: Callable[[TopicView], Plan],
    shards: tuple[str, ...],
    drains: dict[str, Takes],
    write_queues: int | None,
) -> None:
    view = topic(shards, drains, write_queues and min(write_queues, len(shards)))
    assert places(planned(view), KEYS) == {key: view.queue_of_key(key) for key in KEYS}


@pytest.mark.parametrize("planned", [open_plan, producers_plan])
@pytest.mark.parametrize("takes", [Takes.KEYED, Takes.NONE])
def test_a_key_whose_queue_stays_does_not_move(
    planned: Callable[[TopicView], Plan], takes: Takes
) -> None:
    plan = planned(topic(tuple("aaabaaaa"), {"b": takes}))
    assert list(plan.queue_ids or ()) == [0, 1, 2, 4, 5, 6, 7]
    found = places(plan, KEYS)
    own = {key: queue_for_sharding_key(key, 8) for key in KEYS}
    moved = {own[key] for key in KEYS if found[key] != own[key]}
    assert moved == ({3} if takes is Takes.NONE else set()), "its keys have moved, or have not yet"


def test_an_early_service_says_nothing_of_keys() -> None:
    early = route_of(topic(tuple("aba"), {"b": Takes.NONE}))["queues"]
    rows = [{"queue_id": row["queue_id"], "perm": row["perm"]} for row in early]
    client = told({"queues": rows})
    client.queue_count = lambda _: 3  # type: ignore[method-assign]
    assert client.open_plan("orders", 10) == Plan(2, 10, [0, 2])
    document = {"queues": 2, "queue_ids": [1, 4], "messages_per_turn": 10}
    plan = told(document).plan("orders", Producer("spark:q", 0, 7), 10)
    assert plan == Plan(2, 10, [1, 4])
    assert places(plan, KEYS) == {key: [1, 4][queue_for_sharding_key(key, 2)] for key in KEYS}

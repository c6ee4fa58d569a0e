"""Documents of several shards become one."""

from typing import Any

import pytest

from app.api.aims import merges
from app.api.aims.across import Place, read, written
from app.domain.errors import IllegalPage

SHARDS = ("a", "b", "c")


def owner(topic: str, queue_id: int) -> str:
    """Of each topic the queues 0, 1 and 2 are in a, b and c."""
    del topic
    return SHARDS[queue_id]


def statistics(own: int, *, start_ms: int, puts: tuple[int, int]) -> dict[str, object]:
    """As the node of the queue `own` answers."""
    queues = [{"queue_id": each, "depth": 5 if each == own else 0} for each in range(3)]
    return {
        "topic": "orders",
        "depth": 5,
        "queues": queues,
        "since_ms": None if own == 0 else 100 * own,
        "counters": {"in": 5},
        "rates": {"10s": {"in": 0.1}},
        "failures": {"DISK_FULL": own} if own else {},
        "put_latency_ms": {
            "p50": 1.0,
            "p99": 1.0,
            "max": 7.5,
            "buckets": {"1": puts[0], "5": puts[1], "+Inf": puts[1]},
        },
        "series": {"start_ms": start_ms, "step_ms": 10, "in": [1, 2, 3]},
    }


def test_statistics_are_added_and_queues_taken_from_their_shards() -> None:
    found = merges.topic_statistics(
        {
            "b": statistics(1, start_ms=20, puts=(1, 10)),
            "a": statistics(0, start_ms=20, puts=(3, 4)),
            "c": statistics(2, start_ms=10, puts=(0, 0)),
        },
        owner,
    )
    assert found["depth"] == 15
    assert found["queues"] == [{"queue_id": each, "depth": 5} for each in range(3)]
    assert (found["since_ms"], found["counters"]) == (100, {"in": 15})
    assert (found["rates"], found["failures"]) == ({"10s": {"in": 0.3}}, {"DISK_FULL": 3})
    assert found["series"] == {"start_ms": 20, "step_ms": 10, "in": [4, 7, 6]}
    buckets = {"1": 4, "5": 14, "+Inf": 14}
    assert found["put_latency_ms"] == {"max": 7.5, "buckets": buckets, "p50": 5.0, "p99": 5.0}


def lag_of(own: int, ready: int | None) -> dict[str, Any]:
    """As the node of the queue `own` answers."""
    queues = [
        {"queue_id": each, "ready": ready if each == own else None, "in_flight": int(each == own)}
        for each in range(3)
    ]
    topic = {"topic": "orders", "queues": queues, "ready": None, "retrying": own, "oldest_ms": None}
    kind = {"topic": "orders", "consumption": "lease"}
    whole = {"group": "billing", "ready": None, "dead": own, "oldest_ms": None}
    return {**whole, "topics": [topic], "subscriptions": [kind]}


@pytest.mark.parametrize(
    ("ready", "expected"), [((1, 2, 4), 7), ((1, None, 4), None), ((1, 2), None)]
)
def test_what_one_shard_does_not_know_is_not_known_of_the_whole(
    ready: tuple[int | None, ...], expected: int | None
) -> None:
    documents = {SHARDS[own]: lag_of(own, each) for own, each in enumerate(ready)}
    found = merges.lag(documents, owner)
    (topic,) = merges.rows_of(found, "topics")
    assert [each["ready"] for each in merges.rows_of(topic, "queues")] == list(ready)
    assert (found["ready"], topic["ready"]) == (expected, expected)
    assert (topic["retrying"], found["dead"]) == (sum(range(len(ready))),) * 2
    assert len(merges.rows_of(found, "subscriptions")) == 1


def begun(kind: str | None, **topics: list[int | None]) -> dict[str, Any]:
    """Where the group stands in the queues that a node tells of."""
    rows = [
        {"topic": name, "queues": [{"committed_offset": each} for each in committed]}
        for name, committed in topics.items()
    ]
    kinds = [{"topic": name, "consumption": kind} for name in topics]
    return {"topics": rows, "subscriptions": kinds}


def test_shards_are_asked_again_of_what_the_group_has_begun_elsewhere() -> None:
    documents = {"a": begun("lease", orders=[3]), "b": begun(None), "c": begun(None, orders=[0])}
    assert merges.begun_elsewhere(documents) == {"b": {"orders": True}}
    documents = {"a": begun("assigned", orders=[None, 0]), "b": begun(None)}
    assert merges.begun_elsewhere(documents) == {"b": {"orders": False}}


def test_shards_that_were_asked_for_one_topic_are_asked_again_where_it_is_leased() -> None:
    documents = {"a": begun("lease", orders=[3]), "b": begun(None, orders=[None])}
    assert merges.begun_elsewhere(documents) == {"b": {"orders": True}}
    documents = {"a": begun(None, orders=[3]), "b": begun(None, orders=[None])}
    assert merges.begun_elsewhere(documents) == {}


def test_a_kind_that_one_shard_knows_is_that_of_all() -> None:
    documents = {"a": lag_of(0, 1), "b": lag_of(1, 1)}
    documents["b"]["subscriptions"][0]["consumption"] = None
    (kind,) = merges.rows_of(merges.lag(documents, owner), "subscriptions")
    assert kind["consumption"] == "lease"


def test_states_come_back_as_they_were() -> None:
    assert merges.read_states(merges.written_states({"a": "1", "b": "2"})) == {"a": "1", "b": "2"}
    assert merges.read_states("0123456789abcdef") == {}
    assert merges.read_states("ä") == {}


def test_places_in_lists_come_back_as_they_were() -> None:
    assert read(written(Place("shard-b", "c1:x\ny"))) == Place("shard-b", "c1:x\ny")
    for text in ("", "ä", "YTpi", "!"):
        with pytest.raises(IllegalPage):
            read(text)

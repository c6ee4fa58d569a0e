"""A member's share, with where its queues begin as their own shards say it."""

from app.api.aims.across import Document
from app.api.relay.consuming.heartbeats import merged


def row(queue_id: int, offset: int) -> Document:
    return {"topic": "orders", "queue_id": queue_id, "since_generation": 1, "offset": offset}


def share(*offsets: int, effects: list[object] | None = None) -> Document:
    rows = [row(queue_id, offset) for queue_id, offset in enumerate(offsets)]
    return {"generation": 1, "assigned": rows, "effects": effects or []}


def test_an_offset_is_that_of_the_shard_which_has_the_queue() -> None:
    others = {"b": share(9, 7, 9), "c": share(9, 9, 8)}
    told = merged(share(5, 0, 0), ["a", "b", "c"], "a", others, set())
    assert told["assigned"] == [row(0, 5), row(1, 7), row(2, 8)]
    assert "partial" not in told


def test_queues_of_a_shard_that_is_missing_are_left_out_and_it_is_named() -> None:
    told = merged(share(5, 0, 0), ["a", "b", "c"], "a", {"b": share(9, 7, 9)}, {"c"})
    assert (told["assigned"], told["partial"]) == ([row(0, 5), row(1, 7)], ["c"])


def test_a_shard_that_knows_nothing_of_a_queue_has_none_of_it() -> None:
    told = merged(share(5, 0), ["a", "b"], "a", {"b": share(9)}, set())
    assert (told["assigned"], told["partial"]) == ([row(0, 5)], ["b"])


def test_what_was_ended_is_listed_of_all_shards() -> None:
    others = {"b": share(0, 0, effects=["b ended"])}
    told = merged(share(0, 0, effects=["a ended"]), ["a", "b"], "a", others, set())
    assert told["effects"] == ["a ended", "b ended"]

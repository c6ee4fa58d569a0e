"""Queue allocation: RocketMQ's results on a grid, and what holds for any input.

`rocketmq_allocation.json` holds what the classes of apache/rocketmq at commit 8fc57f14 (5.3.4)
answered for 833 inputs; queues are named by their index in the sorted list of all queues.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.consumers.allocation import (
    Allocate,
    MessageQueue,
    averagely,
    averagely_by_circle,
    by_configuration,
    consistent_hash,
    machine_room,
    machine_room_nearby,
)

GRID: Final[list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("rocketmq_allocation.json").read_text()
)


def first_word(text: str) -> str:
    return text.split("-", maxsplit=1)[0]


def room(queue: MessageQueue) -> str:
    return queue.broker_name.split("@")[0]


def nearby(inner: Allocate) -> Allocate:
    return partial(machine_room_nearby, room_of_client=first_word, room_of_queue=room, inner=inner)


STRATEGIES: Final[dict[str, Allocate]] = {
    "averagely": averagely,
    "averagely_by_circle": averagely_by_circle,
    "consistent_hash": consistent_hash,
    "machine_room": partial(machine_room, rooms={"hz", "nj"}),
    "machine_room_nearby/averagely": nearby(averagely),
    "machine_room_nearby/averagely_by_circle": nearby(averagely_by_circle),
    "machine_room_nearby/consistent_hash": nearby(consistent_hash),
}


def differing(allocate: Allocate, name: str) -> list[dict[str, Any]]:
    """The cases of the grid in which `allocate` does not give what RocketMQ gave."""
    wrong = []
    for case in GRID:
        if case["strategy"] != name:
            continue
        queues = sorted(
            MessageQueue("orders", broker, queue_id)
            for broker in case["brokers"]
            for queue_id in range(case["per_broker"])
        )
        allocation = allocate(queues, case["clients"])
        given = [[queues.index(queue) for queue in allocation[c]] for c in case["clients"]]
        if given != case["result"]:
            wrong.append({**case, "given": given})
    return wrong


def test_the_grid_covers_every_strategy_that_computes() -> None:
    assert {case["strategy"] for case in GRID} == set(STRATEGIES)
    assert len(GRID) == 833


@pytest.mark.parametrize("name", STRATEGIES)
def test_results_are_those_of_rocketmq(name: str) -> None:
    assert differing(STRATEGIES[name], name) == []


def test_the_grid_notices_another_ring() -> None:
    fewer = partial(consistent_hash, virtual_nodes=9)
    assert differing(fewer, "consistent_hash")
    assert differing(averagely_by_circle, "averagely")


def test_a_configuration_is_taken_as_it_is() -> None:
    queues = [MessageQueue("orders", "a", 1), MessageQueue("orders", "a", 0)]
    assert by_configuration({"one": queues}, ["one", "two"]) == {"one": queues, "two": []}


def test_a_queue_without_a_room_is_shared_by_all() -> None:
    queues = [MessageQueue("orders", "curlew", queue_id) for queue_id in range(2)]
    shared = machine_room_nearby(queues, ["a", "b"], room_of_client=lambda client_id: client_id)
    assert shared == {"a": queues[:1], "b": queues[1:]}


@pytest.mark.parametrize("name", STRATEGIES)
def test_empty_lists_give_empty_shares(name: str) -> None:
    queues = [MessageQueue("orders", "hz@a", 0)]
    assert STRATEGIES[name](queues, []) == {}
    assert STRATEGIES[name]([], ["a", "b"]) == {"a": [], "b": []}


clients = st.lists(
    st.from_regex(r"(hz|sh|bj)-[a-z0-9@.#]{1,8}", fullmatch=True), min_size=1, unique=True
).map(sorted)
all_queues = st.lists(
    st.builds(
        MessageQueue,
        st.sampled_from(["orders", "bills"]),
        st.sampled_from(["hz@a", "hz@b", "sh@a", "nj@d", "lone"]),
        st.integers(0, 40),
    ),
    unique=True,
    max_size=60,
).map(sorted)


@pytest.mark.parametrize("name", STRATEGIES)
@given(queues=all_queues, client_ids=clients)
def test_each_queue_has_exactly_one_owner(
    name: str, queues: list[MessageQueue], client_ids: list[str]
) -> None:
    allocation = STRATEGIES[name](queues, client_ids)
    assert list(allocation) == client_ids
    owned = [queue for share in allocation.values() for queue in share]
    assert len(owned) == len(set(owned))
    if name == "machine_room":
        assert set(owned) == {queue for queue in queues if room(queue) in {"hz", "nj"}}
    else:
        assert set(owned) == set(queues)


@pytest.mark.parametrize("allocate", [averagely, averagely_by_circle])
@given(queues=all_queues, client_ids=clients)
def test_even_strategies_differ_by_one_at_most(
    allocate: Allocate, queues: list[MessageQueue], client_ids: list[str]
) -> None:
    sizes = [len(share) for share in allocate(queues, client_ids).values()]
    assert max(sizes) - min(sizes) <= 1


@given(queues=all_queues, client_ids=clients, newcomer=st.just("zz-new"))
def test_consistent_hashing_moves_queues_to_a_newcomer_only(
    queues: list[MessageQueue], client_ids: list[str], newcomer: str
) -> None:
    before = consistent_hash(queues, client_ids)
    after = consistent_hash(queues, [*client_ids, newcomer])
    for client_id in client_ids:
        assert set(after[client_id]) <= set(before[client_id])

"""What operators want of a cluster is counted with its answers: of a shard that only talks."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import cast

import httpx
import pytest

from tests.crash.nemesis.faults import OPERATORS, Victims, hand_over, remove_follower
from tests.support.cluster.three_processes import NAMES, Shard
from tests.support.metadata.postgres import PostgresServer

REPLICAS = {name: f"node{name}" for name in NAMES}


class Talking:
    """In place of a shard: `a` leads, and each node answers as it is told."""

    def __init__(self, says: Callable[[str], int]) -> None:
        self._says = says
        self.paths: list[str] = []

    def leader(self) -> str:
        return "a"

    def asked(self, name: str, method: str, path: str, _body: object) -> httpx.Response:
        self.paths.append(f"{method} {path}")
        return httpx.Response(self._says(name))


def of(shard: Talking) -> Victims:
    return Victims(cast("Shard", shard), {}, "", cast("PostgresServer", None), Random(1), REPLICAS)


def silent_but(*names: str) -> Callable[[str], int]:
    def says(name: str) -> int:
        if name not in names:
            raise httpx.ConnectError("nobody is there")
        return 202

    return says


def test_each_operator_has_an_answer_of_whoever_is_there() -> None:
    shard = Talking(silent_but("c"))
    victims = of(shard)
    hand_over(victims)
    assert victims.orders == Counter({202: OPERATORS})
    assert set(shard.paths) == {"POST /v1/shards/orders/hand-over"}


def test_who_is_refused_asks_no_other_and_a_shard_without_nodes_is_told_apart() -> None:
    refusing, silent = of(Talking(lambda _name: 409)), of(Talking(silent_but()))
    for victims in (refusing, silent):
        remove_follower(victims)
    assert (refusing.orders, silent.orders) == (Counter({409: 1}), Counter({0: 1}))
    assert len(cast("Talking", refusing.shard).paths) == 1
    assert set(cast("Talking", silent.shard).paths) <= {
        f"DELETE /v1/shards/orders/replicas/node{name}" for name in NAMES[1:]
    }


def test_an_operator_who_fails_otherwise_is_noticed() -> None:
    def broken(_name: str) -> int:
        raise KeyError("of the test itself")

    with pytest.raises(KeyError):
        hand_over(of(Talking(broken)))

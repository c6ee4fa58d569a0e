"""What befalls a cluster: each fault begins, and is undone.

A fault takes its victim when it begins, by the role that the node has then. One that is undone
leaves three nodes that run and can reach each other and the database.
"""

import signal
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

import httpx

from tests.crash.sweeps.disks import fill
from tests.support.cluster.hosts import Host
from tests.support.cluster.three_processes import NAMES, Shard
from tests.support.metadata.postgres import PostgresServer

OPERATORS: Final = 4


@dataclass(frozen=True, slots=True)
class Victims:
    """Who can fail."""

    shard: Shard
    hosts: Mapping[str, Host]
    outside: str
    """The address at which the hosts reach the database."""
    database: PostgresServer
    random: Random
    replicas: Mapping[str, str]
    """Node to what it is called among the replicas: as long as it has its disk."""
    orders: Counter[int] = field(default_factory=Counter)
    """How often operators were answered so, by status; 0: not at all."""

    def follower(self) -> str:
        leader = self.shard.leader()
        return self.random.choice([name for name in NAMES if name != leader])


Undo = Callable[[], None]
Begin = Callable[[Victims], Undo]


def _kill(victims: Victims, name: str) -> Undo:
    victims.shard.kill(name)
    return lambda: victims.shard.start(name)


def kill_leader(victims: Victims) -> Undo:
    return _kill(victims, victims.shard.leader())


def kill_follower(victims: Victims) -> Undo:
    return _kill(victims, victims.follower())


def kill_all(victims: Victims) -> Undo:
    for name in NAMES:
        victims.shard.kill(name)

    def start_all() -> None:
        for name in NAMES:
            victims.shard.start(name)

    return start_all


def stop_leader(victims: Victims) -> Undo:
    """In order, by SIGTERM."""
    leader = victims.shard.leader()
    victims.shard.stop(leader)
    return lambda: victims.shard.start(leader)


def _freeze(victims: Victims, name: str) -> Undo:
    process = victims.shard.nodes[name].process
    process.send_signal(signal.SIGSTOP)
    return lambda: process.send_signal(signal.SIGCONT)


def freeze_leader(victims: Victims) -> Undo:
    return _freeze(victims, victims.shard.leader())


def freeze_follower(victims: Victims) -> Undo:
    return _freeze(victims, victims.follower())


def _lose(ways: list[tuple[Host, str]]) -> Undo:
    """Have what these hosts send to these addresses arrive nowhere."""
    for host, address in ways:
        host.lose_what_goes_to(address)

    def reach() -> None:
        for host, address in ways:
            host.reach(address)

    return reach


def _peers(victims: Victims, name: str) -> list[Host]:
    return [victims.hosts[other] for other in NAMES if other != name]


def leader_is_not_heard(victims: Victims) -> Undo:
    """One way: it hears the others, and the database hears it."""
    name = victims.shard.leader()
    return _lose([(victims.hosts[name], peer.address) for peer in _peers(victims, name)])


def leader_hears_nobody(victims: Victims) -> Undo:
    """One way: the others hear it."""
    name = victims.shard.leader()
    return _lose([(peer, victims.hosts[name].address) for peer in _peers(victims, name)])


def leader_is_cut_off(victims: Victims) -> Undo:
    """From the others and from the database."""
    name = victims.shard.leader()
    own = victims.hosts[name]
    ways = [(own, victims.outside)]
    for peer in _peers(victims, name):
        ways += [(own, peer.address), (peer, own.address)]
    return _lose(ways)


def follower_is_cut_off(victims: Victims) -> Undo:
    """From the others; it reaches the database."""
    name = victims.follower()
    own = victims.hosts[name]
    ways = []
    for peer in _peers(victims, name):
        ways += [(own, peer.address), (peer, own.address)]
    return _lose(ways)


def leader_has_no_database(victims: Victims) -> Undo:
    return _lose([(victims.hosts[victims.shard.leader()], victims.outside)])


def database_stops(victims: Victims) -> Undo:
    victims.database.stop()
    return victims.database.start


def _fill(victims: Victims, name: str) -> Undo:
    path = victims.shard.nodes[name].data_dir / "other"
    fill(path)
    return path.unlink


def leader_disk_is_full(victims: Victims) -> Undo:
    return _fill(victims, victims.shard.leader())


def follower_disk_is_full(victims: Victims) -> Undo:
    return _fill(victims, victims.follower())


def _order(
    victims: Victims, method: str, path: str, body: object = None, operators: int = 1
) -> None:
    """Have operators want something of the shard, so many at once, each of any node."""
    ways = [victims.random.sample(NAMES, len(NAMES)) for _ in range(operators)]

    def status(names: list[str]) -> int:
        """What the first node says that answers, be it a refusal; 0: none does."""
        for name in names:
            with suppress(httpx.HTTPError):
                answer = victims.shard.asked(name, method, f"/v1/shards/orders{path}", body)
                return answer.status_code
        return 0

    with ThreadPoolExecutor(operators) as pool:
        victims.orders.update(pool.map(status, ways))


def _replica(victims: Victims, name: str) -> str:
    """The path of the replica of a node, which need not answer."""
    return f"/replicas/{victims.replicas[name]}"


def hand_over(victims: Victims) -> Undo:
    """Asked for by several at once."""
    _order(victims, "POST", "/hand-over", {}, OPERATORS)
    return lambda: None


def reset_follower(victims: Victims) -> Undo:
    """It throws away what it has, or keeps its log."""
    keeps_log = victims.random.random() < 0.5
    path = f"{_replica(victims, victims.follower())}/reset"
    _order(victims, "POST", path, {"keep_log": keeps_log})
    return lambda: None


def remove_follower(victims: Victims) -> Undo:
    """It joins again when its node starts anew."""
    name = victims.follower()
    _order(victims, "DELETE", _replica(victims, name))

    def start_anew() -> None:
        victims.shard.stop(name)
        victims.shard.start(name)

    return start_anew


FAULTS: Final[Mapping[str, Begin]] = {
    "leader killed": kill_leader,
    "follower killed": kill_follower,
    "all killed": kill_all,
    "leader stopped in order": stop_leader,
    "leader frozen": freeze_leader,
    "follower frozen": freeze_follower,
    "leader not heard (one way)": leader_is_not_heard,
    "leader hears nobody (one way)": leader_hears_nobody,
    "leader cut off": leader_is_cut_off,
    "follower cut off": follower_is_cut_off,
    "leader without the database": leader_has_no_database,
    "database stopped": database_stops,
    "leader's disk full": leader_disk_is_full,
    "follower's disk full": follower_disk_is_full,
    "shard handed over": hand_over,
    "follower reset": reset_follower,
    "follower removed": remove_follower,
}

BESIDE: Final = ("database stopped", "follower's disk full", "follower frozen", "follower cut off")
"""What may begin first, while another fault follows: those that leave a leader to be found."""

"""One history: rounds of faults over a running cluster, and what the checker says of all of it."""

import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final, NamedTuple

from app.cluster import migrate
from app.domain.limits import MIB
from app.store.paths import COMMIT_LOG
from tests.crash.nemesis.faults import BESIDE, FAULTS, Victims
from tests.crash.nemesis.load import ClusterLoad, cluster_load
from tests.crash.sweeps.disks import mounted_tmpfs
from tests.history.checker import Rules, check
from tests.history.events import Event, Received, Sent, Settled
from tests.history.load import MAX_ATTEMPTS
from tests.support.cluster.hosts import network
from tests.support.cluster.three_processes import NAMES, three_processes
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.fork_server import RETENTION_SECONDS
from tests.support.nodes.waiting import wait_until

DISK_BYTES: Final = 384 * MIB
"""Of each node."""
FAULT_S: Final = (0.5, 9.0)
"""How long a fault lasts; a lease is 5 s."""
TOGETHER: Final = 0.3
"""The part of the rounds in which two faults meet."""
CONVERGED_S: Final = 90.0
"""So long after its faults a cluster has all replicas in sync, or has failed."""

_REPLICA: Final = re.compile(r'^curlew_replica_leading\{.*replica="(\w+)"', re.MULTILINE)


class Round(NamedTuple):
    """What befell the cluster, on the monotonic clock of the machine."""

    faults: tuple[str, ...]
    began_s: float
    undone_s: float
    converged_s: float


class Log(NamedTuple):
    """What a replica has of the log of its shard, by physical offsets."""

    start: int
    end: int
    digest: str
    """SHA-256 of the bytes between."""


class Report(NamedTuple):
    """Of a whole history."""

    rounds: list[Round]
    sent: list[Sent]
    violations: dict[str, list[str]]
    log: Log
    """That all three replicas have."""
    events: list[Event]
    """All that was seen."""
    orders: Counter[int]
    """What operators were answered, by status; 0: nothing."""

    def silence_s(self, of: Round) -> float:
        """The longest time in that round in which no send was confirmed."""
        ends = [each.ended_s for each in self.sent if each.outcome == "ok"]
        within = sorted(end for end in ends if of.began_s < end < of.converged_s)
        marks = [of.began_s, *within, of.converged_s]
        return max(after - before for before, after in pairwise(marks))

    def of_message(self, body: str) -> list[str]:
        """What was seen of one message, and the rounds beside it, in the order of their ends."""
        found: list[tuple[float, str]] = []
        handles: set[str] = set()
        for event in sorted(self.events, key=lambda each: each.ended_s):
            if isinstance(event, Received):
                for each in event.messages:
                    if each.body == body:
                        handles.add(each.handle)
                        found.append((event.ended_s, f"{event.client} has it: {each}"))
            elif isinstance(event, Settled) and event.handle in handles:
                handles.add(event.new_handle)
                found.append((event.ended_s, str(event)))
            elif isinstance(event, Sent) and event.body == body:
                found.append((event.ended_s, str(event)))
        first, last = found[0][0], found[-1][0]
        found += [
            (each.began_s, str(each))
            for each in self.rounds
            if each.began_s < last + 60 and each.converged_s > first - 60
        ]
        return [f"{seconds:.3f} {text}" for seconds, text in sorted(found)]


class Nemesis:
    """A cluster under load. Faults come one round after the other, from one thread."""

    def __init__(self, victims: Victims, load: ClusterLoad, root: Path) -> None:
        self.victims = victims
        self._load = load
        self._root = root
        self._rounds: list[Round] = []

    def befall(self, names: tuple[str, ...], lasting_s: float) -> Round:
        """Let these faults come, the second while the first lasts, and wait until all is well."""
        shard = self.victims.shard
        began_s = monotonic()
        undos = [FAULTS[name](self.victims) for name in names]
        time.sleep(lasting_s)
        for undo in undos:  # the database comes back before a node starts
            undo()
        undone_s = monotonic()
        shard.in_sync(CONVERGED_S)
        found = Round(names, began_s, undone_s, monotonic())
        self._rounds.append(found)
        self._load.note_fault(began_s, found.converged_s)
        self._load.goes_on()
        return found

    def choose(self) -> tuple[tuple[str, ...], float]:
        """A round at random: one fault, or two at once; and how long it lasts in seconds."""
        random = self.victims.random
        name = random.choice(list(FAULTS))
        names: tuple[str, ...] = (name,)
        if random.random() < TOGETHER and name not in ("all killed", *BESIDE):
            names = (random.choice(BESIDE), name)
        return names, random.uniform(*FAULT_S)

    def end(self) -> Report:
        """Come to rest, and judge."""
        events = self._load.come_to_rest()
        logs: list[Log] = []

        def are_one() -> bool:
            logs[:] = [log_of(self._root / name / "store") for name in NAMES]
            return len(set(logs)) == 1

        wait_until(are_one)
        violations = check(events, Rules(max_attempts=MAX_ATTEMPTS))
        sent, orders = self._load.sent(), self.victims.orders
        return Report(self._rounds, sent, violations, logs[0], events, orders)


def log_of(store: Path) -> Log:
    """What is in a log now. Behind its end are zeros."""
    digest = hashlib.sha256()
    end = held = 0
    paths = sorted(path for path in (store / COMMIT_LOG).iterdir() if path.name.isdigit())
    for path in paths:
        content = path.read_bytes().rstrip(b"\0")
        if content:
            digest.update(bytes(held) + content)
            held = path.stat().st_size - len(content)
            end = int(path.name) + len(content)
    return Log(int(paths[0].name), end, digest.hexdigest())


def replica_of(figures: str) -> str:
    """What a node is called among the replicas, by its `/metrics`."""
    found = _REPLICA.search(figures)
    assert found, figures
    return found[1]


@contextmanager
def running_nemesis(root: Path, seed: int, replication: str = "sync") -> Iterator[Nemesis]:
    """Three nodes with networks and disks of their own, a database, and a load.

    `replication`: of the topic.
    """
    with ExitStack() as stack:
        outside, hosts = stack.enter_context(network(NAMES))
        server = PostgresServer.create(outside)
        stack.callback(server.destroy)
        url = server.new_database()
        migrate(url)
        for name in NAMES:
            stack.enter_context(mounted_tmpfs(DISK_BYTES, root / name))
        shard = stack.enter_context(
            three_processes(
                root,
                url.replace("127.0.0.1", outside),
                *("--segment-mib", "8", "--plaintext"),
                environment={RETENTION_SECONDS: "0.5"},
                hosts=hosts,
            )
        )
        replicas = {name: replica_of(shard.figures(name)) for name in NAMES}
        victims = Victims(shard, hosts, outside, server, Random(seed), replicas)
        load = stack.enter_context(cluster_load(root, shard, hosts, replication))
        yield Nemesis(victims, load, root)

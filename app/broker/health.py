"""What makes a node not ready, and what else an operator should look at.

What keeps a node from its work altogether makes it not ready: whoever spreads requests over nodes
should take another one. What fails in part, or mends itself, is reported beside it: a node with a
full disk goes on to serve readers, and the data that they wait for is on no other node.
Event loop only.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.delays.delay_delivery import DelayDelivery
from app.broker.progress.offset_cache import OffsetCache
from app.broker.row_faults import RowFaults
from app.domain.access.keyring import PolicyAge
from app.domain.shortages import HINTS, Shortage
from app.runtime.service import Service


class ConditionCode(StrEnum):
    """What may be the matter. The texts are part of the HTTP contract.

    Those that stand in the table of errors mean the same as there.
    """

    STARTING = "STARTING"
    """Seen only by who asks inside the process: the port is opened when all is read back."""
    SHUTTING_DOWN = "SHUTTING_DOWN"
    NOT_LEADER = "NOT_LEADER"
    STORE_FAILED = "STORE_FAILED"
    DISK_FULL = "DISK_FULL"
    SYSTEM_BUSY = "SYSTEM_BUSY"
    STORE_DAMAGED = "STORE_DAMAGED"
    CLOCK_BEHIND = "CLOCK_BEHIND"
    CLOCK_AHEAD = "CLOCK_AHEAD"
    CLOCK_APART = "CLOCK_APART"
    METADATA_UNAVAILABLE = "METADATA_UNAVAILABLE"
    POLICY_REGRESSED = "POLICY_REGRESSED"
    POLICY_TOO_OLD = "POLICY_TOO_OLD"
    NO_LEADER = "NO_LEADER"
    REPLICA_REMOVED = "REPLICA_REMOVED"
    REPLICA_FAILED = "REPLICA_FAILED"
    REPLICA_ALARM = "REPLICA_ALARM"
    REPLICAS_BEHIND = "REPLICAS_BEHIND"
    TIMERS_NOT_READY = "TIMERS_NOT_READY"
    DELIVERY_FAILING = "DELIVERY_FAILING"
    SERVICE_FAILING = "SERVICE_FAILING"


CLOCK_APART_MS: Final = 1_000
"""A clock that is surely further than this from the database's is apart from it."""

CLOCK_RIGHT_MS: Final = 500
"""One that was apart is right again when it is surely nearer than this: a clock that hovers at the
bound does not pass its shard to and fro."""

TROUBLES: Final = (
    ConditionCode.DISK_FULL,
    ConditionCode.SYSTEM_BUSY,
    ConditionCode.STORE_DAMAGED,
    ConditionCode.CLOCK_BEHIND,
    ConditionCode.CLOCK_AHEAD,
    ConditionCode.CLOCK_APART,
    ConditionCode.METADATA_UNAVAILABLE,
    ConditionCode.POLICY_REGRESSED,
    ConditionCode.REPLICA_FAILED,
    ConditionCode.REPLICA_ALARM,
    ConditionCode.REPLICAS_BEHIND,
    ConditionCode.TIMERS_NOT_READY,
    ConditionCode.DELIVERY_FAILING,
    ConditionCode.SERVICE_FAILING,
)
"""What does not make a node unready."""


class Condition(NamedTuple):
    """One thing that is the matter, and what to do about it."""

    code: ConditionCode
    detail: str
    hint: str


_HINTS: Final = {
    ConditionCode.STARTING: "ask another node, or again later",
    ConditionCode.SHUTTING_DOWN: "ask another node, or again later",
    ConditionCode.NOT_LEADER: "sends, receives and settles are refused, nothing is stored; if the "
    "other node was started from a copy of the data directory, decide which of the two goes on, "
    "stop the other, and start that one again",
    ConditionCode.STORE_FAILED: "sends are refused, reading goes on; mend the disk and restart "
    "the node",
    ConditionCode.DISK_FULL: "sends are refused, reading goes on; free some space or shorten the "
    "retention, and sending works again by itself",
    ConditionCode.POLICY_REGRESSED: "the keys and policies that are known go on, and none is "
    "changed; bring the newer database back, or let this one count with `curlew security accept`",
    ConditionCode.POLICY_TOO_OLD: "nobody is served until the database answers (policy_age_max): a "
    "key may have been revoked since; ask another node",
    ConditionCode.STORE_DAMAGED: "requests are served from what is good; the log of the node names "
    "each finding; stop the node and run `curlew store verify`, look at the disk",
    ConditionCode.CLOCK_BEHIND: "store times stand still until the clock has passed them, for "
    "search by time and retention by age too; see which of the two is wrong, the clock now or "
    "then; if it was then, start the node once with --store-time-from-clock true",
    ConditionCode.CLOCK_AHEAD: "messages grow old as if it had not for a day; set the clock right "
    "before, or what is older by it expires then; a restart believes the clock at once",
    ConditionCode.CLOCK_APART: "set the clock of this machine, or of the database's, right: due "
    "times and retention are by it; a node with a replica leads only where no other can meanwhile",
    ConditionCode.METADATA_UNAVAILABLE: "messages go on by what the node knows, changes of topics "
    "and groups fail; look at the database",
    ConditionCode.NO_LEADER: "ask again in a moment; if it stays so, start the nodes that have"
    " replicas of the shard, and look at the database",
    ConditionCode.REPLICA_REMOVED: "nothing is kept here any more, and its data is left as it was;"
    " stop the node; started again it joins its shard again, where there is a place",
    ConditionCode.REPLICA_FAILED: "the node carries requests to the leader, and keeps nothing;"
    " mend what the detail names, and start the node again",
    ConditionCode.REPLICA_ALARM: "the page about replicas has what helps",
    ConditionCode.REPLICAS_BEHIND: "messages are kept by the other replicas; start the nodes that"
    " are missing, and wait for those that catch up",
    ConditionCode.TIMERS_NOT_READY: "delayed messages are delivered late until they are read back "
    "from the log; nothing has to be done",
    ConditionCode.DELIVERY_FAILING: "what is due is kept and tried again; mend what the detail "
    "names",
    ConditionCode.SERVICE_FAILING: "it is tried again at its usual time; the log of the node has "
    "the trace",
}


class ComparedClock:
    """The clock of a node beside the database's. Compared on the event loop, read by any thread."""

    def __init__(self) -> None:
        self.apart_ms = 0
        """How far this clock is ahead of the database's, as far as is known."""
        self.is_apart = False
        """Whether that is too far. What cannot be told changes nothing."""

    def saw(self, before_ms: int, after_ms: int, database_ms: int) -> None:
        """The database has read its clock at any moment between these two of this clock's."""
        self.apart_ms = (before_ms + after_ms) // 2 - database_ms
        doubt_ms = (after_ms - before_ms + 1) // 2
        if abs(self.apart_ms) - doubt_ms > CLOCK_APART_MS:
            self.is_apart = True
        elif abs(self.apart_ms) + doubt_ms < CLOCK_RIGHT_MS:
            self.is_apart = False

    def conditions(self) -> list[Condition]:
        """What is the matter with it, if anything is."""
        if not self.is_apart:
            return []
        apart_s = f"{abs(self.apart_ms) / 1000:.1f}"
        detail = (
            f"the clock is {apart_s} s ahead of the database's"
            if self.apart_ms > 0
            else f"the clock is {apart_s} s behind the database's"
        )
        return [condition(ConditionCode.CLOCK_APART, detail)]


class NodeState:
    """What a node knows of itself beside its broker. Its brokers, one after another, show it."""

    def __init__(self) -> None:
        self.metadata_problem: str | None = None
        """Set by whoever reads the database again and again; None while that works."""
        self.policy_problem: str | None = None
        """Set by whoever reads keys and policies; None while the database is the newest."""
        self.policy_age: PolicyAge | None = None
        """Of what is known of keys and policies; None: nobody looks at it."""
        self.other_leader: str | None = None
        """Set by whoever looks who leads the shard; None while this node does."""
        self.clock = ComparedClock()
        self.of_replica: Callable[[], Sequence[Condition]] = tuple
        """What the node's replica of its shard tells of; nothing where it is alone with it."""
        self.services: list[Service] = []
        """Of the process; they are reported when their last turn has failed."""

    def obstacles(self) -> list[Condition]:
        """Why this node should get no requests, whatever its broker says."""
        age = self.policy_age
        if age is None or not age.is_over:
            return []
        return [condition(ConditionCode.POLICY_TOO_OLD, age.refusal().detail)]

    def troubles(self, offsets_problem: str | None = None) -> list[Condition]:
        """What an operator should look at. `offsets_problem` is the broker's with the database."""
        found = self.clock.conditions()
        found += [
            condition(ConditionCode.METADATA_UNAVAILABLE, problem)
            for problem in (self.metadata_problem, offsets_problem)
            if problem is not None
        ]
        if self.policy_problem is not None:
            found.append(condition(ConditionCode.POLICY_REGRESSED, self.policy_problem))
        return [*found, *self.of_replica()]


def failing(services: Iterable[Service]) -> list[Condition]:
    """Those of the services whose last turn has failed."""
    return [
        condition(ConditionCode.SERVICE_FAILING, f"{service.name}: {service.problem}")
        for service in services
        if service.problem is not None
    ]


class Health:
    """Looks at the parts of one broker, and at its node, when it is asked."""

    def __init__(self, context: Context, offset_cache: OffsetCache, delays: DelayDelivery) -> None:
        self.node = NodeState()
        """Whoever has a broker in a node puts the node's here."""
        self.is_stopped = False
        self._store = context.store
        self._offset_cache = offset_cache
        self._delays = delays
        self._gate = context.gate
        self._services: list[Service] = []
        self._rows: list[RowFaults] = []

    def watch(self, *services: Service) -> None:
        """Report these when their last turn has failed."""
        self._services += services

    def watch_rows(self, *rows: RowFaults) -> None:
        """Report rows of these that fail."""
        self._rows += rows

    def obstacles(self) -> list[Condition]:
        """Why this node should get no requests; empty when it should."""
        found: list[Condition] = []
        closed_because = self._gate.closed_because
        if closed_because:
            code = ConditionCode.SHUTTING_DOWN if self.is_stopped else ConditionCode.STARTING
            found.append(condition(code, closed_because))
        failed = self._store.failed
        other_leader = self.node.other_leader
        if other_leader is not None:
            found.append(condition(ConditionCode.NOT_LEADER, other_leader))
        elif failed is not None:
            detail = f"the store takes no writes: {failed}"
            found.append(condition(ConditionCode.STORE_FAILED, detail))
        return found + self.node.obstacles()

    def _shortages(self) -> list[Condition]:
        """What the machine has too little of, one condition for each."""
        status = self._store.status()
        found: list[Condition] = []
        if status.refusal is not None:
            detail = f"no messages are taken: {status.refusal}"
            found.append(condition(ConditionCode.DISK_FULL, detail))
        for shortage in Shortage:
            works = [lack.work for lack in status.lacks if lack.shortage is shortage]
            if not works or (shortage is Shortage.ROOM and found):
                continue
            code = ConditionCode.SYSTEM_BUSY
            if shortage is Shortage.ROOM:
                code = ConditionCode.DISK_FULL
            detail = f"{shortage.value}: {'; '.join(works)}"
            found.append(Condition(code, detail, HINTS[shortage]))
        return found

    def troubles(self) -> list[Condition]:
        """What an operator should look at although requests are served."""
        found: list[Condition] = []
        found += self._shortages()
        status = self._store.status()
        if status.damages_left:
            counts = ", ".join(f"{kind} {count}" for kind, count in status.damages_left.items())
            detail = f"found since the start, by kind: {counts}"
            found.append(condition(ConditionCode.STORE_DAMAGED, detail))
        if status.clock_lead_ms:
            lead_s = status.clock_lead_ms // 1000
            detail = f"the newest message was stored {lead_s} s ahead of the clock"
            found.append(condition(ConditionCode.CLOCK_BEHIND, detail))
        if status.clock_jump_ms:
            detail = f"the clock has jumped ahead by {status.clock_jump_ms // 1000} s"
            found.append(condition(ConditionCode.CLOCK_AHEAD, detail))
        found += self.node.troubles(self._offset_cache.problem)
        timers = self._delays.timers
        if timers.are_late:
            detail = f"{timers.behind} entries of delayed messages are still to be read back"
            found.append(condition(ConditionCode.TIMERS_NOT_READY, detail))
        if self._delays.problem is not None:
            found.append(condition(ConditionCode.DELIVERY_FAILING, self._delays.problem))
        found += [
            condition(ConditionCode.DELIVERY_FAILING, rows.problem)
            for rows in self._rows
            if rows.problem is not None
        ]
        return found + failing([*self._services, *self.node.services])


def condition(code: ConditionCode, detail: str) -> Condition:
    """With what helps."""
    return Condition(code, detail, _HINTS[code])

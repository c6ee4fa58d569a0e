"""Members of a group in pull mode over HTTP, as a careful client would be, writing a history.

`PullMember` reads what it was assigned, commits as it goes, lets revoked queues go before it says
so, stops reading when its lease is over, counted from the sending of its last answered heartbeat,
and drops everything when it is told that its generation is stale.
`checked` reads the histories and the offsets afterwards and lists what must not be.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx

Queue = tuple[str, int]


@dataclass
class History:
    """What all members did, in the order of one clock (they share an event loop)."""

    reads: list[tuple[str, Queue, int]] = field(default_factory=list)
    """(process, queue, offset): processed."""
    owning: dict[Queue, str] = field(default_factory=dict)
    """Queue → the process that believes to own it now."""
    leased_until_s: dict[str, float] = field(default_factory=dict)
    """Process → when it stops reading by itself, unless an answer comes before."""
    double: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    """Processes that were frozen, killed or refused: what they read and did not commit is read
    again."""

    def take(self, process: str, queue: Queue) -> None:
        owner = self.owning.get(queue)
        is_live = owner is not None and self.is_leased(owner)
        if is_live and owner != process:
            self.double.append(f"{process} was given {queue} while {owner} read it")
        self.owning[queue] = process

    def is_leased(self, process: str) -> bool:
        return asyncio.get_running_loop().time() < self.leased_until_s.get(process, 0.0)

    def let_go(self, process: str, queue: Queue) -> None:
        if self.owning.get(queue) == process:
            del self.owning[queue]


@dataclass
class PullMember:
    """One process. Cancel `run` and call `die` to kill it, `freeze` to stop it like SIGSTOP."""

    http: httpx.AsyncClient
    group: str
    topic: str
    client_id: str
    name: str
    """Of the process: a client id may have several, one after the other."""
    history: History
    obeys: bool = True
    """False: it goes on reading what was revoked (the positive control)."""
    generation: int = 0
    assignment_id: str | None = None
    offsets: dict[Queue, int] = field(default_factory=dict)
    since: dict[Queue, int] = field(default_factory=dict)
    uncommitted: set[Queue] = field(default_factory=set)
    """Where the last commit was refused, because the generation had just changed."""
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    _readers: dict[Queue, asyncio.Task[None]] = field(default_factory=dict)

    async def run(self, over: asyncio.Event) -> None:
        """Until it is over; then leave in order."""
        self.awake.set()
        try:
            async with asyncio.TaskGroup() as tasks:
                while not over.is_set():
                    await self._beat(tasks)
                for reader in self._readers.values():
                    reader.cancel()
        finally:
            self.die()
        await self.http.delete(f"/v1/groups/{self.group}/members/{self.client_id}")

    def die(self) -> None:
        """It reads nothing any more."""
        for queue in list(self.offsets):
            self.history.let_go(self.name, queue)

    def freeze(self) -> None:
        """It does nothing until `awake` is set, and believes what it believed."""
        self.awake.clear()
        self.history.lost.add(self.name)
        self.die()

    # --- heartbeats

    async def _beat(self, tasks: asyncio.TaskGroup) -> None:
        await self.awake.wait()
        sent_s = asyncio.get_running_loop().time()
        answer = await self.http.put(
            f"/v1/groups/{self.group}/members/{self.client_id}",
            json={
                "subscriptions": [{"topic": self.topic}],
                "generation": self.generation,
                "assignment_id": self.assignment_id,
            },
            params={"wait": 0.5 if self.generation else 0},
        )
        if not self.awake.is_set():
            return
        if answer.status_code == 409:
            self.history.lost.add(self.name)
            for queue in list(self.offsets):
                self._drop(queue)
            self.generation, self.assignment_id = 0, None
            return
        answer.raise_for_status()
        share = answer.json()
        self.history.leased_until_s[self.name] = sent_s + share["lease_ms"] / 1_000
        await self._obey(share, tasks)

    async def _obey(self, share: dict[str, Any], tasks: asyncio.TaskGroup) -> None:
        self.generation, self.assignment_id = share["generation"], share["assignment_id"]
        assigned = {(each["topic"], each["queue_id"]): each for each in share["assigned"]}
        for queue in set(self.offsets) - set(assigned):
            if self.obeys:
                offset = self.offsets[queue]
                self._drop(queue)
                await self._commit(queue, offset)
        for queue in self.uncommitted & set(assigned) & set(self.offsets):
            if self.since[queue] == assigned[queue]["since_generation"]:
                await self._commit(queue, self.offsets[queue])
        for queue, each in assigned.items():
            if self.since.get(queue) != each["since_generation"]:
                self.history.take(self.name, queue)
                self.since[queue] = each["since_generation"]
                self.offsets[queue] = each["offset"]
                reader = self._readers.get(queue)
                if reader is None or reader.done():
                    self._readers[queue] = tasks.create_task(self._read(queue))

    def _drop(self, queue: Queue) -> None:
        del self.offsets[queue]
        self.since.pop(queue, None)
        self.history.let_go(self.name, queue)
        self._readers.pop(queue).cancel()

    # --- reading

    async def _read(self, queue: Queue) -> None:
        topic, queue_id = queue
        while True:
            await self.awake.wait()
            offset = self.offsets[queue]
            answer = await self.http.get(
                f"/v1/topics/{topic}/queues/{queue_id}/messages",
                params={"offset": offset, "max_messages": 100, "wait": 0.5},
            )
            answer.raise_for_status()
            page = answer.json()
            is_mine = self.awake.is_set() and self.history.is_leased(self.name)
            if is_mine and self.offsets[queue] == offset != page["next_offset"]:
                for message in page["messages"]:
                    self.history.reads.append((self.name, queue, message["queue_offset"]))
                self.offsets[queue] = page["next_offset"]
                await self._commit(queue, page["next_offset"])

    async def _commit(self, queue: Queue, offset: int) -> None:
        topic, queue_id = queue
        answer = await self.http.put(
            f"/v1/groups/{self.group}/offsets/{topic}",
            json={
                "offsets": [{"queue_id": queue_id, "offset": offset}],
                "client_id": self.client_id,
                "generation": self.generation,
            },
        )
        if answer.status_code == 409:
            self.history.lost.add(self.name)
            self.uncommitted.add(queue)
        else:
            answer.raise_for_status()
            self.uncommitted.discard(queue)


def checked(history: History, ends: dict[Queue, int], committed: dict[Queue, int]) -> list[str]:
    """What went wrong: two readers of a queue, messages that nobody read or committed."""
    faults = list(history.double)
    read: dict[Queue, set[int]] = defaultdict(set)
    for _, queue, offset in history.reads:
        read[queue].add(offset)
    for queue, end in ends.items():
        missing = set(range(end)) - read[queue]
        if missing:
            faults.append(f"{queue}: {len(missing)} messages were never read")
        if committed.get(queue, 0) != end:
            faults.append(f"{queue}: {committed.get(queue)} of {end} are committed")
    return faults


def repeated(reads: Iterable[tuple[str, Queue, int]]) -> set[str]:
    """Whose readings were read again, by themselves or by another process."""
    last: dict[tuple[Queue, int], str] = {}
    found: set[str] = set()
    for process, queue, offset in reads:
        if (queue, offset) in last:
            found.add(last[queue, offset])
        last[queue, offset] = process
    return found


def said_next(told: dict[str, Any]) -> dict[str, Any]:
    """What a member that polls says next, of the answer before: the node keeps nothing for it."""
    return {
        "generation": told["generation"],
        "assignment_id": told["assignment_id"],
        "positions": [
            {"topic": each["topic"], "queue_id": each["queue_id"], "offset": each["next_offset"]}
            for each in told["queues"]
        ],
    }

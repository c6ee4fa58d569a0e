"""Random days of a shard on three replicas: kills, stops, hand-overs, brokers that do not begin and
shortages, while messages are sent. What was acknowledged is there once, in order, on all of them.

A failure names its seed; threads and sockets make each run of it another one.
"""

import asyncio
import errno
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import pytest

from app.cluster.replication.events import TransferAsked
from app.domain.errors import CurlewError
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import OsFiles, paths
from app.store.fs.files import File
from tests.integration.replica.shard_of_runners import NAMES, Node, Shard, shard_of, until
from tests.integration.replica.test_failover import bodies, log_of
from tests.support import length

pytestmark = pytest.mark.anyio

SEEDS: Final = length.count(3, 100)
TURNS: Final = 8
UNDER_WAY_MAX: Final = 16


class Sender:
    """Sends to whoever serves, until it is stopped. A message is never sent twice."""

    def __init__(self, shard: Shard) -> None:
        self.acknowledged: list[int] = []
        self.refused = 0
        self._shard = shard
        self._sent = self._under_way = 0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            leader = self._shard.leader
            if leader is not None and leader.store is not None:
                self._send(leader)
            await asyncio.sleep(0.001 if self._under_way < UNDER_WAY_MAX else 0.01)

    def _send(self, leader: Node) -> None:
        number, self._sent = self._sent, self._sent + 1

        def told(error: CurlewError | None) -> None:
            self._under_way -= 1
            if error is None:
                self.acknowledged.append(number)
            else:
                self.refused += 1

        assert leader.store is not None
        try:
            message = Message(b"%d" % number)
            leader.store.append("orders", 0, [message], FlushMode.SYNC, told)
        except CurlewError:
            self.refused += 1
        else:
            self._under_way += 1

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Day:
    """What happens to a shard in one run."""

    def __init__(self, shard: Shard, random: Random, done: Counter[str]) -> None:
        self._shard = shard
        self._random = random
        self._done = done

    async def turn(self) -> None:
        name = self._random.choice(NAMES)
        kinds = (self.kill, self.stop, self.hand_over, self.fail_to_begin, self.lack)
        kind = self._random.choice(kinds)
        self._done[kind.__name__] += 1
        await kind(name)
        await self._shard.served()
        await until(self._are_in_sync)

    def _are_in_sync(self) -> bool:
        return {member.node for member in self._shard.row.in_sync} == set(NAMES)

    async def kill(self, name: str) -> None:
        leader = await self._shard.served()
        await self._shard.kill(name)
        if leader.name == name:
            await self._shard.let_a_lease_pass()
            await until(lambda: self._elected() not in (None, name))
        await self._shard.start(name)  # it may be in the set still, and be waited for

    def _elected(self) -> str | None:
        leader = self._shard.row.leader
        return None if leader is None else leader.node

    async def stop(self, name: str) -> None:
        await self._shard.served()
        await self._shard.stop(name)
        await self._shard.served()
        await self._shard.start(name)

    async def hand_over(self, name: str) -> None:
        del name
        leader = await self._shard.served()
        leader.runner.transfer(TransferAsked())
        await self._shard.served(leader)

    async def fail_to_begin(self, name: str) -> None:
        self._shard.nodes[name].failures = 1
        leader = await self._shard.served()
        leader.runner.transfer(TransferAsked())
        await until(lambda: leader.store is None)
        await self._shard.served()  # by any one: that may be the former leader again
        self._shard.nodes[name].failures = 0
        await self._shard.let_a_lease_pass()  # for so long it lets others go first
        await until(self._shard.has_settled)  # another one may have been elected for that

    async def lack(self, name: str) -> None:
        """The leader, which opens its directory anew behind the hand-over, finds no descriptor."""
        leader = await self._shard.served()
        lacked, files = False, leader.files

        def lack_once(path: str, *, create: bool = False) -> File:
            nonlocal lacked
            if path == paths.CHECKPOINT and not lacked:
                lacked = True
                raise OSError(errno.EMFILE, "no descriptor")
            return OsFiles.open(files, path, create=create)

        before = leader.member
        files.open = lack_once  # type: ignore[method-assign]
        await self.hand_over(name)
        await until(lambda: lacked)
        await until(self._are_in_sync)
        assert leader.member == before, "it has lost nothing"


async def live(seed: int, root: Path, done: Counter[str]) -> None:
    random = Random(seed)
    async with shard_of(root) as shard:
        await shard.served()
        sender, day = Sender(shard), Day(shard, random, done)
        for _ in range(TURNS):
            before = len(sender.acknowledged)
            await day.turn()
            await until(lambda before=before: len(sender.acknowledged) > before)  # type: ignore[misc]
        await sender.stop()
        leader = await shard.served()
        await until(shard.are_equal)
        assert leader.store is not None
        acknowledged = set(sender.acknowledged)  # as of now: the rest is confirmed meanwhile
        found = [int(body) for body in bodies(leader.store)]
        end = min(node.runner.status().high_watermark for node in shard.nodes.values())
        for name in NAMES:
            await shard.stop(name)
    assert len(set(found)) == len(found), "a message stands twice"
    assert found == sorted(found), "the order of sending"
    gone = sorted(acknowledged - set(found))
    assert not gone, f"{gone} of {len(found)} were acknowledged and are gone"
    logs = [log_of(root / name, end)[1] for name in NAMES]
    assert len(set(logs)) == 1, "what is confirmed is not alike"
    done["acknowledged"] += len(sender.acknowledged)
    done["refused"] += sender.refused


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_what_was_acknowledged_outlives_bad_days(seed: int, tmp_path: Path) -> None:
    done: Counter[str] = Counter()
    await live(seed, tmp_path, done)
    assert done["acknowledged"] > TURNS

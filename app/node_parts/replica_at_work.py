"""A replica with what it works with: its connections to the others, its questions about the row of
the shard, its runner. Made anew when the members of the shard change. Event loop only."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from app.api.peers.pool import Peers
from app.api.replicas.dialing import dial
from app.api.replicas.link import ReplicaLink
from app.api.replicas.link_table import LinkTable
from app.api.replicas.peer_links import PeerLinks
from app.cluster import RowQuestions, ShardRows
from app.cluster.replication.events import (
    DatabaseAway,
    RowChanged,
    RowSeen,
    TransferAsked,
    UncleanAsked,
    UncleanJudged,
)
from app.cluster.replication.replica_state import Timing
from app.replica.leadership import LeaderHooks
from app.replica.replica_status import ReplicaStatus, Role
from app.replica.runner import ReplicaRunner, RunnerParts, monotonic_ms
from app.runtime.secure.cluster_secret import ClusterSecret
from app.store import LogFigures
from app.store.followed_store import FollowedStore
from app.store.replica.replica_store import OpeningOptions, ReplicaDirectory

SILENCE_S: Final = 3.0
"""A connection to another replica on which nothing comes for so long has ended."""

JUDGED_S: Final = 8.0
"""How long an unclean election is judged: a replica that is paused says nothing."""

NUMBER_MAX: Final = 2**63
"""Exclusive, of incarnations and grants: a column has 64 bits, one of them for the sign."""


def new_number() -> int:
    """An incarnation or a grant that nobody else has; never 0."""
    return secrets.randbelow(NUMBER_MAX - 1) + 1


class ReplicaMeans(NamedTuple):
    """What of the node each of its replicas works with, one after another."""

    node_id: str
    directory: ReplicaDirectory
    options: OpeningOptions
    peers: Peers
    secret: ClusterSecret
    timing: Timing
    urls: Callable[[], Mapping[str, str]]
    """The cluster URL of each member."""
    rows: Callable[[], ShardRows]
    hooks: LeaderHooks
    is_clock_apart: Callable[[], bool]
    """From the database's, as was found last. Any thread."""


class ReplicaAtWork:
    """`start`, then `stop`, also where the start has failed."""

    def __init__(self, means: ReplicaMeans, members: frozenset[str]) -> None:
        """`members` are all nodes that have a replica, this one among them."""
        self.members = members
        self._asked = 0
        self._judged: dict[int, asyncio.Future[tuple[UncleanJudged, int]]] = {}
        others = tuple(sorted(members - {means.node_id}))

        async def connect(url: str, session: int, link: ReplicaLink) -> None:
            await dial(means.peers, means.secret, url, (means.node_id, session), link)

        def tell(answer: RowSeen | RowChanged | DatabaseAway) -> None:
            self._runner.give(answer)

        links = PeerLinks(means.node_id, others, means.urls, connect, SILENCE_S)
        self._questions = RowQuestions(means.rows(), tell, monotonic_ms)
        self._runner = ReplicaRunner(
            RunnerParts(
                means.node_id,
                others,
                means.timing,
                means.directory,
                means.options,
                links,
                self._questions,
                replace(means.hooks, on_unclean_judged=self._take_judgement),
                new_number,
                is_clock_apart=means.is_clock_apart,
            )
        )
        self.links: LinkTable = links.table
        """For the cluster port."""

    @property
    def status(self) -> ReplicaStatus:
        """As it was at the last tick."""
        return self._runner.status()

    @property
    def mended_bytes(self) -> int:
        """Of its log, put right from another replica by now."""
        return self._runner.mended_bytes

    def readable(self, *, is_stale: bool) -> FollowedStore | None:
        """What may be read while it follows; see `ReplicaRunner.readable`."""
        return self._runner.readable(is_stale=is_stale)

    def log_figures(self) -> LogFigures | None:
        """Of its log; None: it is not open."""
        return self._runner.log_figures()

    @property
    def leads(self) -> bool:
        """Whether it leads, or is about to."""
        return self.status.role in {Role.LEADER, Role.TAKING_OVER}

    @property
    def can_hand_over(self) -> bool:
        """Whether it leads, and another replica is in sync and answers."""
        members = self.status.members
        return self.leads and any(each.is_in_sync and each.is_connected for each in members)

    async def start(self) -> None:
        """Raises `StoreUnusable`, `ReplicaFileDamaged` or `OSError`."""
        await self._runner.start()

    async def ask_unclean(self, by: str, *, is_dry_run: bool) -> tuple[UncleanJudged, int]:
        """Have this replica stand for an unclean election; how that is judged, and the time of the
        newest message that it has. Raises `TimeoutError`."""
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[tuple[UncleanJudged, int]]
        answer = self._judged[number] = asyncio.get_running_loop().create_future()
        self._runner.give(UncleanAsked(number, by, is_dry_run))
        try:
            async with asyncio.timeout(JUDGED_S):
                return await answer
        finally:
            del self._judged[number]

    def _take_judgement(self, judged: UncleanJudged, newest_ms: int) -> None:
        answer = self._judged.get(judged.number)
        if answer is not None and not answer.done():
            answer.set_result((judged, newest_ms))

    def transfer(self, asked: TransferAsked) -> None:
        """Have another replica lead, if this one does."""
        self._runner.transfer(asked)

    async def stop(self, within_s: float) -> None:
        """Hand over within this time, if there is somebody; bring all to the medium, and close."""
        try:
            await self._runner.stop(within_s if self.can_hand_over else 0.0)
        finally:
            await self._questions.close()

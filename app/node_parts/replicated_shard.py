"""The shard of a node that is one of several with a replica of it: it follows, and leads when it is
elected.

The node joins the shard in the metadata at each start, before its store is made. Once so many have
joined as the in-sync set must never fall below, its replica is at work. When another node joins or
is taken out, the replica ends and another one begins, with the new members. Event loop only.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, Self

from typing_extensions import override

from app.api.peers.pool import Peers
from app.api.ports import FollowedStore, Follower, OwnReplica, ReadsHere, Replicas
from app.api.replicas.link_table import LinkTable
from app.broker.health import NodeState
from app.broker.warm_parts import WarmParts
from app.cluster import Beat, Event, JoinRequest, Metadata, ReplicaSet, ShardView, WithoutReplica
from app.cluster.replication.events import TransferAsked
from app.cluster.replication.replica_state import Timing
from app.cluster.replication.terms import Term
from app.config import Config, DataDirectoryUnusable
from app.domain.access.actions import Kind
from app.domain.clock import Clock, StepTimes
from app.domain.errors import CurlewError, ShardUnavailable
from app.domain.limits import MIB, Limits
from app.node_parts.from_config import (
    SecureFiles,
    advertised_url,
    cluster_url_of,
    made_directory,
    store_config_of,
    unusable_directory,
)
from app.node_parts.own_shard import LEAVE_SECONDS, ClusterPort, OwnShard, Terms
from app.node_parts.replica_at_work import ReplicaAtWork, ReplicaMeans, new_number
from app.node_parts.replica_conditions import ReplicaConditions, ReplicaView
from app.node_parts.served_term import ServedTerm, TermParts
from app.replica.hand_over import successor
from app.replica.leadership import LeaderHooks
from app.replica.ports import CutTail, WarmState
from app.replica.replica_status import NOTHING, ReplicaStatus, Role
from app.replica.unclean import UncleanLoss, loss_of
from app.runtime.service import within
from app.store import LogFigures, MessageStore, OsFiles, StoreUnusable
from app.store.lifecycle.opening import ShardMeta
from app.store.replica.node_id import NodeId, NodeIdUnreadable, node_id_of, settle
from app.store.replica.replica_files import ReplicaFileDamaged
from app.store.replica.replica_store import OpeningOptions, ReplicaDirectory

_LOG: Final = logging.getLogger(__name__)

HAND_OVER_SECONDS: Final = 4.0
"""Of `app.main.STOP_SECONDS`: how long another replica is waited for that leads."""

READER_THREADS: Final = 4
"""For reads of the replica that wait for the disk, while another node leads."""

HAND_OVER_STEP_SECONDS: Final = 0.05
"""Between two looks meanwhile."""

Unusable = (StoreUnusable, ReplicaFileDamaged, OSError, MemoryError)


class _KeptDirectory(ReplicaDirectory):
    """Whose lock is this node's from its start to its stop, whichever replica is at work."""

    @override
    def release(self) -> None:
        """A replica has ended: the next one goes on with the directory."""

    def let_go(self) -> None:
        """The node has ended."""
        super().release()


class _Node(NamedTuple):
    """What the shard is made of."""

    config: Config
    limits: Limits
    clock: Clock
    metadata: Metadata
    state: NodeState
    files: SecureFiles


class ReplicatedShard(OwnShard, Replicas, ReadsHere):
    """Made by `open`, which joins the shard; then `start`, once."""

    def __init__(
        self, node: _Node, directory: ReplicaDirectory, node_id: NodeId, joined: ReplicaSet
    ) -> None:
        self.node_id = node_id.value
        self.shard_id = joined.store_id
        self.conditions = ReplicaConditions(node.state, self._view, self._is_made_by_use)
        self.following = self.conditions
        self.replicas = self
        self.reads_here = self
        self._readers = ThreadPoolExecutor(READER_THREADS, "curlew-followed-reads")
        node.state.of_replica = self.conditions.of_replica
        self._id = node_id
        self._node = node
        self._shard = joined
        self._directory = directory
        self._replica: ReplicaAtWork | None = None
        self._port: ClusterPort | None = None
        self._problem: str | None = None
        self._has_tried_to_hand_over = False
        """Whether the node stops: it waits for another leader once."""
        self._is_forgotten = False
        """Whether the metadata does not know this replica."""
        self._is_removed = False
        """Whether that is because an operator took it out: then none is at work here."""
        self._changing = asyncio.Lock()
        """Of who ends the replica, or has another one begin, while the node is at work."""
        self._given_up_bytes = 0
        self._mended_bytes = 0
        """By the replicas that have ended."""
        self._telling: set[asyncio.Task[None]] = set()
        self._parts: TermParts
        self._terms: Terms

    @classmethod
    async def open(
        cls,
        config: Config,
        limits: Limits,
        clock: Clock,
        metadata: Metadata,
        state: NodeState,
        files: SecureFiles,
        stack: AsyncExitStack,
    ) -> Self:
        """Take the directory and join; the end is on `stack`. Raises `StoreLocked`,
        `DataDirectoryUnusable`, `ReplicaRefused` or `MetadataUnavailable`."""
        try:
            directory = _KeptDirectory(OsFiles(made_directory(config)), new_number)
            stack.callback(directory.let_go)
            node_id = node_id_of(config.data_dir)
            if node_id.is_copy:
                directory.incarnation.distrust("the directory was copied, or brought back")
            request = JoinRequest(
                config.shard,
                node_id.value,
                cluster_url_of(config),
                advertised_url(config),
                config.zone or None,
                config.replicas,
                config.segment_bytes,
                directory.incarnation.foresee(),
                directory.store_id(),
            )
        except OSError as error:
            raise unusable_directory(config, error) from error
        except (NodeIdUnreadable, ReplicaFileDamaged) as error:
            raise DataDirectoryUnusable(str(error)) from error
        joined = await metadata.replica_sets.join(request)
        if joined.target_replicas != config.replicas:
            _LOG.warning(
                "replicas = %d has no effect: the shard %r was made for %d",
                *(config.replicas, joined.shard, joined.target_replicas),
            )
        node = _Node(config, limits, clock, metadata, state, files)
        shard = cls(node, directory, node_id, joined)
        stack.push_async_callback(shard._stop)
        return shard

    @override
    async def start(self, parts: TermParts, terms: Terms, stack: AsyncExitStack) -> None:
        """Raises `DataDirectoryUnusable`."""
        self._parts, self._terms = parts, terms
        try:
            await self._begin()
        except Unusable as error:
            raise DataDirectoryUnusable(
                f"the data directory {self._node.config.data_dir} cannot be used: {error}"
            ) from error

    @override
    def listen_on(self, port: ClusterPort) -> None:
        self._port = port
        self._show(None if self._replica is None else self._replica.links)

    @override
    async def claim(self) -> None:
        """It has joined."""

    @override
    async def tell(self) -> None:
        """Who leads is entered with the election."""

    @override
    async def look(self, found: Beat) -> None:
        if found.version < self._node.metadata.snapshot.version:
            return  # an older database says nothing of it
        if not found.is_replica and not self._is_forgotten:
            sets, name = self._node.metadata.replica_sets, self._shard.shard
            joined_ms = self._shard.joined_ms[self.node_id]
            self._is_removed = await sets.was_removed(name, self.node_id, joined_ms)
            if self._is_removed:
                _LOG.error("an operator has taken this node out of the shard %r", name)
            else:
                _LOG.error(
                    "the metadata knows no replica of the shard %r on this node: it is an older"
                    " copy",
                    name,
                )
        self._is_forgotten = not found.is_replica
        self._is_removed &= self._is_forgotten

    @override
    async def follow(self) -> None:
        """Another replica, where the members of the shard have changed; none, where this node is
        no member any more. Its data stays."""
        async with self._changing:
            await self._follow()

    async def _follow(self) -> None:
        if self._is_removed:
            await self._end_replica()
            return
        try:
            await self._begin()
        except Unusable as error:
            if str(error) != self._problem:
                _LOG.exception("the replica does not begin")
            self._problem = str(error)

    @override
    async def hand_over(self) -> None:
        self._has_tried_to_hand_over = True
        replica = self._replica
        if replica is None or not replica.can_hand_over:
            return
        _LOG.info("stopping: another replica is to lead the shard %r", self._shard.shard)
        replica.transfer(TransferAsked())
        try:
            await within(HAND_OVER_SECONDS, self._until_another_leads(replica))
        except TimeoutError:
            _LOG.warning("no other replica leads the shard %r yet", self._shard.shard)

    async def _until_another_leads(self, replica: ReplicaAtWork) -> None:
        """As the metadata says; one answer that is missing says nothing."""
        problem: str | None = None
        while replica.leads or self._is_led_here():
            await asyncio.sleep(HAND_OVER_STEP_SECONDS)
            if replica.leads:
                continue
            try:
                await self._node.metadata.refresh()
            except CurlewError as error:
                if error.detail != problem:
                    problem = error.detail
                    _LOG.warning("who leads the shard is not known yet: %s", problem)

    @override
    def own(self) -> OwnReplica:
        status = self._status()
        return OwnReplica(
            self._shard.shard,
            self.node_id,
            status.role is Role.LEADER,
            status.leader is not None,
            status.epoch,
            status.written,
            status.high_watermark,
            status.in_sync,
            status.lacking_count,
            given_up_bytes=self._given_up_bytes,
            damaged_places=status.damaged_places,
            repaired_bytes=self._mended_bytes + status.mended_bytes,
        )

    @override
    def followers(self) -> Sequence[Follower]:
        return self._status().members

    @override
    def log_figures(self) -> LogFigures | None:
        return None if self._replica is None else self._replica.log_figures()

    @override
    def successor(self, node: str | None) -> str:
        return successor(self._shard.shard, self.node_id, self._status(), node)

    @override
    def hand_over_to(self, node: str, by: str) -> None:
        if self._replica is not None:
            _LOG.info("%s asks that %s leads the shard %r", by, node, self._shard.shard)
            self._replica.transfer(TransferAsked(node, by))

    @property
    @override
    def readers(self) -> Executor:
        return self._readers

    @property
    @override
    def hears_leader(self) -> bool:
        return self._status().leader is not None

    @override
    def readable(self, *, is_stale: bool) -> FollowedStore | None:
        return None if self._replica is None else self._replica.readable(is_stale=is_stale)

    @override
    async def elect_unclean(self, by: str, *, is_dry_run: bool) -> UncleanLoss:
        shard, replica = self._shard.shard, self._replica
        if replica is None:
            why = self._problem or "too few have joined"
            raise ShardUnavailable(f"the replica is not at work: {why}", hint="look at /readyz")
        if not is_dry_run:
            _LOG.warning("%s asks for an unclean election in the shard %r", by, shard)
        try:
            judged, newest_ms = await replica.ask_unclean(by, is_dry_run=is_dry_run)
        except TimeoutError as error:
            raise ShardUnavailable(
                "the replica has not answered: it is paused, or has failed",
                hint="/readyz of its node says why; it may have begun to lead all the same",
            ) from error
        return loss_of(shard, self.node_id, judged, newest_ms)

    @override
    async def begin_anew(self, by: str, *, keeps_log: bool, is_dry_run: bool) -> WithoutReplica:
        sets, name = self._node.metadata.replica_sets, self._shard.shard
        found = await sets.put_out(name, self.node_id, by, is_dry_run=True)
        if is_dry_run:
            return found
        _LOG.warning("%s asks that the replica of the shard %r begins anew", by, name)
        async with self._changing:  # `follow` has another one begin, a second later at most
            await self._end_replica()
            found = await sets.put_out(name, self.node_id, by)
            begin = partial(self._directory.begin_reset, f"{by} has asked", keeps_log=keeps_log)
            try:
                await asyncio.to_thread(begin)
            except OSError as error:
                raise ShardUnavailable(
                    f"the disk of the node {self.node_id} does not take that the replica begins"
                    f" anew: {error}",
                    hint="mend the disk, or take the node out and start another one in its place",
                ) from error
        return found

    # --- the replica

    async def _begin(self) -> None:
        """Have a replica at work with all members that there are, if they are enough."""
        view = self._known()
        members = frozenset(() if view is None else [each.node_id for each in view.members])
        if view is None or self.node_id not in members:
            return  # the beat tells of it
        is_at_work = self._replica is not None and self._replica.members == members
        if is_at_work or len(members) < view.min_in_sync:
            return
        await self._end_replica()
        self._replica = replica = ReplicaAtWork(self._means(), members)
        self._show(replica.links)
        try:
            await replica.start()
            settle(self._node.config.data_dir, self._id)
        except BaseException:
            await self._end_replica()
            raise
        self._id = self._id._replace(is_copy=False)
        self._problem = None

    async def _end_replica(self) -> None:
        replica = self._replica
        if replica is not None:
            self._show(None)
            try:
                await replica.stop(0.0 if self._has_tried_to_hand_over else HAND_OVER_SECONDS)
            finally:  # it has ended, also where this is cancelled
                self._mended_bytes += replica.mended_bytes
                self._replica = None

    async def _stop(self) -> None:
        node, name = self._node, self._shard.shard
        try:
            await self._end_replica()
        finally:
            for telling in tuple(self._telling):
                telling.cancel()
            self._readers.shutdown(wait=False)
            try:
                leaving = node.metadata.replica_sets.stopped(name, self.node_id)
                await within(LEAVE_SECONDS, leaving)
            except CurlewError as error:
                _LOG.warning("the metadata does not know that the node has ended: %s", error.detail)
            except TimeoutError:
                _LOG.warning("the metadata does not know that the node has ended: it is silent")

    def _means(self) -> ReplicaMeans:
        node, shard = self._node, self._shard
        segment_bytes = shard.segment_bytes
        store_config = store_config_of(node.config, node.limits)
        store_config = replace(
            store_config,
            segment_bytes=segment_bytes,
            record_bytes_max=min(store_config.record_bytes_max, segment_bytes - MIB),
        )
        secret = node.files.secret
        assert secret is not None, "the configuration was checked"
        return ReplicaMeans(
            self.node_id,
            self._directory,
            OpeningOptions(
                store_config,
                node.clock,
                asyncio.get_running_loop().call_soon,
                node.limits,
                ShardMeta(shard.store_id.hex(), segment_bytes),
            ),
            Peers(secret, node.clock.monotonic_s, node.files.cluster_tls),
            secret,
            Timing(),
            self._urls,
            lambda: node.metadata.shard_rows(self.node_id),
            LeaderHooks(
                *(self._serve, self._step_down, self._take_no_more, shard.shard),
                on_cut=self._was_cut,
                keep_warm=lambda store, submit: WarmParts(store, node.clock, node.limits, submit),
            ),
            lambda: node.state.clock.is_apart,
        )

    def _urls(self) -> Mapping[str, str]:
        view = self._known()
        members = self._shard.members if view is None else view.members
        return {each.node_id: each.cluster_url for each in members}

    def _show(self, links: LinkTable | None) -> None:
        if self._port is not None:
            self._port.links = links

    # --- its terms

    async def _serve(self, term: Term, store: MessageStore, warm: WarmState) -> None:
        kept_up = warm if isinstance(warm, WarmParts) else None
        times = StepTimes(self._node.clock.monotonic_s)
        await self._node.metadata.refresh()
        times.end("metadata")
        served = await ServedTerm.open(self._parts, store, term.epoch - 1, kept_up)
        times.end("broker and services")
        _LOG.info("the begin of the term took %s", times)
        _LOG.info("this node leads the shard %r in epoch %d", self._shard.shard, term.epoch)
        self._terms.begin_term(served)

    async def _step_down(self, reason: str) -> None:
        _LOG.info("this node leads the shard %r no more: %s", self._shard.shard, reason)
        await self._terms.end_term()

    def _take_no_more(self) -> None:
        self._terms.take_no_more()

    def _was_cut(self, tail: CutTail) -> None:
        """Count what was given up, and tell of any cut where operators look."""
        if tail.is_loss:
            self._given_up_bytes += tail.size
        telling = asyncio.get_running_loop().create_task(self._tell_cut(tail))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell_cut(self, tail: CutTail) -> None:
        name, epoch = self._shard.shard, self._status().epoch
        kept = f"kept in {tail.kept_in}" if tail.kept_in else "no copy is kept"
        said = f"{tail.size} bytes from {tail.start} on; {kept}"
        _LOG.warning("what the leader of %r does not have was cut off: %s", name, said)
        kind: Final = "replica_gave_up" if tail.is_loss else "replica_cut"
        try:
            await self._node.metadata.events.note(Event(kind, name, self.node_id, epoch, said))
        except CurlewError as error:
            _LOG.warning("the metadata does not know what was cut off: %s", error.detail)

    # --- what is known

    def _status(self) -> ReplicaStatus:
        return NOTHING if self._replica is None else self._replica.status

    def _known(self) -> ShardView | None:
        return self._node.metadata.snapshot.shards.get(self._shard.shard)

    def _is_led_here(self) -> bool:
        view = self._known()
        return view is not None and view.leader == self.node_id

    def _is_made_by_use(self, kind: Kind) -> bool:
        config = self._parts.running.config
        if kind is Kind.TOPIC:
            return config.auto_create_topics
        return kind is Kind.GROUP and config.auto_create_groups

    def _view(self) -> ReplicaView:
        view, problem = self._known(), self._problem
        if self._is_forgotten and not self._is_removed:
            problem = "the metadata does not know it: the database is an older copy"
        return ReplicaView(
            self._shard.shard,
            None if self._replica is None else self._replica.status,
            0 if view is None else len(view.members),
            self._shard.min_in_sync,
            self._shard.target_replicas,
            problem,
            self._is_removed,
        )

"""A node: what lives as long as its process, around the terms in which it leads its shard.

One process runs one node with one data directory. The metadata, keys, certificates, the audit and
the pulse are the process's; store and broker are a term's (`node_parts.served_term`). Opened in
order and closed in reverse. Tests start a `Node`, not a server.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from app.api.ports import Following, ReadsHere, Replicas
from app.broker import Broker
from app.broker.figures.lost_answers import LostAnswers
from app.broker.health import NodeState
from app.cluster import ClusterConfig, DatabaseFull, Metadata, NodeView
from app.config import Config
from app.domain.clock import Clock
from app.domain.limits import Limits
from app.node_parts.access import (
    admit_administrator,
    close_if_closed,
    narrow_files,
    refuse_older_copy,
)
from app.node_parts.from_config import (
    SecureFiles,
    advertised_url,
    cluster_url_of,
    hooks_of,
    spans_of,
)
from app.node_parts.housekeeping import Housekeeping
from app.node_parts.lone_shard import LoneShard
from app.node_parts.own_shard import ClusterPort, OwnShard, TermApp
from app.node_parts.pulse import Pulse
from app.node_parts.replicated_shard import ReplicatedShard
from app.node_parts.served_term import ServedTerm, TermParts
from app.running_config import RunningConfig
from app.runtime.secure.secret_key import SecretKey
from app.runtime.service import Service
from app.runtime.system_clock import SystemClock
from app.runtime.version import program_version
from app.store import MessageStore

if TYPE_CHECKING:  # an extra, imported where it is on
    from app.runtime.span_export import SpanExport

_LOG: Final = logging.getLogger(__name__)

FOLLOW_SECONDS: Final = 5.0
LAST_TURN_SECONDS: Final = 1.0
"""How long a stop waits for what the services are doing: all together, as most ask the database."""
"""How long one turn waits for a term of several replicas to carry out what was deleted: it may wait
for a replica that the next turn hears of."""


class Node:
    """Everything below HTTP. Made by `open`; event loop only."""

    def __init__(
        self,
        config: Config,
        limits: Limits,
        clock: Clock,
        metadata: Metadata,
        files: SecureFiles,
        shard: OwnShard,
        state: NodeState,
    ) -> None:
        self.config = config
        self.limits = limits
        self.clock = clock
        self.metadata = metadata
        self.state = state
        self.running = RunningConfig(config, limits, metadata)
        self.tls, self.cluster_tls, self.tokens, self.secret = files
        self.spans: SpanExport | None = None
        """OpenTelemetry's; None: off."""
        self.node_id = shard.node_id
        self.term: ServedTerm | None = None
        """In which it leads its shard now."""
        self._app: TermApp | None = None
        self._shard = shard
        self._stack = AsyncExitStack()
        tls = (self.tls, self.cluster_tls)
        self.housekeeping = Housekeeping(config, metadata, state, tls, self.tokens)
        self.pulse = Pulse(
            metadata,
            clock,
            state,
            shard,
            self._register,
            self.housekeeping.refresh_keys,
            self._follow_changes,
        )

    @property
    def leading(self) -> ServedTerm:
        """The term; only while there is one."""
        assert self.term is not None, "this node does not lead its shard"
        return self.term

    @property
    def store(self) -> MessageStore:
        """Of the term; only while there is one."""
        return self.leading.store

    @property
    def broker(self) -> Broker:
        """Of the term; only while there is one."""
        return self.leading.broker

    @classmethod
    async def open(
        cls, config: Config, *, limits: Limits | None = None, clock: Clock | None = None
    ) -> Self:
        """Open metadata, store and broker, then start the services.

        Raises `ConfigError` for a hook, `UnusableCertificate`, `DataDirectoryUnusable`,
        `StoreLocked`, `StoreUnusable` or `MetadataUnavailable`; the last one also when the metadata
        belongs to another store.
        """
        limits = replace(limits or config.limits)  # of this node alone: they may change
        clock = clock or SystemClock()
        narrow_files(config)
        files = SecureFiles.of(config, clock)
        secret_key = SecretKey.of(config.secret_key_file)
        hooks = hooks_of(config)
        async with AsyncExitStack() as stack:
            # Before the store, which is made where there is none: no metadata, no store.
            metadata = await Metadata.open(
                ClusterConfig(
                    config.database,
                    config.flush,
                    config.quota_topics,
                    config.quota_groups,
                    config.quota_schedules,
                ),
                clock,
                limits,
            )
            stack.push_async_callback(metadata.close)
            await metadata.claim_secret_key(secret_key)
            metadata.audit.write_as(None, secret_key)
            await admit_administrator(config, metadata)
            close_if_closed(config, metadata)
            refuse_older_copy(config, metadata)
            state = NodeState()
            if config.replicas == 1:
                shard: OwnShard = await LoneShard.open(
                    config, limits, clock, metadata, state, stack
                )
            else:
                shard = await ReplicatedShard.open(
                    config, limits, clock, metadata, state, files, stack
                )
            metadata.audit.write_as(shard.node_id, secret_key)
            node = cls(config, limits, clock, metadata, files, shard, state)
            metadata.principals.age.max_s = config.policy_age_max
            state.policy_age = metadata.principals.age
            parts = TermParts(metadata, clock, limits, node.running, hooks, state, LostAnswers())
            await shard.start(parts, node, stack)
            node.spans = spans_of(config, node.node_id)
            if node.spans is not None:
                stack.push_async_callback(asyncio.to_thread, node.spans.close)
            await node._register_if_there_is_room()
            services = node.services()
            stack.push_async_callback(_stop_all, services)
            for service in services:
                state.services.append(service)
                await service.start()
            node._stack = stack.pop_all()
            return node
        raise AssertionError("unreachable")

    @property
    def is_lone(self) -> bool:
        """Whether it leads its shard as long as it lives."""
        return self._shard.following is None

    @property
    def following(self) -> Following | None:
        """What it says of itself while it leads nothing."""
        return self._shard.following

    @property
    def replicas(self) -> Replicas | None:
        """Of its shard; None: it has one."""
        return self._shard.replicas

    @property
    def reads_here(self) -> ReadsHere | None:
        """What may be read here while another node leads the shard; None: it is a lone node's."""
        return self._shard.reads_here

    def answer_by(self, app: TermApp) -> None:
        """Have requests answered by this from now on."""
        self._app = app
        if self.term is None:
            app.follow()
        else:
            app.serve(self.term)

    def listen_on(self, port: ClusterPort) -> None:
        """Where other replicas of the shard reach this one."""
        self._shard.listen_on(port)

    async def hand_over(self) -> None:
        """The node is about to stop: let another replica lead its shard, if one can. At most some
        seconds; requests are answered meanwhile."""
        await self._shard.hand_over()

    def begin_term(self, term: ServedTerm) -> None:
        """The node leads its shard."""
        self.term = term
        if self._app is not None:
            self._app.serve(term)

    def take_no_more(self) -> None:
        """The term is about to end: what comes from now on is for the next leader."""
        if self._app is not None:
            self._app.follow()

    async def end_term(self) -> None:
        """The term is over: who waits is answered, and nobody uses its store when this returns."""
        term, self.term = self.term, None
        if term is None:
            return
        self.take_no_more()
        async with AsyncExitStack() as steps:  # each, whatever becomes of those before
            steps.push_async_callback(term.close)
            if self._app is not None:
                steps.push_async_callback(self._app.end_term)
            await term.drain()

    async def drain(self) -> None:
        """Answer all long polls and take no new work; what is in flight finishes."""
        if self.term is not None:
            await self.term.drain()

    async def close(self) -> None:
        """Stop the services, write what is left, close in reverse order. Idempotent."""
        await self._stack.aclose()

    def services(self) -> list[Service]:
        """Of the process."""
        return [self.pulse.beating, self.pulse.changes, *self.housekeeping.services()]

    async def _follow_changes(self) -> None:
        """Act on what the metadata has anew, and on what could not be done the last time."""
        self.running.look()
        await self._shard.follow()  # first: what a term cannot write may wait for a new replica
        if self.term is not None:
            await self.term.follow_changes(None if self.is_lone else FOLLOW_SECONDS)

    async def _register_if_there_is_room(self) -> None:
        """Register, on a full disk later: the heartbeat does it, and readers need not wait."""
        try:
            await self._register()
        except DatabaseFull as error:
            _LOG.warning("the node is not registered yet: %s", error.for_log)

    async def _register(self) -> None:
        """Tell the others where the node is, and in which epoch it leads its shard."""
        config, now_ms = self.config, self.clock.now_ms()
        await self._shard.claim()
        await self.metadata.register_node(
            NodeView(
                self.node_id,
                f"{config.host}:{config.port}",
                self._shard.shard_id,
                now_ms,
                now_ms,
                shard=self.metadata.shard,
                advertise_url=advertised_url(config),
                cluster_url=cluster_url_of(config),
                zone=config.zone,
                version=program_version(),
            )
        )
        await self._shard.tell()
        self.pulse.is_registered = True


async def _stop_all(services: Sequence[Service]) -> None:
    await asyncio.gather(*[service.stop(LAST_TURN_SECONDS) for service in services])

"""A node: store, metadata and broker, opened in order and closed in reverse.

One process runs one node with one data directory. The node owns the background services that are
of no single package: flushing what async topics wrote, checkpoints, refreshing the metadata,
heartbeats.
Tests start a `Node`, not a server.
"""

import asyncio
import logging
import secrets
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from app.broker import Broker, BrokerConfig
from app.broker.hooks.hook_loading import load_hooks
from app.broker.hooks.hooks import Hooks, NamedHook, UnusableHook
from app.cluster import (
    Claim,
    ClusterConfig,
    ClusterSnapshot,
    DatabaseFull,
    Metadata,
    NodeView,
)
from app.config import LOG_CACHE_MIB_MIN, Config, ConfigError, DataDirectoryUnusable
from app.domain.clock import Clock
from app.domain.errors import CurlewError
from app.domain.limits import DEFAULT_RETENTION_MS, MIB, Limits
from app.domain.names import TRACE_TOPIC, dead_letter_topic, retry_topic
from app.domain.shortages import HINTS, shortage_of
from app.node_access import (
    admit_administrator,
    close_if_closed,
    narrow_files,
    refuse_older_copy,
)
from app.node_pulse import Pulse
from app.running_config import RunningConfig
from app.runtime.closed_marker import (
    remember_closed,
    remember_version,
)
from app.runtime.machine import gives_free_memory_back, memory_bytes
from app.runtime.private_files import (
    make_private_directory,
)
from app.runtime.secure.cluster_secret import ClusterSecret
from app.runtime.secure.secret_key import SecretKey
from app.runtime.secure.tls_files import TlsFiles
from app.runtime.secure.tokens import TokenSettings, TokenVerifier
from app.runtime.service import Service
from app.runtime.system_clock import SystemClock
from app.runtime.version import program_version
from app.store import FOREVER_MS, MessageStore, OsFiles, RetentionPolicy, StoreConfig

if TYPE_CHECKING:  # an extra, imported where it is on
    from app.runtime.span_export import SpanExport

_LOG: Final = logging.getLogger(__name__)

CHECKPOINT_SECONDS: Final = 5.0
"""Bounds what is read again after a crash, and the memory held by units (20 bytes a message)."""

CHECKPOINT_QUEUES_A_TURN: Final = 1_024
"""Queues that a checkpoint takes in one turn of the event loop; 3 to 5 ms when all were written."""

RETENTION_SECONDS: Final = 10.0
"""RocketMQ's cleanResourceInterval."""

KEYS_SECONDS: Final = 1.0
"""How late, with what the look-up takes, a key that was made or revoked elsewhere is known."""

LAST_USE_SECONDS: Final = 60.0
"""How exactly the last use of a key is known."""

DENIALS_SECONDS: Final = 10.0

AUDIT_SECONDS: Final = 3_600.0
"""How often old entries of the audit go."""

AUDIT_HEADS_SECONDS: Final = 86_400.0
"""How often the heads of the audit's chains are in the log."""

CERTIFICATE_SECONDS: Final = 5.0
"""How late a certificate that was replaced is used."""

LOG_CACHE_DIVISOR: Final = 16
"""The part of the machine's memory that the newest of the log may fill where new memory is dear;
what is read again and again may fill as much."""


class Node:
    """Everything below HTTP. Made by `open`; event loop only."""

    def __init__(
        self,
        config: Config,
        limits: Limits,
        clock: Clock,
        store: MessageStore,
        metadata: Metadata,
        broker: Broker,
        stack: AsyncExitStack,
    ) -> None:
        self.config = config
        self.limits = limits
        self.clock = clock
        self.store = store
        self.metadata = metadata
        self.broker = broker
        self.running = RunningConfig(config, limits, metadata)
        self.tokens: TokenVerifier | None = None
        """None: no tokens are taken."""
        self.tls: TlsFiles | None = None
        """None: plain HTTP."""
        self.cluster_tls: TlsFiles | None = None
        """None: nodes speak without TLS to each other."""
        self.spans: SpanExport | None = None
        """OpenTelemetry's; None: off."""
        self.node_id = store.store_id.hex()
        self.secret: ClusterSecret | None = None
        """None: the node listens for no others."""
        self._stack = stack
        self._claim: Claim | None = None
        """What it has said of its shard."""
        self._disk_was_low = False
        self._flushing = Service("flush", config.flush_interval_ms / 1_000, self._flush)
        self._pulse: Pulse | None = None
        self._followed: ClusterSnapshot | None = None
        """What was acted on last."""
        self._has_deletions = False
        """Perhaps: a change was seen, and deletions could not be looked for since."""

    @classmethod
    async def open(
        cls, config: Config, *, limits: Limits | None = None, clock: Clock | None = None
    ) -> Self:
        """Open store, metadata and broker, then start the services.

        Raises `ConfigError` for a hook, `UnusableCertificate`, `DataDirectoryUnusable`,
        `StoreLocked`, `StoreUnusable` or `MetadataUnavailable`; the last one also when the metadata
        belongs to another store.
        """
        limits = replace(limits or config.limits)  # of this node alone: they may change
        clock = clock or SystemClock()
        narrow_files(config)
        tls = TlsFiles.of(config.tls_cert_file, config.tls_key_file, config.tls_client_ca_file)
        cluster_tls = _cluster_tls_of(config)
        tokens = _tokens_of(config, clock)
        secret_key = SecretKey.of(config.secret_key_file)
        secret = ClusterSecret.of(config.cluster_secret_file)
        hooks = _hooks_of(config)
        async with AsyncExitStack() as stack:
            # Before the store, which is made where there is none: no metadata, no store.
            metadata = await Metadata.open(
                ClusterConfig(
                    config.database, config.flush, config.quota_topics, config.quota_groups
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
            store = _open_store(config, limits, clock)
            stack.callback(store.close)
            claim = _claim_of(config, store.store_id)
            epoch_floor = await metadata.claim_shard(claim)
            stack.push_async_callback(_leave_shard, metadata, claim)
            metadata.audit.write_as(store.store_id.hex(), secret_key)
            broker = await Broker.open(
                store,
                metadata,
                clock,
                limits,
                _broker_config_of(config),
                hooks,
                epoch_floor=epoch_floor,
            )
            stack.push_async_callback(broker.stop)
            node = cls(config, limits, clock, store, metadata, broker, stack)
            metadata.principals.age.max_s = config.policy_age_max
            broker.health.policy_age = metadata.principals.age
            node.running.listen(node._follow)
            node.tls, node.cluster_tls, node.tokens, node.secret = tls, cluster_tls, tokens, secret
            node.spans = _spans_of(config, store.store_id.hex())
            if node.spans is not None:
                stack.push_async_callback(asyncio.to_thread, node.spans.close)
            node._claim = claim
            node._pulse = node._make_pulse(claim)
            await node._register_if_there_is_room()
            for service in node._services():
                broker.health.watch(service)
                await service.start()
                stack.push_async_callback(service.stop)
            node._stack = stack.pop_all()
            return node
        raise AssertionError("unreachable")

    async def drain(self) -> None:
        """Answer all long polls and take no new work; what is in flight finishes."""
        await self.broker.stop()

    async def close(self) -> None:
        """Stop the services, write what is left, close in reverse order. Idempotent."""
        await self._stack.aclose()

    def _services(self) -> list[Service]:
        return [
            Service("certificate", CERTIFICATE_SECONDS, self._refresh_files),
            self._flushing,
            Service("checkpoint", CHECKPOINT_SECONDS, self._checkpoint),
            Service("retention", RETENTION_SECONDS, self.apply_retention),
            *((pulse.beating, pulse.changes) if (pulse := self._pulse) is not None else ()),
            Service("age of keys", KEYS_SECONDS, self._look_at_age),
            Service("last use of keys", LAST_USE_SECONDS, self._write_last_use),
            Service("denials", DENIALS_SECONDS, self._write_denials),
            Service("audit", AUDIT_SECONDS, self._expire_audit),
            Service("audit heads", AUDIT_HEADS_SECONDS, self._log_audit_heads),
        ]

    def _follow(self, config: Config) -> None:
        """Settings have changed."""
        by_use = self.broker.made_by_use
        by_use.topics, by_use.groups = config.auto_create_topics, config.auto_create_groups
        self._flushing.set_interval(config.flush_interval_ms / 1_000)

    async def _flush(self) -> None:
        """Bring to the medium what async topics have written."""
        status = self.store.status()
        if status.flushed_end < status.written_end and status.failed is None:
            self.store.flush(_log_failure)

    async def _checkpoint(self) -> None:
        if self.store.status().failed is not None:
            return
        try:
            checkpointing = self.store.begin_large_checkpoint()
            while True:
                if not checkpointing.collect(CHECKPOINT_QUEUES_A_TURN):
                    break
                await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, checkpointing.run)
        except OSError as error:
            self.store.is_passing(error)
        else:
            self.store.look_again()

    async def apply_retention(self) -> None:
        """One pass: expire and delete as the topics say, and mind the disk. The service's turn."""
        topics = self.metadata.snapshot.topics.values()
        policy = RetentionPolicy(
            default_ms=DEFAULT_RETENTION_MS,
            by_topic_ms={topic.name: topic.retention_ms for topic in topics}
            | self.broker.failed_deliveries.retention_ms()
            | self._hidden()
            | {TRACE_TOPIC: self.running.config.trace_hours * 3_600_000},
        )
        loop = asyncio.get_running_loop()
        renewed = asyncio.Event()
        if self.store.floor_journal.renew(lambda _error: renewed.set()):
            await renewed.wait()  # or its entries would hold the oldest segment
        await self.broker.epochs.renew()
        try:
            report = await loop.run_in_executor(None, self.store.apply_retention, policy)
        except OSError as error:
            shortage = shortage_of(error)
            if shortage is None:
                raise
            self.store.shortages.begins("retention", shortage, "nothing expires")
            return
        self.store.shortages.ends("retention")
        if report.warn and not self._disk_was_low:
            _LOG.warning("the disk is %.0f %% full", report.disk_used_ratio * 100)
            if report.held_by is not None:
                _LOG.warning(
                    "%s hold %d segments that retention would delete",
                    report.held_by,
                    report.held_back_segments,
                )
        self._disk_was_low = self.broker.delays.compaction.disk_is_low = report.warn
        if report.expired_messages or report.deleted_segments:
            _LOG.info(
                "retention: %d messages expired, %d segments deleted",
                report.expired_messages,
                len(report.deleted_segments),
            )
            await self._checkpoint()

    def _hidden(self) -> dict[str, int]:
        """Topics that are merely missing in the metadata: nobody knows how long they are kept."""
        snapshot = self.metadata.snapshot
        known = {*snapshot.topics, *map(dead_letter_topic, snapshot.groups)}
        hidden = set(self.store.hidden_topics(known))
        kept = {*snapshot.topics, *hidden}
        hidden |= {
            retry_topic(group, topic)
            for group, topic in self.broker.consumer_journal.retried()
            if topic in hidden or (group not in snapshot.groups and topic in kept)
        }
        return dict.fromkeys(hidden, FOREVER_MS)

    async def _follow_changes(self) -> None:
        """Act on what the metadata has anew, and on what could not be done the last time."""
        lifecycle, snapshot = self.broker.lifecycle, self.metadata.snapshot
        if snapshot is not self._followed or self._has_deletions or lifecycle.is_behind:
            self._has_deletions = True
            self.running.look()
            await lifecycle.carry_out_deletions()
            self._has_deletions = False
            self._followed = snapshot

    async def _refresh_keys(self) -> None:
        """Hear of new and revoked keys. Without the database those that are known go on."""
        principals = self.metadata.principals
        before = principals.keyring
        try:
            await principals.refresh()
        except CurlewError as error:
            _LOG.warning("the keys are not refreshed: %s", error.detail)
            return
        self.broker.health.policy_problem = (
            None
            if principals.regressed_to is None
            else "the metadata database is an older copy: its keys and policies are not taken over"
        )
        now = principals.keyring
        if now.is_closed and not before.is_closed:
            remember_closed(self.config.data_dir)
        if now is not before:
            # Not the first again: `curlew security open` took it back while this node runs.
            remember_version(self.config.data_dir, now.version)

    async def _look_at_age(self) -> None:
        """Apart from asking the database, which may take as long as it likes."""
        self.metadata.principals.look_at_age()

    async def _write_last_use(self) -> None:
        """Note which keys were shown. Without the database it is not known, and nothing else."""
        try:
            await self.metadata.principals.write_last_use()
        except CurlewError as error:
            _LOG.warning("the last uses of keys are not written: %s", error.detail)

    async def _write_denials(self) -> None:
        """Without the database they are lost, as they are where there are too many."""
        try:
            await self.metadata.audit.flush()
        except CurlewError as error:
            _LOG.warning("denials are not in the audit: %s", error.detail)

    async def _expire_audit(self) -> None:
        try:
            await self.metadata.audit.expire(self.config.audit_days * 86_400_000)
        except CurlewError as error:
            _LOG.warning("old entries of the audit stay for now: %s", error.detail)

    async def _log_audit_heads(self) -> None:
        try:
            for head in await self.metadata.audit.heads():
                _LOG.info("audit head %s:%d:%s", head.node, head.seq, head.link.hex())
        except CurlewError as error:
            _LOG.warning("the heads of the audit are not known: %s", error.detail)

    async def _refresh_files(self) -> None:
        for tls in (self.tls, self.cluster_tls):
            if tls is not None:
                tls.refresh()
        if self.tokens is not None and self.tokens.refresh():
            self.metadata.principals.tell_waiting()  # of those whose key was taken out

    async def _register_if_there_is_room(self) -> None:
        """Register, on a full disk later: the heartbeat does it, and readers need not wait."""
        try:
            await self._register()
        except DatabaseFull as error:
            _LOG.warning("the node is not registered yet: %s", error.for_log)

    async def _register(self) -> None:
        """Tell the others where the node is, and in which epoch it leads its shard."""
        assert self._claim is not None
        assert self._pulse is not None
        if self.metadata.grant_id is None:  # there was no room for it at the start
            await self.metadata.claim_shard(self._claim)
        config, now_ms = self.config, self.clock.now_ms()
        await self.metadata.register_node(
            NodeView(
                self.node_id,
                f"{config.host}:{config.port}",
                self.store.store_id,
                now_ms,
                now_ms,
                shard=self.metadata.shard,
                advertise_url=advertised_url(config),
                cluster_url=_cluster_url(config),
                zone=config.zone,
                version=program_version(),
            )
        )
        await self.metadata.lead_shard(self._claim.grant_id, self.broker.epochs.current)
        self._pulse.is_registered = True

    def _make_pulse(self, claim: Claim) -> Pulse:
        return Pulse(
            self.store,
            self.metadata,
            self.broker,
            self.clock,
            claim,
            self._register,
            self._refresh_keys,
            self._follow_changes,
        )


def _claim_of(config: Config, store_id: bytes) -> Claim:
    """What this start says of its shard."""
    return Claim(
        store_id,
        config.shard,
        store_id.hex(),
        f"{config.host}:{config.port}",
        f"{socket.gethostname()}:{config.data_dir.absolute()}",
        secrets.token_bytes(16),
    )


async def _leave_shard(metadata: Metadata, claim: Claim) -> None:
    try:
        await metadata.leave_shard(claim.grant_id)
    except CurlewError as error:
        _LOG.warning("the metadata does not know that the node has ended: %s", error.detail)


def _broker_config_of(config: Config) -> BrokerConfig:
    return BrokerConfig(
        auto_create_topics=config.auto_create_topics,
        auto_create_groups=config.auto_create_groups,
        leases_per_principal_max=config.quota_leases,
    )


def _cluster_tls_of(config: Config) -> TlsFiles | None:
    return TlsFiles.of_nodes(
        config.cluster_tls_cert_file, config.cluster_tls_key_file, config.cluster_tls_ca_file
    )


def _cluster_url(config: Config) -> str:
    """Where other nodes reach it; empty: nowhere."""
    if config.cluster_url or not config.cluster_listen:
        return config.cluster_url.rstrip("/")
    return f"{'https' if config.has_cluster_tls else 'http'}://{config.cluster_listen}"


def advertised_url(config: Config) -> str:
    """Where clients reach the node, as far as it knows."""
    if config.advertise_url:
        return config.advertise_url.rstrip("/")
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{'https' if config.has_tls else 'http'}://{host}:{config.port}"


def _open_store(config: Config, limits: Limits, clock: Clock) -> MessageStore:
    root = config.data_dir / "store"
    try:
        make_private_directory(config.data_dir)
        make_private_directory(root)
        store_config = StoreConfig(
            segment_bytes=config.segment_bytes,
            record_bytes_max=min(limits.body_bytes_max + MIB // 16, config.segment_bytes - MIB),
            log_cache_bytes=log_cache_bytes(config),
            store_time_from_clock=config.store_time_from_clock,
        )
        loop = asyncio.get_running_loop()
        return MessageStore.open(OsFiles(root), store_config, clock, loop, limits)
    except OSError as error:
        shortage = shortage_of(error)
        hint = "name one that this user may write with --data-dir"
        raise DataDirectoryUnusable(
            f"the data directory {config.data_dir} cannot be used: {error.strerror}; "
            f"{HINTS[shortage] if shortage else hint}"
        ) from error


def log_cache_bytes(config: Config) -> int | None:
    """How much of the log is to stay in memory, in bytes; None: as the kernel decides."""
    if config.log_cache_mib is not None:
        return config.log_cache_mib * MIB or None
    if not gives_free_memory_back():
        return None
    return max(memory_bytes() // LOG_CACHE_DIVISOR, LOG_CACHE_MIB_MIN * MIB)


def log_cache_note(config: Config) -> str | None:
    """What an operator is told who did not choose how much of the log stays in memory."""
    kept = log_cache_bytes(config)
    if config.log_cache_mib is not None or kept is None:
        return None
    return (
        "this machine gives free memory back to its host, which makes new memory slow: of the log "
        f"the newest {kept // MIB} MiB stay in memory (setting log_cache_mib)"
    )


def _tokens_of(config: Config, clock: Clock) -> TokenVerifier | None:
    if config.oidc_jwks_file is None:
        return None
    settings = TokenSettings(
        config.oidc_issuer,
        config.oidc_audience,
        config.oidc_roles_claim,
        dict(config.oidc_roles),
        config.oidc_lifetime_max,
    )
    return TokenVerifier(settings, config.oidc_jwks_file, clock.now_ms)


def _log_failure(error: CurlewError | None) -> None:
    if error is not None:
        _LOG.error("a flush failed: %s", error.detail)


def _spans_of(config: Config, node_id: str) -> "SpanExport | None":
    """Raises `ConfigError` when spans are asked for and the extra is not installed."""
    if not config.otel_traces:
        return None
    try:
        from app.runtime.span_export import SpanExport
    except ImportError as error:
        raise ConfigError(str(error)) from error
    return SpanExport(node_id)


def _hooks_of(config: Config) -> list[NamedHook]:
    """The plug-ins that are on. Raises `ConfigError`."""
    try:
        hooks = load_hooks(config.hooks)
        Hooks(hooks)
    except UnusableHook as error:
        raise ConfigError(f"hooks: {error}") from error
    return hooks

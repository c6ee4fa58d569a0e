"""A term in which this node leads its shard: the store, the broker over it, and their services.

A node that has no other replicas has one term for its life. With replicas there is one for each
time that it leads, and the broker with all that it knows is thrown away behind it. Event loop only.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar

from app.broker import Broker
from app.broker.figures.lost_answers import LostAnswers
from app.broker.health import NodeState
from app.broker.hooks.hooks import NamedHook
from app.broker.warm_parts import WarmParts
from app.cluster import ClusterSnapshot, Metadata
from app.config import Config
from app.domain.clock import Clock
from app.domain.errors import CurlewError
from app.domain.identity import Deletion
from app.domain.limits import DEFAULT_RETENTION_MS, Limits
from app.domain.names import TRACE_TOPIC, dead_letter_topic, retry_topic
from app.domain.shortages import shortage_of
from app.node_parts.from_config import broker_config_of
from app.running_config import RunningConfig
from app.runtime.service import Service
from app.store import FOREVER_MS, MessageStore, RetentionPolicy

_LOG: Final = logging.getLogger(__name__)
_Returned = TypeVar("_Returned")

CHECKPOINT_SECONDS: Final = 5.0
"""Bounds what is read again after a crash, and the memory held by units (20 bytes a message)."""

CHECKPOINT_QUEUES_A_TURN: Final = 1_024
"""Queues that a checkpoint takes in one turn of the event loop; 3 to 5 ms when all were written."""

RETENTION_SECONDS: Final = 10.0
"""RocketMQ's cleanResourceInterval."""


class TermParts(NamedTuple):
    """What of the process each of its terms works with."""

    metadata: Metadata
    clock: Clock
    limits: Limits
    running: RunningConfig
    hooks: Sequence[NamedHook]
    state: NodeState
    lost: LostAnswers


class ServedTerm:
    """Made by `open`; `close` ends it."""

    def __init__(
        self, parts: TermParts, store: MessageStore, broker: Broker, stack: AsyncExitStack
    ) -> None:
        self.store = store
        self.broker = broker
        self._metadata = parts.metadata
        self._running = parts.running
        self._stack = stack
        self._on_threads: set[asyncio.Future[Any]] = set()
        """What works on the store's files now, whoever waits for it."""
        self._disk_was_low = False
        config = parts.running.config
        self._flushing = Service("flush", config.flush_interval_ms / 1_000, self._flush)
        self._followed: ClusterSnapshot | None = None
        """What was acted on last."""
        self._has_deletions = False
        """Perhaps: a change was seen, and deletions could not be looked for since."""

    @classmethod
    async def open(
        cls,
        parts: TermParts,
        store: MessageStore,
        epoch_floor: int,
        warm: WarmParts | None = None,
    ) -> Self:
        """Make the broker, whose epoch is above `epoch_floor`, and start the services. The store
        stays its caller's; `warm` was kept up over it. Raises `MetadataUnavailable`."""
        async with AsyncExitStack() as stack:
            config = parts.running.config
            stack.callback(_hear_nothing, parts.metadata)
            broker = await Broker.open(
                store,
                parts.metadata,
                parts.clock,
                parts.limits,
                broker_config_of(config),
                parts.hooks,
                epoch_floor=epoch_floor,
                lost=parts.lost,
                forced=parts.metadata.audit.forced,
                warm=warm,
            )
            stack.push_async_callback(broker.stop)
            broker.health.node = parts.state
            term = cls(parts, store, broker, stack)
            parts.running.listen(term._follow)
            stack.callback(parts.running.forget, term._follow)
            for service in term.services():
                broker.health.watch(service)
                await service.start()
                stack.push_async_callback(service.stop)
            term._stack = stack.pop_all()
            return term
        raise AssertionError("unreachable")

    def services(self) -> list[Service]:
        """Of the store; those of the broker are its own."""
        return [
            self._flushing,
            Service("checkpoint", CHECKPOINT_SECONDS, self.checkpoint),
            Service("retention", RETENTION_SECONDS, self.apply_retention),
        ]

    async def drain(self) -> None:
        """Answer all long polls and take no new work; what is in flight finishes."""
        await self.broker.stop()

    async def close(self) -> None:
        """Stop the services and the broker; nobody uses the store behind it, on no thread either,
        for the next opening writes the same files. Idempotent."""
        await self._stack.aclose()
        await asyncio.to_thread(self.broker.end_reads)
        if self._on_threads:
            await asyncio.wait(self._on_threads)

    async def _on_thread(self, call: Callable[[], _Returned]) -> _Returned:
        """What `call` returns; it goes on where this is cancelled, and `close` waits for it."""
        calling = asyncio.get_running_loop().run_in_executor(None, call)
        self._on_threads.add(calling)
        calling.add_done_callback(self._on_threads.discard)
        return await asyncio.shield(calling)

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

    async def checkpoint(self) -> None:
        """Write one. The service's turn."""
        if self.store.failed is not None:
            return
        try:
            checkpointing = self.store.begin_large_checkpoint()
            while True:
                if not checkpointing.collect(CHECKPOINT_QUEUES_A_TURN):
                    break
                await asyncio.sleep(0)
            await self._on_thread(checkpointing.run)
        except OSError as error:
            self.store.is_passing(error)
        else:
            self.store.look_again()

    async def apply_retention(self) -> None:
        """One pass: expire and delete as the topics say, and mind the disk. The service's turn."""
        topics = self._metadata.snapshot.topics.values()
        policy = RetentionPolicy(
            default_ms=DEFAULT_RETENTION_MS,
            by_topic_ms={topic.name: topic.retention_ms for topic in topics}
            | self.broker.failed_deliveries.retention_ms()
            | self._hidden()
            | {TRACE_TOPIC: self._running.config.trace_hours * 3_600_000},
        )
        renewed = asyncio.Event()
        if self.store.floor_journal.renew(lambda _error: renewed.set()):
            await renewed.wait()  # or its entries would hold the oldest segment
        await self.broker.epochs.renew()
        try:
            report = await self._on_thread(partial(self.store.apply_retention, policy))
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
            await self.checkpoint()

    def _hidden(self) -> dict[str, int]:
        """Topics that are merely missing in the metadata: nobody knows how long they are kept."""
        snapshot = self._metadata.snapshot
        known = {*snapshot.topics, *map(dead_letter_topic, snapshot.groups)}
        hidden = set(self.store.hidden_topics(known))
        kept = {*snapshot.topics, *hidden}
        hidden |= {
            retry_topic(group, topic)
            for group, topic in self.broker.consumer_journal.retried()
            if topic in hidden or (group not in snapshot.groups and topic in kept)
        }
        return dict.fromkeys(hidden, FOREVER_MS)

    async def follow_changes(self, within_s: float | None = None) -> None:
        """Act on what the metadata has anew, and on what could not be done the last time.

        What takes longer than `within_s` goes on the next time: it may wait for a replica that is
        yet to be heard of.
        """
        lifecycle, snapshot = self.broker.lifecycle, self._metadata.snapshot
        if snapshot is not self._followed or self._has_deletions or lifecycle.is_behind:
            self._has_deletions = True
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await lifecycle.carry_out_deletions()
                self._has_deletions = False
                self._followed = snapshot


def _hear_nothing(metadata: Metadata) -> None:
    """The store of a term that has ended is another's."""
    metadata.on_deletions = _pass_over


def _pass_over(_deletions: Sequence[Deletion]) -> None:
    """A term that begins looks for them itself."""


def _log_failure(error: CurlewError | None) -> None:
    if error is not None:
        _LOG.error("a flush failed: %s", error.detail)

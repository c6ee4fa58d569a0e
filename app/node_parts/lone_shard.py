"""The shard of a node that has the only replica of it: one term, as long as the node lives.

The node claims the row of the shard at its start, and leaves it at its end. One that hears that
another start leads its shard takes no more writes: both would give the same offsets to different
messages. Without the database it goes on, for nobody else can lead its shard without its log.
Event loop only.
"""

import asyncio
import logging
import secrets
import socket
from contextlib import AsyncExitStack
from typing import Final, Self

from typing_extensions import override

from app.broker.health import NodeState
from app.cluster import Beat, Claim, Event, Metadata
from app.config import Config
from app.domain.clock import Clock
from app.domain.errors import CurlewError, NotLeader
from app.domain.limits import Limits
from app.node_parts.from_config import made_directory, store_config_of, unusable_directory
from app.node_parts.own_shard import LEAVE_SECONDS, ClusterPort, OwnShard, Terms
from app.node_parts.served_term import ServedTerm, TermParts
from app.runtime.service import within
from app.store import MessageStore, OsFiles

_LOG: Final = logging.getLogger(__name__)


class LoneShard(OwnShard):
    """Made by `open`, which opens the store; then `start`, once."""

    def __init__(
        self, metadata: Metadata, state: NodeState, store: MessageStore, claim: Claim
    ) -> None:
        self.node_id = claim.node_id
        self.shard_id = claim.shard_id
        self.following = None
        self.replicas = None
        self.reads_here = None
        self._metadata = metadata
        self._state = state
        self._store = store
        self._claim = claim
        self._epoch_floor = 0
        self._term: ServedTerm | None = None

    @classmethod
    async def open(
        cls,
        config: Config,
        limits: Limits,
        clock: Clock,
        metadata: Metadata,
        state: NodeState,
        stack: AsyncExitStack,
    ) -> Self:
        """Open the store and claim its shard; both ends are on `stack`. Raises `StoreLocked`,
        `StoreUnusable`, `DataDirectoryUnusable` or `MetadataUnavailable`."""
        store = _open_store(config, limits, clock)
        stack.callback(store.close)
        shard = cls(metadata, state, store, _claim_of(config, store.store_id))
        shard._epoch_floor = await metadata.claim_shard(shard._claim)
        stack.push_async_callback(shard._leave)
        return shard

    @override
    async def start(self, parts: TermParts, terms: Terms, stack: AsyncExitStack) -> None:
        self._term = await ServedTerm.open(parts, self._store, self._epoch_floor)
        stack.push_async_callback(self._term.close)
        terms.begin_term(self._term)

    @override
    def listen_on(self, port: ClusterPort) -> None:
        """There are no other replicas."""

    @override
    async def hand_over(self) -> None:
        """To nobody."""

    @override
    async def follow(self) -> None:
        """Nothing: who leads does not change."""

    @override
    async def claim(self) -> None:
        if self._metadata.grant_id is None:
            await self._metadata.claim_shard(self._claim)

    @override
    async def tell(self) -> None:
        assert self._term is not None
        await self._metadata.lead_shard(self._claim.grant_id, self._term.broker.epochs.current)

    @override
    async def look(self, found: Beat) -> None:
        if self._is_lost(found):
            await self._tell_of_fence(found)

    async def _leave(self) -> None:
        try:
            await within(LEAVE_SECONDS, self._metadata.leave_shard(self._claim.grant_id))
        except CurlewError as error:
            _LOG.warning("the metadata does not know that the node has ended: %s", error.detail)
        except TimeoutError:
            _LOG.warning("the metadata does not know that the node has ended: it is silent")

    def _is_lost(self, found: Beat) -> bool:
        """Take no more writes when another start leads the shard, or the shard was released; True:
        from now on. A database that knows less than this node says nothing of that."""
        assert self._term is not None
        ours = self._metadata.grant_id
        if ours is None or found.grant_id == ours or self._state.other_leader is not None:
            return False
        is_older = found.grant_id is not None and found.epoch < self._term.broker.epochs.current
        if is_older or found.version < self._metadata.snapshot.version:
            return False
        shard = self._metadata.shard
        reason = f"another node leads shard {shard!r}"
        if found.grant_id is None:
            reason = f"shard {shard!r} was released"
        _LOG.error("%s: this node takes no writes any more", reason)
        self._state.other_leader = reason
        self._store.fence(reason, self._refusal)
        return True

    async def _tell_of_fence(self, found: Beat) -> None:
        assert self._term is not None
        node_id, epoch = self.node_id, self._term.broker.epochs.current
        said = str(self._state.other_leader)
        if found.grant_id is not None:
            said += f" in epoch {found.epoch}"
        try:
            event = Event("node_fenced", self._metadata.shard, node_id, epoch, said)
            await self._metadata.events.note(event)
        except CurlewError as error:
            _LOG.warning("no event of it: %s", error.detail)

    def _refusal(self) -> CurlewError:
        assert self._term is not None
        view = self._metadata.snapshot.shards.get(self._metadata.shard)
        is_new = view is not None and view.epoch > self._term.broker.epochs.current
        url = view.advertise_url if view is not None and is_new else None
        error = NotLeader(
            "the log of this node",
            self._metadata.shard,
            url,
            view.epoch if view and is_new else None,
        )
        error.outcome = "not_stored"
        return error


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


def _open_store(config: Config, limits: Limits, clock: Clock) -> MessageStore:
    try:
        root = made_directory(config)
        loop = asyncio.get_running_loop()
        return MessageStore.open(
            OsFiles(root), store_config_of(config, limits), clock, loop, limits
        )
    except OSError as error:
        raise unusable_directory(config, error) from error

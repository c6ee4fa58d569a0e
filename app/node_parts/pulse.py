"""The pulse of a node: every second one question to the database, which says what is new and
whether this node leads its shard still, and carries its sign of life. Event loop only."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from app.broker.health import NodeState
from app.cluster import Beat, Metadata
from app.domain.clock import Clock
from app.domain.errors import CurlewError
from app.node_parts.own_shard import OwnShard
from app.runtime.service import Service

_LOG: Final = logging.getLogger(__name__)

BEAT_SECONDS: Final = 1.0
"""How late, with what the look-up takes, a key that was made or revoked elsewhere is known, and a
change of topics and groups is looked up."""

RENEW_SECONDS: Final = 10.0
"""How often the lease and the sign of life are written."""

COMPARED_MS_MAX: Final = 1_000
"""A slower answer is not compared: the database may have read its clock at any moment of it."""


class Pulse:
    """One per node."""

    def __init__(
        self,
        metadata: Metadata,
        clock: Clock,
        state: NodeState,
        shard: OwnShard,
        register: Callable[[], Awaitable[None]],
        follow_keys: Callable[[], Awaitable[None]],
        follow_changes: Callable[[], Awaitable[None]],
    ) -> None:
        """`register` tells the database of the node; `follow_keys` and `follow_changes` take over
        what is new. They may raise `MetadataUnavailable`."""
        self._metadata = metadata
        self._clock = clock
        self._state = state
        self._shard = shard
        self._register = register
        self._follow_keys = follow_keys
        self._follow_changes = follow_changes
        self._renewed_s = float("-inf")
        self._version = 0
        """Of the metadata, as was last heard."""
        self._beat_problem: str | None = None
        self._change_problem: str | None = None
        self.is_registered = False
        self.beating = Service("beat", BEAT_SECONDS, self.beat)
        self.changes = Service("metadata refresh", BEAT_SECONDS, self.change)

    async def beat(self) -> None:
        """Ask, and act on the answer. The service's turn."""
        now_s = self._clock.monotonic_s()
        renews = now_s - self._renewed_s >= RENEW_SECONDS
        try:
            before_ms = self._clock.now_ms()
            found = await self._ask(renews=renews)
            if renews:
                self._renewed_s = now_s
            self._compare_clocks(found, before_ms)
            await self._shard.look(found)
            is_current = self._metadata.principals.is_current(found.policy_version)
            if not is_current or self._state.policy_problem is not None:
                await self._follow_keys()
            if renews and not (found.is_registered and self.is_registered):
                await self._register_again()
        except CurlewError as error:
            self._note_problem(error)
            return
        self._beat_problem = self._regress_of(found)
        self._show_problem()
        self._version = found.version
        if found.version > self._metadata.snapshot.version:
            self.changes.wake()

    async def _ask(self, *, renews: bool) -> Beat:
        """Without room for a sign of life what is new can be heard all the same."""
        node_id = self._shard.node_id
        if renews:
            try:
                return await self._metadata.beat(node_id)
            except CurlewError as error:
                _LOG.warning("no heartbeat: %s", error.detail)
        return await self._metadata.beat(node_id, renews=False)

    async def _register_again(self) -> None:
        try:
            await self._register()
        except CurlewError as error:
            _LOG.warning("the node is not registered yet: %s", error.detail)

    async def change(self) -> None:
        """Take over what others changed, if there is something. The service's turn."""
        try:
            if self._version > self._metadata.snapshot.version:
                await self._metadata.refresh()
            await self._follow_changes()
        except CurlewError as error:
            self._change_problem = self._told(error)
        else:
            self._change_problem = None
        self._show_problem()

    def _note_problem(self, error: CurlewError) -> None:
        self._beat_problem = self._told(error)
        self._show_problem()

    def _told(self, error: CurlewError) -> str:
        """What is the matter, which the log has once."""
        problem = f"the metadata is not refreshed: {error.detail}"
        if problem != self._state.metadata_problem:
            why = getattr(error, "for_log", None) or error.detail
            _LOG.warning("the metadata is not refreshed: %s", why)
        return problem

    def _show_problem(self) -> None:
        self._state.metadata_problem = self._beat_problem or self._change_problem

    def _compare_clocks(self, found: Beat, before_ms: int) -> None:
        """Where the answer came soon enough to say something of them."""
        after_ms = self._clock.now_ms()
        if found.clock_ms is not None and 0 <= after_ms - before_ms < COMPARED_MS_MAX:
            self._state.clock.saw(before_ms, after_ms, found.clock_ms)

    def _regress_of(self, found: Beat) -> str | None:
        """That the database is older than what this node knows; None: it is not."""
        known = self._metadata.snapshot.version
        if found.version >= known:
            return None
        return (
            f"the metadata database is an older copy: it knows {found.version} changes, this node"
            f" {known}"
        )

"""The metadata of the cluster: the one door to SQL for broker, API and node.

The data plane reads `snapshot`, a plain attribute; everything else awaits the database. A change
is in the database before it is in the snapshot, and the snapshot never goes back to an older
version. Event loop only. Any method may raise `MetadataUnavailable`; then nothing was changed, or,
when the connection broke at the commit, it is unknown: all changes may be repeated.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.access.access_changes import AccessChanges
from app.cluster.metadata.access.policies import Policies
from app.cluster.metadata.access.principals import Principals
from app.cluster.metadata.audit.audit_trail import AuditTrail
from app.cluster.metadata.consumers import committed_offsets as offsets
from app.cluster.metadata.consumers.memberships import Memberships
from app.cluster.metadata.consumers.offset_snapshots import OffsetSnapshots
from app.cluster.metadata.database.config import ClusterConfig
from app.cluster.metadata.database.database import Database
from app.cluster.metadata.database.failures import DatabaseFull
from app.cluster.metadata.listing import Page, Wanted, page_of
from app.cluster.metadata.nodes import beats, nodes, shards, shared_secrets, stored_settings
from app.cluster.metadata.nodes.beats import Beat
from app.cluster.metadata.nodes.cluster_events import ClusterEvents
from app.cluster.metadata.nodes.replica_sets import ReplicaSets
from app.cluster.metadata.nodes.shard_drains import ShardDrains
from app.cluster.metadata.nodes.shard_rows import ShardRows
from app.cluster.metadata.nodes.shards import Claim
from app.cluster.metadata.schema.schema import check_file, check_schema
from app.cluster.metadata.snapshot import (
    ClusterSnapshot,
    GroupView,
    NamespaceView,
    NodeView,
    StoredSettings,
    TopicView,
)
from app.cluster.metadata.tables import (
    consumptions,
    deletions,
    first_uses,
    group_subscriptions,
    namespaces,
    versions,
)
from app.cluster.metadata.tables.groups import GROUPS
from app.cluster.metadata.tables.schedules import Schedules
from app.cluster.metadata.tables.topics import TOPICS, load_drains, load_places
from app.cluster.metadata.topics_and_groups import NamedSettings, Surroundings, note_change
from app.domain.access.caller import OPEN, Caller, Known
from app.domain.access.standing import Visible, every
from app.domain.changes.conditions import Changed, Terms
from app.domain.changes.merging import Named
from app.domain.clock import Clock
from app.domain.consumers.consumption import SubscriptionPair
from app.domain.errors import GroupNotFound, TopicNotFound
from app.domain.identity import Deletion, Kind
from app.domain.limits import Limits
from app.domain.names import (
    check_group,
    check_namespace,
    check_topic,
)
from app.domain.positions import CommittedOffset
from app.domain.settings import (
    GroupSettings,
    TopicSettings,
    check_group_settings,
    check_topic_settings,
    default_group_settings,
    default_topic_settings,
)
from app.domain.shards.takes import Takes
from app.runtime.secure.secret_key import SecretKey

_LOG: Final = logging.getLogger(__name__)


def _pass(_: Sequence[Deletion]) -> None:
    """Nobody has anything of it."""


class Metadata:
    """Open it, use it from one event loop, close it."""

    def __init__(
        self, database: Database, clock: Clock, limits: Limits, config: ClusterConfig
    ) -> None:
        self.members = Memberships(database, clock, limits)
        self.offset_snapshots = OffsetSnapshots(database, clock, limits)
        self.first_uses = first_uses.FirstUses(database, clock)
        self.consumptions = consumptions.Consumptions(database, clock, lambda: self.shard)
        self.schedules = Schedules(database, clock, limits, config.schedules_owned_max)
        access = AccessChanges(database, clock)
        self.principals = Principals(access, limits)
        self.policies = Policies(access, limits, self.principals.refresh)
        self.audit = AuditTrail(database, clock)
        self.events = ClusterEvents(database)
        self.replica_sets = ReplicaSets(database, self._joined)
        self.shard_drains = ShardDrains(database, self.refresh)
        self._carried = beats.CarriedBeats(clock)
        self.principals.audit = self.schedules.audit = self.audit
        self._database = database
        self._clock = clock
        self._limits = limits
        around = Surroundings(
            database, clock, limits, self.audit, lambda: self.snapshot, self._show
        )
        self._topics = NamedSettings(
            TOPICS,
            around,
            config.topics_owned_max,
            check_topic,
            lambda: default_topic_settings(limits, config.default_flush),
            check_topic_settings,
            lambda name: TopicNotFound(f"there is no topic {name!r}"),
            lambda snapshot: snapshot.topics,
            ClusterSnapshot.with_topic,
            ClusterSnapshot.without_topic,
            self._placed,
        )
        self._groups = NamedSettings(
            GROUPS,
            around,
            config.groups_owned_max,
            check_group,
            lambda: default_group_settings(limits),
            check_group_settings,
            lambda name: GroupNotFound(f"there is no consumer group {name!r}"),
            lambda snapshot: snapshot.groups,
            ClusterSnapshot.with_group,
            ClusterSnapshot.without_group,
        )
        self.shard = shards.UNCLAIMED
        """The one of this node, once it is claimed."""
        self.grant_id: bytes | None = None
        """By which this node leads it; None: that is not entered."""
        self.on_deletions: Callable[[Sequence[Deletion]], None] = _pass
        """Told of what this shard has not carried out, in the turn in which the snapshot lacks it
        or has a successor."""
        self.snapshot = ClusterSnapshot()
        """What is known now; to be read only. No property: each request asks several times."""

    @classmethod
    async def open(cls, config: ClusterConfig, clock: Clock, limits: Limits | None = None) -> Self:
        """Connect, check that the schema is this program's, and load the first snapshot.

        Never migrates; raises `SchemaMismatch` that says what to run. On a full disk a SQLite file
        is opened for this process alone; then changes fail until there is room.
        """
        try:
            return await cls._open(Database(config), config, clock, limits)
        except DatabaseFull as error:
            _LOG.warning("%s; it is opened for this process alone", error.for_log)
        return await cls._open(Database(config, is_alone=True), config, clock, limits)

    @classmethod
    async def _open(
        cls, database: Database, config: ClusterConfig, clock: Clock, limits: Limits | None
    ) -> Self:
        try:
            check_file(database.address)
            async with database.reading() as connection:
                await check_schema(connection, database.address)
            metadata = cls(database, clock, limits or Limits(), config)
            await metadata._load()
            await metadata.principals.refresh()
        except BaseException:
            await database.close()
            raise
        return metadata

    async def close(self) -> None:
        await self._database.close()

    def caller(self, principal: str | None) -> Caller:
        """Who has the rights of a principal at any moment; None, and on an open node: anybody."""
        if principal is None or not self.principals.keyring.is_closed:
            return OPEN
        return Known(self.principals, principal)

    async def refresh(self) -> bool:
        """Take over what other nodes changed; say whether there was anything."""
        async with self._database.reading() as connection:
            version = await versions.current(connection)
        if version <= self.snapshot.version:
            return False
        await self._load()
        return True

    # Topics

    async def change_topic(
        self, name: str, named: Named, terms: Terms | None = None
    ) -> Changed[TopicView]:
        """Make a topic, or merge what is named into it; what changes nothing writes nothing."""
        return await self._topics.change(name, named, terms or Terms())

    async def put_topic(
        self,
        name: str,
        settings: TopicSettings,
        *,
        if_version: int | None = None,
        generation: int = 0,
    ) -> tuple[TopicView, bool]:
        """Make a topic, or give it all these settings; say whether it was made.

        `if_version=0`: only make it.
        """
        return await self._topics.put(name, settings, if_version, generation)

    async def ensure_topic(self, name: str, *, generation: int = 0) -> TopicView:
        """The topic; made with the defaults when there is none."""
        return await self._topics.ensure(name, generation)

    async def delete_topic(self, name: str, terms: Terms | None = None) -> TopicView:
        """Delete a topic with the offsets that groups have in it, or raise `TopicNotFound`."""
        return await self._topics.delete(name, terms or Terms())

    def list_topics(
        self,
        *,
        namespace: str = "",
        prefix: str = "",
        page_size: int = 100,
        page_token: str | None = None,
        visible: Visible = every,
    ) -> Page[TopicView]:
        """Topics of a namespace by name, from the snapshot."""
        return self._topics.page(namespace, prefix, page_size, page_token, visible)

    # Consumer groups

    async def change_group(
        self, name: str, named: Named, terms: Terms | None = None
    ) -> Changed[GroupView]:
        """Make a group, or merge what is named into it; what changes nothing writes nothing."""
        return await self._groups.change(name, named, terms or Terms())

    async def put_group(
        self,
        name: str,
        settings: GroupSettings,
        *,
        if_version: int | None = None,
        generation: int = 0,
    ) -> tuple[GroupView, bool]:
        """Make a group, or give it all these settings; say whether it was made.

        `if_version=0`: only make it.
        """
        return await self._groups.put(name, settings, if_version, generation)

    async def ensure_group(self, name: str, *, generation: int = 0) -> GroupView:
        """The group; made with the defaults when there is none. Offsets need a group."""
        return await self._groups.ensure(name, generation)

    async def delete_group(self, name: str, terms: Terms | None = None) -> GroupView:
        """Delete a group with the offsets that it has, or raise `GroupNotFound`."""
        return await self._groups.delete(name, terms or Terms())

    def list_groups(
        self,
        *,
        namespace: str = "",
        prefix: str = "",
        page_size: int = 100,
        page_token: str | None = None,
        visible: Visible = every,
    ) -> Page[GroupView]:
        """Groups of a namespace by name, from the snapshot."""
        return self._groups.page(namespace, prefix, page_size, page_token, visible)

    async def change_subscription(
        self,
        pair: SubscriptionPair,
        step: group_subscriptions.Step,
        *,
        is_dry_run: bool = False,
    ) -> None:
        """Keep what `step` makes of the filter that an operator has set for a group in a topic.
        Raises what it raises, `GroupNotFound`, `TopicNotFound` and `StateConflict`."""
        async with self._database.transaction(is_dry_run=is_dry_run) as connection:
            done = await group_subscriptions.change(connection, pair, step, self._limits)
        if done is not None and not is_dry_run:
            kept, version = done
            names = pair.group, pair.topic
            await self._show(version, lambda now: now.with_subscription(*names, kept, version))

    # Namespaces

    async def put_namespace(self, name: str, terms: Terms | None = None) -> Changed[NamespaceView]:
        """Make a namespace, or leave it as it is."""
        check_namespace(name)
        terms = terms or Terms()
        async with self._database.transaction(is_dry_run=terms.is_dry_run) as connection:
            changed = await namespaces.put(connection, name, terms, self._clock.now_ms())
            resource = f"namespace:{name}"
            await note_change(self.audit, connection, resource, changed.before, changed.after)
        if not terms.is_dry_run:
            after = changed.after
            await self._show(after.version, lambda now: now.with_namespace(after))
        return changed

    async def delete_namespace(self, name: str, terms: Terms | None = None) -> NamespaceView:
        """Delete a namespace; raises `NamespaceNotFound`, and `NamespaceNotEmpty` when a topic,
        group or schedule is in it."""
        check_namespace(name)
        terms = terms or Terms()
        async with self._database.transaction(is_dry_run=terms.is_dry_run) as connection:
            view, version = await namespaces.remove(connection, name, terms)
            await note_change(self.audit, connection, f"namespace:{name}", view, None)
        if not terms.is_dry_run:
            await self._show(version, lambda now: now.without_namespace(name, version))
        return view

    def list_namespaces(
        self,
        *,
        prefix: str = "",
        page_size: int = 100,
        page_token: str | None = None,
        visible: Visible = every,
    ) -> Page[NamespaceView]:
        """Namespaces by name, from the snapshot; the default one has no row."""
        size_max = self._limits.page_size_max
        wanted = Wanted("", prefix)
        known = self.snapshot.namespaces
        return page_of(known, wanted, page_size, page_token, size_max, visible)

    # Committed offsets

    async def load_offsets(self, group: str | None = None) -> list[CommittedOffset]:
        """All committed offsets of the cluster, or of one group."""
        async with self._database.reading() as connection:
            return await offsets.load(connection, group)

    async def commit_offsets(
        self, rows: Sequence[CommittedOffset], *, force: bool = False
    ) -> list[CommittedOffset]:
        """Store all rows in one transaction; an offset never goes back unless forced.

        Returns the rows that were left out because their group or topic does not exist (any more).
        """
        if not rows:
            return []
        async with self._database.transaction() as connection:
            return await offsets.commit(connection, rows, force=force, now_ms=self._clock.now_ms())

    async def replace_offsets(self, rows: Sequence[CommittedOffset]) -> None:
        """Store the rows, and forget all others: those are of another store's messages."""
        async with self._database.transaction() as connection:
            await offsets.remove_all(connection)
            await offsets.commit(connection, rows, force=True, now_ms=self._clock.now_ms())

    async def delete_offsets(
        self,
        group: str,
        topic: str,
        first_use_ms: int | None = None,
        *,
        elsewhere: Collection[int] = (),
    ) -> None:
        """Forget the group's offsets in the topic, but for those of the queues `elsewhere`, which
        other shards forget, and its first use where that was then."""
        async with self._database.transaction() as connection:
            await offsets.remove(connection, group, topic, elsewhere)
            if first_use_ms is not None:
                await first_uses.remove(connection, group, topic, first_use_ms)

    # Deletions and identity

    async def deletions(self) -> list[Deletion]:
        """What was deleted and not carried out by this shard, as far as is known here."""
        async with self._database.reading() as connection:
            return await deletions.load(connection, self.shard)

    async def carried_out(self, deletion: Deletion) -> None:
        """The store knows of it for ever: forget it, for this shard."""
        async with self._database.transaction() as connection:
            await deletions.forget(connection, deletion, self.shard)

    async def set_generation(self, kind: Kind, name: str, generation: int, was: int) -> bool:
        """Give a topic or group the generation that the store knows it by. False: it has not the
        generation `was`, or is not there, and nothing is changed. The snapshot is the newest
        then."""
        table = TOPICS if kind is Kind.TOPIC else GROUPS
        async with self._database.transaction() as connection:
            is_set = await table.set_generation(connection, name, generation, was)
        await self._load()
        return is_set

    async def claim_shard(self, asked: Claim) -> int:
        """Lead the shard of a store from now on; the newest epoch that the database knows of it.

        Raises `ForeignStore` when the name is another store's, or the database, if it is a file of
        SQLite. A database without room keeps what it has.
        """
        is_alone = self._database.address.sqlite_file is not None
        try:
            async with self._database.transaction() as connection:
                now_ms = self._clock.now_ms()
                self.shard = await shards.claim(connection, asked, now_ms, is_alone=is_alone)
            self.grant_id = asked.grant_id
        except DatabaseFull:
            async with self._database.reading() as connection:
                found = await shards.find(connection, asked.shard_id)
            if found is None:
                raise
            self.shard = found
        await self._load()
        shard = self.snapshot.shards.get(self.shard)
        return 0 if shard is None else shard.epoch

    async def _joined(self, shard: str) -> None:
        """This node has a replica of the shard. By which grant it leads is its replica's matter."""
        self.shard = shard
        await self._load()

    def shard_rows(self, node_id: str) -> ShardRows:
        """The row of the shard that this node has joined, for its replica; what it asks brings the
        node's beats."""
        return ShardRows(self._database, self.shard, node_id, self._carried)

    async def lead_shard(self, grant_id: bytes, epoch: int) -> None:
        """Tell the others in which epoch the shard is led and where; it is known here at once."""
        async with self._database.transaction() as connection:
            before, after = await shards.lead(connection, self.shard, grant_id, epoch)
            found = await shards.load(connection)
        if before == self.snapshot.version:
            self.snapshot = self.snapshot.with_shards(found, after)
        else:
            await self._load()

    async def leave_shard(self, grant_id: bytes) -> None:
        """This start leads the shard no more. SQLite has one store, and nobody asks."""
        if self._database.address.sqlite_file is not None:
            return
        async with self._database.transaction() as connection:
            await shards.leave(connection, self.shard, grant_id)

    async def release_shard(self, name: str | None = None) -> tuple[str, bytes] | None:
        """Let the next new store that starts have the queues of a shard, by default the only one;
        its name and store. Raises `ForeignStore` when there are several."""
        async with self._database.transaction() as connection:
            return await shards.release(connection, name)

    # Nodes, settings and secrets

    async def change_settings(
        self, named: Mapping[str, str | None], terms: Terms | None = None
    ) -> Changed[StoredSettings]:
        """Keep settings for all nodes, as text; None: their default."""
        terms = terms or Terms()
        async with self._database.transaction(is_dry_run=terms.is_dry_run) as connection:
            changed = await stored_settings.change(connection, named, terms, self._clock.now_ms())
        if not terms.is_dry_run and changed.after is not changed.before:
            after = changed.after
            version = after.version - 1
            await self._show(version, lambda now: now.with_settings(after, version))
        return changed

    async def register_node(self, node: NodeView) -> None:
        """Enter this node as of now, or replace what its last start entered."""
        node = replace(node, seen_ms=self._clock.now_ms())
        async with self._database.transaction() as connection:
            await nodes.register(connection, node)

    async def beat(self, node_id: str, *, renews: bool = True) -> Beat:
        """Hear what is new, and whether this node leads its shard; with `renews` also give a sign
        of life and renew the lease of a shard without replicas. One statement on PostgreSQL, and
        none where a replica's question has brought the answer within the last second."""
        carried = None if renews else self._carried.fresh()
        if carried is not None and carried.version >= self.snapshot.version:
            return carried  # an older one, from before a refresh, would tell of an older database
        now_ms = self._clock.now_ms()
        if renews and self._database.address.sqlite_file is not None:
            async with self._database.transaction() as connection:
                await nodes.heartbeat(connection, node_id, now_ms)
        async with self._database.asking() as connection:
            grant_id = self.grant_id or b""
            return await beats.beat(
                connection, node_id, self.shard, grant_id, now_ms, renews=renews
            )

    async def list_nodes(self) -> list[NodeView]:
        """All nodes that ever registered, by id."""
        async with self._database.reading() as connection:
            return await nodes.load(connection)

    async def secret(self, name: str) -> bytes:
        """32 random bytes, the same on every node; made by the first that asks."""
        async with self._database.transaction() as connection:
            return await shared_secrets.get_or_create(connection, name, self._clock.now_ms())

    async def claim_secret_key(self, key: SecretKey | None) -> None:
        """Bind the cluster to its secret key. Raises `OtherSecretKey` when it has another."""
        fingerprint = None if key is None else key.fingerprint
        async with self._database.transaction() as connection:
            await shared_secrets.claim_key(connection, fingerprint, self._clock.now_ms())

    async def accept_secret_key(self, key: SecretKey | None) -> None:
        """Take a key for the cluster's, in the place of the one before."""
        fingerprint = None if key is None else key.fingerprint
        async with self._database.transaction() as connection:
            await shared_secrets.accept_key(connection, fingerprint, self._clock.now_ms())

    # The snapshot

    async def _show(
        self, version: int, change: Callable[[ClusterSnapshot], ClusterSnapshot]
    ) -> None:
        """Put a committed change into the snapshot. When changes of others lie between, which
        only the database knows, read everything again."""
        if version == self.snapshot.version + 1:
            self.snapshot = change(self.snapshot)
        elif version > self.snapshot.version:
            await self._load()

    async def _placed(self, connection: AsyncConnection, topic: TopicView) -> TopicView:
        """The topic with the shards of its queues."""
        places = await load_places(connection, self.shard, topic.name)
        return self._with_places(topic, places, await load_drains(connection))

    def _with_places(
        self,
        topic: TopicView,
        places: Mapping[str, tuple[str, ...]],
        drains: tuple[tuple[str, Takes], ...],
    ) -> TopicView:
        found = places.get(topic.name)
        if found is None:
            return topic
        return replace(topic, shards=found, here=self.shard, drains=drains)

    async def _load(self) -> None:
        async with self._database.reading() as connection:
            places = await load_places(connection, self.shard)
            drains = await load_drains(connection)
            loaded = ClusterSnapshot.of(
                [self._with_places(each, places, drains) for each in await TOPICS.load(connection)],
                await GROUPS.load(connection),
                await versions.current(connection),
                await namespaces.load(connection),
                await stored_settings.load(connection),
                await shards.load(connection),
                await group_subscriptions.load(connection),
            )
            deleted = await deletions.load(connection, self.shard)
        # While we were reading, a change of our own may have brought a newer one.
        if loaded.version >= self.snapshot.version:
            self.snapshot = loaded
            if deleted:
                self.on_deletions(deleted)

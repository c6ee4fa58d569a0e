"""What HTTP needs of the cluster's metadata beside what the broker needs of it: listings.

Declared by its user, because tests have metadata in memory; the real one fits structurally.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from typing_extensions import override

from app.broker import ports as broker_ports
from app.broker.health import Condition
from app.broker.ports import Group, QueueRecords, Topic
from app.cluster import (
    AuditTrail,
    ClusterEvents,
    DrainChange,
    NamespaceView,
    NodeView,
    Page,
    ShardView,
    WithoutReplica,
)
from app.domain.access.accounts import Account, PrincipalSettings, StoredPolicy
from app.domain.access.actions import Kind
from app.domain.access.keyring import Keyring
from app.domain.access.keys import NewKey
from app.domain.access.policies import Policy
from app.domain.access.standing import Visible, every
from app.domain.changes.conditions import Changed, Terms
from app.domain.positions import TimestampMs
from app.domain.shards.takes import Takes
from app.replica.unclean import UncleanLoss
from app.store import LogFigures

SettingValue = str | int | bool | list[str] | None


class SettingInUse(NamedTuple):
    """A setting as the node runs with it. Values as JSON has them; secrets are left out of them."""

    name: str
    value: SettingValue
    default: SettingValue
    source: str
    changeable: bool


class SettingsPatch(NamedTuple):
    """What a change of settings did on this node, or would do."""

    settings: Sequence[SettingInUse]
    """All, after it."""
    changed: dict[str, tuple[SettingValue, SettingValue]]
    """Before and after, of those whose value is another one now."""
    overruled: list[str]
    """What is stored and does not count here: the node's own sources outweigh it."""


class Configuration(Protocol):
    """The settings of the node, and those that change while it runs."""

    @property
    def version(self) -> int:
        """Of what is stored."""

    def settings(self) -> Sequence[SettingInUse]: ...

    async def change(self, named: Mapping[str, object], terms: Terms) -> SettingsPatch:
        """Store and apply; None: no stored value. Raises `IllegalSetting`, `SettingFixed` and
        `PreconditionFailed`."""
        ...


class Following(Protocol):
    """What a node that leads nothing knows of itself."""

    def obstacles(self) -> Sequence[Condition]:
        """Why it should get no requests; empty when it should."""
        ...

    def troubles(self) -> Sequence[Condition]:
        """What an operator should look at although requests are carried on."""
        ...

    def is_made_by_use(self, kind: Kind) -> bool:
        """Whether naming one that is not there makes it."""
        ...


class Follower(Protocol):
    """Another replica, as the leader of its shard sees it."""

    @property
    def node(self) -> str: ...
    @property
    def is_connected(self) -> bool: ...
    @property
    def written(self) -> int | None:
        """Where its log ends; None: it has said nothing in this term."""
        ...

    @property
    def lag_bytes(self) -> int | None:
        """None: it has said nothing in this term."""
        ...

    @property
    def lag_ms(self) -> int: ...
    @property
    def out_ms(self) -> int | None:
        """Since when it is not in sync, at the earliest since the term began; None: it is."""
        ...

    @property
    def why_not(self) -> str | None: ...


class OwnReplica(NamedTuple):
    """The replica of this node, as it was at its last tick."""

    shard: str
    node: str
    leads: bool
    knows_leader: bool
    epoch: int
    """The newest that it has promised."""
    written_end: int
    high_watermark: int
    """The end of what is confirmed, as far as it has heard."""
    in_sync: Sequence[str]
    """Nodes that have all that is confirmed."""
    lacking_count: int
    """So many more would have to answer before sends are taken; 0 while it does not lead."""
    given_up_bytes: int = 0
    """Cut off its log since the node started, as an unclean election had given them up."""
    damaged_places: int = 0
    """Of its log, which are known and not put right yet."""
    repaired_bytes: int = 0
    """Of its log, that were put right from another replica since it began."""


class Replicas(Protocol):
    """The replica of this node, and of the others what a leader knows."""

    async def elect_unclean(self, by: str, *, is_dry_run: bool) -> UncleanLoss:
        """Begin to lead although this replica is not in sync, as `by` has asked, where that may be;
        what it gives up. Raises `UncleanElectionRefused`, `ShardUnavailable`."""
        ...

    async def begin_anew(self, by: str, *, keeps_log: bool, is_dry_run: bool) -> WithoutReplica:
        """Throw away what this replica has, and copy it from the leader, as `by` has asked;
        `keeps_log`: all but the log. It has begun when this returns. Raises `ReplicaNeeded`,
        `ReplicaNotFound`, `ShardUnavailable`, `MetadataUnavailable`."""
        ...

    def own(self) -> OwnReplica: ...

    def log_figures(self) -> LogFigures | None:
        """Of the log of this replica; None: it is not open."""
        ...

    def followers(self) -> Sequence[Follower]:
        """As they were at the last tick; none, while this node does not lead."""
        ...

    def successor(self, node: str | None) -> str:
        """The node that would lead after a hand-over, that of the leader where nothing would
        change. Raises `HandOverRefused`."""
        ...

    def hand_over_to(self, node: str, by: str) -> None:
        """Begin to hand the shard over, as `by` has asked. It ends by itself: the node leads, or
        the one before leads again."""
        ...


class ReplicaSets(Protocol):
    """Which nodes have a replica of a shard."""

    async def leave(
        self, shard: str, node_id: str, by: str = "", *, is_dry_run: bool = False
    ) -> WithoutReplica:
        """Take a replica out for good, as `by` has asked. Raises `ReplicaNotFound`,
        `ReplicaNeeded`."""
        ...


class ShardDrains(Protocol):
    """What shards take of new messages."""

    async def change(
        self, shard: str, takes: Takes, by: str = "", *, is_dry_run: bool = False
    ) -> DrainChange:
        """Have a shard take so much, as `by` has asked. Raises `ShardNotFound`, `DrainRefused`."""
        ...


class FollowedStore(QueueRecords, Protocol):
    """The replica of this node, as far as all in it is confirmed."""

    @property
    def store_id(self) -> bytes: ...

    def begin(self, topic: str, generation: int) -> int | None:
        """Begin to read this generation of a topic; `end` takes the number. None: not now."""
        ...

    def end(self, turn: int) -> bool:
        """Whether what was read since may be given out."""
        ...


class ReadsHere(Protocol):
    """What may be read on a node that does not lead its shard."""

    @property
    def readers(self) -> Executor:
        """Threads for reads that wait for the disk."""
        ...

    @property
    def hears_leader(self) -> bool:
        """Whether somebody leads the shard, as far as this node knows."""
        ...

    def readable(self, *, is_stale: bool) -> FollowedStore | None:
        """What is as the leader has it, but for the end; `is_stale`: whatever was confirmed when
        the replica was in sync last. None: nothing."""
        ...


class Snapshot(broker_ports.Snapshot, Protocol):
    """What the broker needs of the metadata at one moment, and the namespaces."""

    @property
    def namespaces(self) -> Mapping[str, NamespaceView]: ...
    @property
    def shards(self) -> Mapping[str, ShardView]: ...
    @property
    def version(self) -> int: ...


class Principals(Protocol):
    """Principals, their keys, and what is known of who may do what."""

    @property
    def keyring(self) -> Keyring: ...

    def now_ms(self) -> int: ...

    async def refresh(self) -> None: ...

    async def get(self, name: str) -> Account: ...

    async def listed(
        self, *, prefix: str = "", page_size: int = 100, page_token: str | None = None
    ) -> Page[Account]: ...

    async def put(
        self, name: str, settings: PrincipalSettings, terms: Terms | None = None
    ) -> Changed[Account]: ...

    async def remove(self, name: str, terms: Terms | None = None) -> Account: ...

    async def rotate(
        self,
        name: str,
        expires_ms: TimestampMs | None,
        *,
        known_keys: Collection[str] | None = None,
        is_dry_run: bool = False,
    ) -> NewKey: ...

    async def revoke(
        self, name: str, key_id: str | None = None, *, is_dry_run: bool = False
    ) -> int: ...


class Policies(Protocol):
    """Policies by name."""

    async def get(self, name: str) -> StoredPolicy: ...

    async def listed(
        self, *, prefix: str = "", page_size: int = 100, page_token: str | None = None
    ) -> Page[StoredPolicy]: ...

    async def put(self, policy: Policy, terms: Terms | None = None) -> Changed[StoredPolicy]: ...

    async def remove(self, name: str, terms: Terms | None = None) -> StoredPolicy: ...


class Metadata(broker_ports.Metadata, Protocol):
    """The cluster's metadata: what the broker needs of it, namespaces, and listings."""

    @property
    @override
    def snapshot(self) -> Snapshot: ...

    @property
    def shard(self) -> str:
        """The one of this node."""
        ...

    def list_topics(
        self,
        *,
        namespace: str = "",
        prefix: str = "",
        page_size: int = 100,
        page_token: str | None = None,
        visible: Visible = every,
    ) -> Page[Topic]: ...

    def list_groups(
        self,
        *,
        namespace: str = "",
        prefix: str = "",
        page_size: int = 100,
        page_token: str | None = None,
        visible: Visible = every,
    ) -> Page[Group]: ...

    def list_namespaces(
        self,
        *,
        prefix: str = "",
        page_size: int = 100,
        page_token: str | None = None,
        visible: Visible = every,
    ) -> Page[NamespaceView]: ...

    async def put_namespace(self, name: str, terms: Terms | None = None) -> Changed[NamespaceView]:
        """Make a namespace, or leave it as it is."""
        ...

    async def delete_namespace(self, name: str, terms: Terms | None = None) -> NamespaceView:
        """Raises `NamespaceNotFound`, and `NamespaceNotEmpty` when something is in it."""
        ...

    async def list_nodes(self) -> Sequence[NodeView]: ...

    @property
    def audit(self) -> AuditTrail: ...

    @property
    def events(self) -> ClusterEvents: ...

    @property
    def replica_sets(self) -> ReplicaSets: ...

    @property
    def shard_drains(self) -> ShardDrains: ...

    @property
    def principals(self) -> Principals: ...

    @property
    def policies(self) -> Policies: ...

"""What nodes share: the metadata in SQL (`metadata`), and how replicas agree (`replication`).

The metadata are topics, groups, offsets, nodes and who may do what; no other package imports
sqlalchemy. Outside this package use of it what is named here, and nothing deeper.
"""

from app.cluster.metadata.access.access_changes import regressed
from app.cluster.metadata.audit.audit_rows import Head, Sought
from app.cluster.metadata.audit.audit_trail import AuditPage, AuditTrail
from app.cluster.metadata.audit.chain import AuditEntry, Finding
from app.cluster.metadata.database.address import shown_database, sqlite_file_of
from app.cluster.metadata.database.config import ClusterConfig
from app.cluster.metadata.database.failures import DatabaseFull
from app.cluster.metadata.listing import Page
from app.cluster.metadata.metadata import Metadata
from app.cluster.metadata.nodes.beats import Beat
from app.cluster.metadata.nodes.cluster_events import ClusterEvent, ClusterEvents, Event
from app.cluster.metadata.nodes.replica_sets import (
    JoinRequest,
    ReplicaRefused,
    ReplicaSet,
    WithoutReplica,
)
from app.cluster.metadata.nodes.row_questions import RowQuestions
from app.cluster.metadata.nodes.shard_drains import DrainChange
from app.cluster.metadata.nodes.shard_rows import ShardRows
from app.cluster.metadata.nodes.shards import Claim, ForeignStore
from app.cluster.metadata.schema.migration import Migrated, migrate, migrate_new
from app.cluster.metadata.snapshot import (
    ClusterSnapshot,
    GroupView,
    NamespaceView,
    NodeView,
    ReplicaMember,
    ShardView,
    TopicView,
)
from app.domain.positions import CommittedOffset

__all__ = [
    "AuditEntry",
    "AuditPage",
    "AuditTrail",
    "Beat",
    "Claim",
    "ClusterConfig",
    "ClusterEvent",
    "ClusterEvents",
    "ClusterSnapshot",
    "CommittedOffset",
    "DatabaseFull",
    "DrainChange",
    "Event",
    "Finding",
    "ForeignStore",
    "GroupView",
    "Head",
    "JoinRequest",
    "Metadata",
    "Migrated",
    "NamespaceView",
    "NodeView",
    "Page",
    "ReplicaMember",
    "ReplicaRefused",
    "ReplicaSet",
    "RowQuestions",
    "ShardRows",
    "ShardView",
    "Sought",
    "TopicView",
    "WithoutReplica",
    "migrate",
    "migrate_new",
    "regressed",
    "shown_database",
    "sqlite_file_of",
]

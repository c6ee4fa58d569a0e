"""The tables of the metadata database, for SQLite and PostgreSQL alike.

Times are epoch milliseconds. A change here needs a new file in `migrations/versions`; a test
compares the two. Constraints have names, because a migration can only drop what has one.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

NAME = String(255)
"""Client names have 127 characters; retry and dead-letter names put a prefix before one."""

NUL = "\0"
"""No text of PostgreSQL has one, not even to be compared with: what has one is not there."""


def _of_topic() -> Column[str]:
    """Part of the key of what goes with its topic."""
    return Column("topic", NAME, ForeignKey("topics.name", ondelete="CASCADE"), primary_key=True)


def _of_group() -> Column[str]:
    """Part of the key of what goes with its group."""
    row = ForeignKey("consumer_groups.name", ondelete="CASCADE")
    return Column("consumer_group", NAME, row, primary_key=True)


topics = Table(
    "topics",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("queues", Integer, nullable=False),
    Column("type", String(32), nullable=False),
    Column("flush", String(32), nullable=False),
    Column("retention_ms", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("trace_mode", String(32), nullable=False, server_default="on"),
    Column("trace_rate", Float, nullable=False, server_default="0.01"),
    Column("permission", String(32), nullable=False, server_default="rw"),
    Column("write_queues", Integer, nullable=True, comment="null: all"),
    Column("max_body_bytes", BigInteger, nullable=True),
    Column("max_rate", BigInteger, nullable=True, comment="messages a second"),
    Column("max_stored_bytes", BigInteger, nullable=True),
    Column(
        "first_queues",
        Integer,
        nullable=False,
        server_default="1",
        comment="when it was made; homes of producers and keys are by this number",
    ),
    Column("owner", NAME, nullable=True, index=True, comment="the principal that made it"),
    Column("replication", String(32), nullable=True, comment="sync or async; null: by the shard"),
    CheckConstraint("queues > 0", name="queues_positive"),
    CheckConstraint("retention_ms > 0", name="retention_positive"),
)

topic_queues = Table(
    "topic_queues",
    metadata,
    _of_topic(),
    Column("generation", BigInteger, primary_key=True, autoincrement=False),
    Column("queue_id", Integer, primary_key=True, autoincrement=False),
    Column("perm", String(32), nullable=False, comment="rw, r, w or none"),
    Column("shard", NAME, nullable=False, server_default=text("''")),
    comment="each queue of each topic, and what clients may do with it",
)

consumer_groups = Table(
    "consumer_groups",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("max_attempts", Integer, nullable=False),
    Column("retry_policy", Text, nullable=False, comment="JSON"),
    Column("delivery_order", String(32), nullable=False),
    Column("invisible_ms", BigInteger, nullable=False),
    Column("start_position", String(32), nullable=False, comment="earliest, latest, or a time"),
    Column("max_in_flight", Integer, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("mode", String(32), nullable=False, server_default="clustering"),
    Column("on_exhausted", String(32), nullable=False, server_default="dead_letter"),
    Column("max_in_flight_per_member", Integer, nullable=True),
    Column("paused", Boolean(create_constraint=False), nullable=False, server_default=false()),
    Column("generation", BigInteger, nullable=False, server_default="1"),
    Column("max_in_flight_bytes", BigInteger, nullable=True),
    Column("max_span", BigInteger, nullable=True),
    Column("subscription", String(32), nullable=False, server_default="free"),
    Column("owner", NAME, nullable=True, index=True, comment="the principal that made it"),
    CheckConstraint("max_attempts > 0", name="attempts_positive"),
)

group_subscriptions = Table(
    "group_subscriptions",
    metadata,
    _of_group(),
    _of_topic(),
    Column("filter", Text, nullable=True, comment="null: whoever comes next names one"),
    Column("set_by", Text, nullable=True, comment="a principal; null: nobody in particular"),
    Column("set_ms", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False, comment="outweighs lower ones in the logs"),
    Index(None, "topic"),
    comment="the filters that operators have set or taken away",
)

committed_offsets = Table(
    "committed_offsets",
    metadata,
    _of_group(),
    _of_topic(),
    Column("queue_id", Integer, primary_key=True, autoincrement=False),
    Column("committed_offset", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    CheckConstraint("committed_offset >= 0", name="offset_not_negative"),
    # The primary key serves the group's cascade; this one serves the topic's.
    Index(None, "topic"),
)

first_uses = Table(
    "first_uses",
    metadata,
    _of_group(),
    _of_topic(),
    Column("used_ms", BigInteger, nullable=False),
    Index(None, "topic"),
    comment="when groups that begin at the end of a topic of several shards were first used there",
)

consumptions = Table(
    "consumptions",
    metadata,
    _of_group(),
    _of_topic(),
    Column("shard", NAME, primary_key=True),
    Column("kind", String(16), nullable=False, comment="lease or assigned"),
    Column("since_ms", BigInteger, nullable=False),
    Column(
        "is_ended",
        Boolean(create_constraint=False),
        nullable=False,
        comment="by force, in another shard",
    ),
    Index(None, "topic"),
    Index(None, "shard", "is_ended"),
    comment="how groups consume topics of several shards, by shard",
)

group_generations = Table(
    "group_generations",
    metadata,
    Column("consumer_group", NAME, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("counter", BigInteger, nullable=False, comment="numbers beats and lock renewals"),
    Column("changed", BigInteger, nullable=False, comment="counter at the last change of owners"),
    comment="outlives the group, whose generations never repeat; also the lock of its members",
)

group_members = Table(
    "group_members",
    metadata,
    _of_group(),
    Column("client_id", NAME, primary_key=True),
    Column("profile", Text, nullable=False, comment="JSON: subscriptions, strategy, room, queues"),
    Column("joined_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("joined_generation", BigInteger, nullable=False),
    Column("confirmed_generation", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
)

group_queues = Table(
    "group_queues",
    metadata,
    _of_group(),
    Column("topic", NAME, primary_key=True),
    Column("queue_id", Integer, primary_key=True, autoincrement=False),
    Column("owner", NAME, nullable=True),
    Column("target", NAME, nullable=True),
    Column("since_generation", BigInteger, nullable=False),
    Column("lock_owner", NAME, nullable=True),
    Column("lock_renewal", BigInteger, nullable=True),
    comment="who owns a queue and who shall; a queue has one owner or none",
)

rebalances = Table(
    "rebalances",
    metadata,
    _of_group(),
    Column("generation", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("reason", String(32), nullable=False),
    Column("detail", Text, nullable=False, comment="JSON: members, strategy, queues, moved"),
)

offset_snapshots = Table(
    "offset_snapshots",
    metadata,
    _of_group(),
    Column("name", NAME, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
    Column(
        "offsets",
        Text,
        nullable=False,
        comment="JSON: [[topic, queue id, offset], ...]",
    ),
)

nodes = Table(
    "nodes",
    metadata,
    Column("node_id", NAME, primary_key=True),
    Column("address", Text, nullable=False),
    Column("store_id", LargeBinary, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("shard", Text, nullable=False, server_default=text("''")),
    Column("advertise_url", Text, nullable=False, server_default=text("''")),
    Column("cluster_url", Text, nullable=False, server_default=text("''")),
    Column("zone", Text, nullable=False, server_default=text("''")),
    Column("version", Text, nullable=False, server_default=text("''")),
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("value", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

metadata_version = Table(
    "metadata_version",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
    comment="one row, raised by every change of topics and groups; also their lock",
)

schedules = Table(
    "schedules",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("settings", Text, nullable=False, comment="JSON"),
    Column("next_due_ms", BigInteger, nullable=True, index=True, comment="null while paused"),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("owner", NAME, nullable=True, comment="a principal; null: nobody"),
)

schedule_firings = Table(
    "schedule_firings",
    metadata,
    Column("schedule", NAME, primary_key=True),
    Column("due_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("node_id", NAME, nullable=False),
    Column("settings", Text, nullable=False, comment="JSON, as they were then"),
    Column("owner", NAME, nullable=True, comment="a principal; null: nobody"),
    comment="claimed due times; they outlive their schedule until they are fired",
)

tombstones = Table(
    "tombstones",
    metadata,
    Column("kind", String(32), primary_key=True, comment="topic or group"),
    Column("name", NAME, primary_key=True),
    Column("generation", BigInteger, primary_key=True, autoincrement=False),
    Column("shard", NAME, primary_key=True),
    Column("deleted_ms", BigInteger, nullable=False),
    comment="deletions that a shard has not carried out yet",
)

shards = Table(
    "shards",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("shard_id", LargeBinary, nullable=False, unique=True, comment="the id of its store"),
    Column("epoch", BigInteger, nullable=False),
    Column("grant_id", LargeBinary, nullable=True, comment="of the leader's start"),
    Column("leader", NAME, nullable=True, comment="a node"),
    Column("place", Text, nullable=False, comment="host and data directory"),
    Column("address", Text, nullable=False),
    Column("lease_until_ms", BigInteger, nullable=False, comment="0: without a lease"),
    Column("created_ms", BigInteger, nullable=False),
    *(
        Column(name, BigInteger, nullable=False, server_default=text(default))
        for name, default in (
            ("leader_incarnation", "0"),
            ("in_sync_version", "0"),
            ("settled_version", "0"),
            ("min_in_sync", "1"),
            ("target_replicas", "1"),
        )
    ),
    *(
        Column(name, Boolean, nullable=False, server_default=false())
        for name in ("possible_loss", "is_regressed")
    ),
    Column(
        "in_sync",
        Text,
        nullable=False,
        server_default=text("'[]'"),
        comment="JSON: pairs of node and incarnation, in order",
    ),
    Column("handed_to", NAME, nullable=True, comment="may stand at once"),
    Column(
        "segment_bytes",
        BigInteger,
        nullable=True,
        comment="of each replica's log; null: a lone node's shard",
    ),
    Column("loss_epoch", BigInteger, nullable=False, server_default=text("0")),
    Column(
        "takes",
        String(16),
        nullable=False,
        server_default="all",
        comment="of new messages; keyed or none: it drains",
    ),
    comment="each is one log; who leads it takes what is for its queues",
)

shard_replicas = Table(
    "shard_replicas",
    metadata,
    Column("shard", NAME, ForeignKey(shards.c.name, ondelete="CASCADE"), primary_key=True),
    Column("node_id", NAME, primary_key=True),
    Column("cluster_url", Text, nullable=False),
    Column("advertise_url", Text, nullable=True),
    Column("zone", Text, nullable=True),
    Column("incarnation", BigInteger, nullable=False, comment="when it last joined or started"),
    Column("joined_ms", BigInteger, nullable=False),
    Column(
        "seen_ms",
        BigInteger,
        nullable=False,
        comment="the last sign of life, by the database's clock; 0: it has stopped",
    ),
    comment="the nodes that have a replica of a shard, in sync or not",
)

cluster_events = Table(
    "cluster_events",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False, comment="by the database's clock"),
    Column("kind", Text, nullable=False),
    Column("shard", Text, nullable=False, comment="empty: of none"),
    Column("node_id", Text, nullable=False, comment="empty: of none"),
    Column("epoch", BigInteger, nullable=True),
    Column("detail", Text, nullable=False),
    comment="what happened to nodes and shards; the newest are kept",
)

namespaces = Table(
    "namespaces",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    comment="what is in one is stored as its name, '%' and the own name",
)

stored_settings = Table(
    "stored_settings",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("value", Text, nullable=True, comment="null: its default"),
    Column("updated_ms", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    comment="as text; what a node's environment, file or flags say outweighs it",
)

principals = Table(
    "principals",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("roles", Text, nullable=False, comment="JSON: names"),
    Column("namespace", NAME, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column(
        "patterns",
        Text,
        nullable=False,
        server_default="[]",
        comment="JSON: resources that the roles are kept to",
    ),
    Column("disabled", Boolean(create_constraint=False), nullable=False, server_default=false()),
    Column("version", BigInteger, nullable=False, server_default="0"),
    Column(
        "allowed_from",
        Text,
        nullable=False,
        server_default="[]",
        comment="JSON: networks that it is let in from; none: anywhere",
    ),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", NAME, primary_key=True),
    Column(
        "principal",
        NAME,
        ForeignKey(principals.c.name, ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    Column("digest", LargeBinary, nullable=False, comment="SHA-256 of the key"),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=True, comment="null: never"),
    Column("last_used_ms", BigInteger, nullable=True),
)

policies = Table(
    "policies",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("subject_kind", String(32), nullable=False, comment="principal or role"),
    Column("subject", NAME, nullable=False),
    Column("effect", String(32), nullable=False),
    Column("actions", Text, nullable=False, comment="JSON: names"),
    Column("patterns", Text, nullable=False, comment="JSON: resources"),
    Column("namespace", NAME, nullable=False, comment="empty: the default one; *: each"),
    Column("created_ms", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
)

access_state = Table(
    "access_state",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("closed_ms", BigInteger, nullable=True, comment="null: open to anybody"),
    CheckConstraint("id = 1", name="one_row"),
    comment="one row, raised by every change of who may do what; also their lock",
)

audit_entries = Table(
    "audit_entries",
    metadata,
    Column("node", NAME, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False, index=True),
    Column("principal", Text, nullable=True),
    Column("address", Text, nullable=True),
    Column("request_id", Text, nullable=True),
    Column("client_request_id", Text, nullable=True),
    Column("action", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("before", Text, nullable=True, comment="JSON"),
    Column("after", Text, nullable=True, comment="JSON"),
    Column("key_id", Text, nullable=True, comment="fingerprint of the secret key"),
    Column("previous", LargeBinary, nullable=False),
    Column("link", LargeBinary, nullable=False),
)

audit_heads = Table(
    "audit_heads",
    metadata,
    Column("node", NAME, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("link", LargeBinary, nullable=False),
    comment="the newest entry of each chain; also its lock",
)

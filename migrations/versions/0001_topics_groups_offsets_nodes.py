"""Topics, consumer groups, committed offsets, nodes, secrets and the metadata version."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.String(255)


def upgrade() -> None:
    op.create_table(
        "topics",
        sa.Column("name", NAME, nullable=False),
        sa.Column("queues", sa.Integer, nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("flush", sa.String(32), nullable=False),
        sa.Column("retention_ms", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_topics")),
        sa.CheckConstraint("queues > 0", name=op.f("ck_topics_queues_positive")),
        sa.CheckConstraint("retention_ms > 0", name=op.f("ck_topics_retention_positive")),
    )
    op.create_table(
        "topic_generations",
        sa.Column("topic", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("topic", name=op.f("pk_topic_generations")),
        comment="outlives the topic: a name that is made again gets the next generation",
    )
    op.create_table(
        "consumer_groups",
        sa.Column("name", NAME, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("retry_policy", sa.Text, nullable=False, comment="JSON"),
        sa.Column("delivery_order", sa.String(32), nullable=False),
        sa.Column("invisible_ms", sa.BigInteger, nullable=False),
        sa.Column(
            "start_position",
            sa.String(32),
            nullable=False,
            comment="earliest, latest, or a time",
        ),
        sa.Column("max_in_flight", sa.Integer, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_consumer_groups")),
        sa.CheckConstraint("max_attempts > 0", name=op.f("ck_consumer_groups_attempts_positive")),
    )
    op.create_table(
        "committed_offsets",
        sa.Column("consumer_group", NAME, nullable=False),
        sa.Column("topic", NAME, nullable=False),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("committed_offset", sa.BigInteger, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "consumer_group", "topic", "queue_id", name=op.f("pk_committed_offsets")
        ),
        sa.ForeignKeyConstraint(
            ["consumer_group"],
            ["consumer_groups.name"],
            name=op.f("fk_committed_offsets_consumer_group_consumer_groups"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["topic"],
            ["topics.name"],
            name=op.f("fk_committed_offsets_topic_topics"),
            ondelete="CASCADE",
        ),
        sa.CheckConstraint(
            "committed_offset >= 0", name=op.f("ck_committed_offsets_offset_not_negative")
        ),
    )
    op.create_index(op.f("ix_committed_offsets_topic"), "committed_offsets", ["topic"])
    op.create_table(
        "nodes",
        sa.Column("node_id", NAME, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("store_id", sa.LargeBinary, nullable=False),
        sa.Column("started_ms", sa.BigInteger, nullable=False),
        sa.Column("seen_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("node_id", name=op.f("pk_nodes")),
    )
    op.create_table(
        "secrets",
        sa.Column("name", NAME, nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secrets")),
    )
    version = op.create_table(
        "metadata_version",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metadata_version")),
        sa.CheckConstraint("id = 1", name=op.f("ck_metadata_version_one_row")),
        comment="one row, raised by every change of topics and groups; also their lock",
    )
    op.bulk_insert(version, [{"id": 1, "version": 0}])


def downgrade() -> None:
    op.drop_table("metadata_version")
    op.drop_table("secrets")
    op.drop_table("nodes")
    op.drop_index(op.f("ix_committed_offsets_topic"), table_name="committed_offsets")
    op.drop_table("committed_offsets")
    op.drop_table("consumer_groups")
    op.drop_table("topic_generations")
    op.drop_table("topics")

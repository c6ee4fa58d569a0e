"""Members of groups, who owns which queue, rebalances, snapshots of offsets, the group's mode."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NAME = sa.String(255)


def of_group(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["consumer_group"],
        ["consumer_groups.name"],
        name=op.f(f"fk_{table}_consumer_group_consumer_groups"),
        ondelete="CASCADE",
    )


def upgrade() -> None:
    with op.batch_alter_table("consumer_groups") as groups:
        groups.add_column(
            sa.Column("mode", sa.String(32), nullable=False, server_default="clustering")
        )
    op.create_table(
        "group_generations",
        sa.Column("consumer_group", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column(
            "counter", sa.BigInteger, nullable=False, comment="numbers beats and lock renewals"
        ),
        sa.Column(
            "changed",
            sa.BigInteger,
            nullable=False,
            comment="counter at the last change of owners",
        ),
        sa.PrimaryKeyConstraint("consumer_group", name=op.f("pk_group_generations")),
        comment="outlives the group, whose generations never repeat; also the lock of its members",
    )
    op.create_table(
        "group_members",
        sa.Column("consumer_group", NAME, nullable=False),
        sa.Column("client_id", NAME, nullable=False),
        sa.Column(
            "profile",
            sa.Text,
            nullable=False,
            comment="JSON: subscriptions, strategy, room, queues",
        ),
        sa.Column("joined_ms", sa.BigInteger, nullable=False),
        sa.Column("seen_ms", sa.BigInteger, nullable=False),
        sa.Column("joined_generation", sa.BigInteger, nullable=False),
        sa.Column("confirmed_generation", sa.BigInteger, nullable=False),
        sa.Column("beat", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("consumer_group", "client_id", name=op.f("pk_group_members")),
        of_group("group_members"),
    )
    op.create_table(
        "group_queues",
        sa.Column("consumer_group", NAME, nullable=False),
        sa.Column("topic", NAME, nullable=False),
        sa.Column("queue_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("owner", NAME, nullable=True),
        sa.Column("target", NAME, nullable=True),
        sa.Column("since_generation", sa.BigInteger, nullable=False),
        sa.Column("lock_owner", NAME, nullable=True),
        sa.Column("lock_renewal", sa.BigInteger, nullable=True),
        sa.PrimaryKeyConstraint(
            "consumer_group", "topic", "queue_id", name=op.f("pk_group_queues")
        ),
        of_group("group_queues"),
        comment="who owns a queue and who shall; a queue has one owner or none",
    )
    op.create_table(
        "rebalances",
        sa.Column("consumer_group", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.String(32), nullable=False),
        sa.Column(
            "detail", sa.Text, nullable=False, comment="JSON: members, strategy, queues, moved"
        ),
        sa.PrimaryKeyConstraint("consumer_group", "generation", name=op.f("pk_rebalances")),
        of_group("rebalances"),
    )
    op.create_table(
        "offset_snapshots",
        sa.Column("consumer_group", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column(
            "offsets", sa.Text, nullable=False, comment="JSON: [[topic, queue id, offset], ...]"
        ),
        sa.PrimaryKeyConstraint("consumer_group", "name", name=op.f("pk_offset_snapshots")),
        of_group("offset_snapshots"),
    )


def downgrade() -> None:
    op.drop_table("offset_snapshots")
    op.drop_table("rebalances")
    op.drop_table("group_queues")
    op.drop_table("group_members")
    op.drop_table("group_generations")
    with op.batch_alter_table("consumer_groups") as groups:
        groups.drop_column("mode")

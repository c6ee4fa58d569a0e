"""How groups consume topics of several shards, by shard."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

NAME = sa.String(255)


def upgrade() -> None:
    op.create_table(
        "consumptions",
        sa.Column("consumer_group", NAME, nullable=False),
        sa.Column("topic", NAME, nullable=False),
        sa.Column("shard", NAME, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False, comment="lease or assigned"),
        sa.Column("since_ms", sa.BigInteger, nullable=False),
        sa.Column(
            "is_ended",
            sa.Boolean(create_constraint=False),
            nullable=False,
            comment="by force, in another shard",
        ),
        sa.ForeignKeyConstraint(
            ["consumer_group"],
            ["consumer_groups.name"],
            name=op.f("fk_consumptions_consumer_group_consumer_groups"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["topic"],
            ["topics.name"],
            name=op.f("fk_consumptions_topic_topics"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("consumer_group", "topic", "shard", name=op.f("pk_consumptions")),
        comment="how groups consume topics of several shards, by shard",
    )
    op.create_index(op.f("ix_consumptions_topic"), "consumptions", ["topic"], unique=False)
    op.create_index(
        op.f("ix_consumptions_shard_is_ended"), "consumptions", ["shard", "is_ended"], unique=False
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_consumptions_shard_is_ended"), table_name="consumptions")
    op.drop_index(op.f("ix_consumptions_topic"), table_name="consumptions")
    op.drop_table("consumptions")

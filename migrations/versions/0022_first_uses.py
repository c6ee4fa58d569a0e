"""When groups that begin at `latest` were first used in a topic, for all shards."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

NAME = sa.String(255)


def upgrade() -> None:
    op.create_table(
        "first_uses",
        sa.Column("consumer_group", NAME, nullable=False),
        sa.Column("topic", NAME, nullable=False),
        sa.Column("used_ms", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(
            ["consumer_group"],
            ["consumer_groups.name"],
            name=op.f("fk_first_uses_consumer_group_consumer_groups"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["topic"],
            ["topics.name"],
            name=op.f("fk_first_uses_topic_topics"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("consumer_group", "topic", name=op.f("pk_first_uses")),
        comment="when groups that begin at the end of a topic of several shards were first used "
        "there",
    )
    op.create_index(op.f("ix_first_uses_topic"), "first_uses", ["topic"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_first_uses_topic"), table_name="first_uses")
    op.drop_table("first_uses")

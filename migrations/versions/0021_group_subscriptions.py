"""The filters with which groups read topics, as operators have set them, for all shards."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

NAME = sa.String(255)


def upgrade() -> None:
    op.create_table(
        "group_subscriptions",
        sa.Column("consumer_group", NAME, nullable=False),
        sa.Column("topic", NAME, nullable=False),
        sa.Column(
            "filter", sa.Text, nullable=True, comment="null: whoever comes next names one"
        ),
        sa.Column(
            "set_by", sa.Text, nullable=True, comment="a principal; null: nobody in particular"
        ),
        sa.Column("set_ms", sa.BigInteger, nullable=False),
        sa.Column(
            "version",
            sa.BigInteger,
            nullable=False,
            comment="outweighs lower ones in the logs",
        ),
        sa.ForeignKeyConstraint(
            ["consumer_group"],
            ["consumer_groups.name"],
            name=op.f("fk_group_subscriptions_consumer_group_consumer_groups"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["topic"],
            ["topics.name"],
            name=op.f("fk_group_subscriptions_topic_topics"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("consumer_group", "topic", name=op.f("pk_group_subscriptions")),
        comment="the filters that operators have set or taken away",
    )
    op.create_index(
        op.f("ix_group_subscriptions_topic"), "group_subscriptions", ["topic"], unique=False
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_group_subscriptions_topic"), table_name="group_subscriptions")
    op.drop_table("group_subscriptions")

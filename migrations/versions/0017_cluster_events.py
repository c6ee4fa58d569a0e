"""What happened to nodes and shards: rows in the transaction of each change, the newest kept."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cluster_events",
        sa.Column("seq", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False, comment="by the database's clock"),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("shard", sa.Text, nullable=False, comment="empty: of none"),
        sa.Column("node_id", sa.Text, nullable=False, comment="empty: of none"),
        sa.Column("epoch", sa.BigInteger, nullable=True),
        sa.Column("detail", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_cluster_events")),
        comment="what happened to nodes and shards; the newest are kept",
    )


def downgrade() -> None:
    op.drop_table("cluster_events")

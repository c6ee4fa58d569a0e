"""The replicas of each shard, and the segment size that they have in common.

A shard that is there already is a lone node's: it has no replicas, and its segment size is its own.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

NAME = sa.String(255)


def upgrade() -> None:
    with op.batch_alter_table("shards") as table:
        table.add_column(
            sa.Column(
                "segment_bytes",
                sa.BigInteger,
                nullable=True,
                comment="of each replica's log; null: a lone node's shard",
            )
        )
    op.create_table(
        "shard_replicas",
        sa.Column("shard", NAME, nullable=False),
        sa.Column("node_id", NAME, nullable=False),
        sa.Column("cluster_url", sa.Text, nullable=False),
        sa.Column("advertise_url", sa.Text, nullable=True),
        sa.Column("zone", sa.Text, nullable=True),
        sa.Column(
            "incarnation", sa.BigInteger, nullable=False, comment="when it last joined or started"
        ),
        sa.Column("joined_ms", sa.BigInteger, nullable=False),
        sa.Column(
            "seen_ms",
            sa.BigInteger,
            nullable=False,
            comment="the last sign of life, by the database's clock; 0: it has stopped",
        ),
        sa.ForeignKeyConstraint(
            ["shard"], ["shards.name"], name=op.f("fk_shard_replicas_shard_shards"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("shard", "node_id", name=op.f("pk_shard_replicas")),
        comment="the nodes that have a replica of a shard, in sync or not",
    )


def downgrade() -> None:
    """Only of a database without replicas: the version before would count each as a lone node's."""
    found = op.get_bind().execute(sa.text("SELECT shard FROM shard_replicas LIMIT 1")).scalar()
    if found is not None:
        raise ValueError(f"the shard {found!r} has replicas, which the schema before cannot have")
    op.drop_table("shard_replicas")
    with op.batch_alter_table("shards") as table:
        table.drop_column("segment_bytes")

"""What the row of a shard says of its replicas: who is in sync, and who is to lead next.

No node keeps replicas yet: each row says of a shard of one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_NUMBERS = {
    "leader_incarnation": "0",
    "in_sync_version": "0",
    "settled_version": "0",
    "min_in_sync": "1",
    "target_replicas": "1",
}
_TRUTHS = ("possible_loss", "is_regressed")


def upgrade() -> None:
    with op.batch_alter_table("shards") as table:
        for name, default in _NUMBERS.items():
            table.add_column(
                sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text(default))
            )
        for name in _TRUTHS:
            table.add_column(
                sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())
            )
        table.add_column(
            sa.Column(
                "in_sync",
                sa.Text,
                nullable=False,
                server_default=sa.text("'[]'"),
                comment="JSON: pairs of node and incarnation, in order",
            )
        )
        table.add_column(
            sa.Column("handed_to", sa.String(255), nullable=True, comment="may stand at once")
        )


def downgrade() -> None:
    with op.batch_alter_table("shards") as table:
        for name in (*_NUMBERS, *_TRUTHS, "in_sync", "handed_to"):
            table.drop_column(name)

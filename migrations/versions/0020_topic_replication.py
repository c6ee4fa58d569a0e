"""Whether a send to a topic waits for the other replicas of its shard."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("topics") as topics:
        topics.add_column(
            sa.Column(
                "replication",
                sa.String(32),
                nullable=True,
                comment="sync or async; null: by the shard",
            )
        )


def downgrade() -> None:
    with op.batch_alter_table("topics") as topics:
        topics.drop_column("replication")

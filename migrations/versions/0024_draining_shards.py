"""What a shard takes of new messages: one that is to be taken away drains first."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("shards") as shards:
        shards.add_column(
            sa.Column(
                "takes",
                sa.String(16),
                nullable=False,
                server_default="all",
                comment="of new messages; keyed or none: it drains",
            )
        )


def downgrade() -> None:
    with op.batch_alter_table("shards") as shards:
        shards.drop_column("takes")

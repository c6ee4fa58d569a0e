"""In which epoch a shard was last led from less than what may have been confirmed."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("shards") as shards:
        shards.add_column(
            sa.Column("loss_epoch", sa.BigInteger, nullable=False, server_default=sa.text("0"))
        )


def downgrade() -> None:
    with op.batch_alter_table("shards") as shards:
        shards.drop_column("loss_epoch")

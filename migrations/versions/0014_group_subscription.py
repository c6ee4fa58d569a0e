"""Flow control of groups by bytes and by span, and whether a group reads a topic with one filter."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("consumer_groups") as groups:
        groups.add_column(sa.Column("max_in_flight_bytes", sa.BigInteger, nullable=True))
        groups.add_column(sa.Column("max_span", sa.BigInteger, nullable=True))
        groups.add_column(
            sa.Column("subscription", sa.String(32), nullable=False, server_default="free")
        )


def downgrade() -> None:
    with op.batch_alter_table("consumer_groups") as groups:
        groups.drop_column("subscription")
        groups.drop_column("max_span")
        groups.drop_column("max_in_flight_bytes")

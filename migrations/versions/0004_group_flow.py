"""What a group in order does with a poisoned key, the bound for each member, whether it is paused."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("consumer_groups") as groups:
        groups.add_column(
            sa.Column(
                "on_exhausted", sa.String(32), nullable=False, server_default="dead_letter"
            )
        )
        groups.add_column(sa.Column("max_in_flight_per_member", sa.Integer, nullable=True))
        groups.add_column(
            sa.Column(
                "paused",
                sa.Boolean(create_constraint=False),
                nullable=False,
                server_default=sa.false(),
            )
        )


def downgrade() -> None:
    with op.batch_alter_table("consumer_groups") as groups:
        groups.drop_column("paused")
        groups.drop_column("max_in_flight_per_member")
        groups.drop_column("on_exhausted")

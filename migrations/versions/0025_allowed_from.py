"""The networks that a principal is let in from."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("principals") as principals:
        principals.add_column(
            sa.Column(
                "allowed_from",
                sa.Text,
                nullable=False,
                server_default="[]",
                comment="JSON: networks that it is let in from; none: anywhere",
            )
        )


def downgrade() -> None:
    with op.batch_alter_table("principals") as principals:
        principals.drop_column("allowed_from")

"""Whether a topic's messages leave a trail."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("topics") as topics:
        topics.add_column(
            sa.Column(
                "trace",
                sa.Boolean(create_constraint=False),
                nullable=False,
                server_default=sa.true(),
            )
        )


def downgrade() -> None:
    with op.batch_alter_table("topics") as topics:
        topics.drop_column("trace")

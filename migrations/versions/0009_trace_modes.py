"""Of which messages of a topic a trace is kept: of none, of a share, of all."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("topics") as topics:
        topics.add_column(
            sa.Column("trace_mode", sa.String(32), nullable=False, server_default="on")
        )
        topics.add_column(
            sa.Column("trace_rate", sa.Float, nullable=False, server_default="0.01")
        )
    op.execute("UPDATE topics SET trace_mode = 'off' WHERE NOT trace")
    with op.batch_alter_table("topics") as topics:
        topics.drop_column("trace")


def downgrade() -> None:
    with op.batch_alter_table("topics") as topics:
        topics.add_column(
            sa.Column(
                "trace",
                sa.Boolean(create_constraint=False),
                nullable=False,
                server_default=sa.true(),
            )
        )
    op.execute("UPDATE topics SET trace = (trace_mode <> 'off')")
    with op.batch_alter_table("topics") as topics:
        topics.drop_column("trace_rate")
        topics.drop_column("trace_mode")

"""Schedules, and the due times that nodes have taken upon themselves."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NAME = sa.String(255)


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("name", NAME, nullable=False),
        sa.Column("settings", sa.Text, nullable=False, comment="JSON"),
        sa.Column("next_due_ms", sa.BigInteger, nullable=True, comment="null while paused"),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_schedules")),
    )
    op.create_index(op.f("ix_schedules_next_due_ms"), "schedules", ["next_due_ms"])
    op.create_table(
        "schedule_firings",
        sa.Column("schedule", NAME, nullable=False),
        sa.Column("due_ms", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("node_id", NAME, nullable=False),
        sa.Column("settings", sa.Text, nullable=False, comment="JSON, as they were then"),
        sa.PrimaryKeyConstraint("schedule", "due_ms", name=op.f("pk_schedule_firings")),
        comment="claimed due times; they outlive their schedule until they are fired",
    )


def downgrade() -> None:
    op.drop_table("schedule_firings")
    op.drop_index(op.f("ix_schedules_next_due_ms"), "schedules")
    op.drop_table("schedules")

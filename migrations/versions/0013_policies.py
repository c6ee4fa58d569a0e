"""Policies, what principals are kept to, last uses of keys, and the owners of schedules."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

NAME = sa.String(255)


def upgrade() -> None:
    with op.batch_alter_table("principals") as table:
        table.add_column(
            sa.Column(
                "patterns",
                sa.Text,
                nullable=False,
                server_default="[]",
                comment="JSON: resources that the roles are kept to",
            )
        )
        table.add_column(
            sa.Column("disabled", sa.Boolean, nullable=False, server_default=sa.false())
        )
        table.add_column(sa.Column("version", sa.BigInteger, nullable=False, server_default="0"))
    with op.batch_alter_table("api_keys") as table:
        table.add_column(sa.Column("last_used_ms", sa.BigInteger, nullable=True))
    op.create_table(
        "policies",
        sa.Column("name", NAME, nullable=False),
        sa.Column("subject_kind", sa.String(32), nullable=False, comment="principal or role"),
        sa.Column("subject", NAME, nullable=False),
        sa.Column("effect", sa.String(32), nullable=False),
        sa.Column("actions", sa.Text, nullable=False, comment="JSON: names"),
        sa.Column("patterns", sa.Text, nullable=False, comment="JSON: resources"),
        sa.Column("namespace", NAME, nullable=False, comment="empty: the default one; *: each"),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_policies")),
    )
    for name in ("schedules", "schedule_firings"):
        with op.batch_alter_table(name) as table:
            table.add_column(
                sa.Column("owner", NAME, nullable=True, comment="a principal; null: nobody")
            )


def downgrade() -> None:
    for name in ("schedules", "schedule_firings"):
        with op.batch_alter_table(name) as table:
            table.drop_column("owner")
    op.drop_table("policies")
    with op.batch_alter_table("api_keys") as table:
        table.drop_column("last_used_ms")
    with op.batch_alter_table("principals") as table:
        for column in ("version", "disabled", "patterns"):
            table.drop_column(column)

"""Namespaces: topics, groups and schedules of one are stored as `namespace%name`."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "namespaces",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_namespaces")),
        comment="what is in one is stored as its name, '%' and the own name",
    )


def downgrade() -> None:
    op.drop_table("namespaces")

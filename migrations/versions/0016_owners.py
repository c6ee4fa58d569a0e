"""Whose topics and groups are: the principal that made them, for quotas. What is there is nobody's."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

NAME = sa.String(255)
_OWNED = ("topics", "consumer_groups")


def upgrade() -> None:
    for table in _OWNED:
        owner = sa.Column("owner", NAME, nullable=True, comment="the principal that made it")
        with op.batch_alter_table(table) as altered:
            altered.add_column(owner)
            altered.create_index(op.f(f"ix_{table}_owner"), ["owner"])


def downgrade() -> None:
    for table in _OWNED:
        with op.batch_alter_table(table) as altered:
            altered.drop_index(op.f(f"ix_{table}_owner"))
            altered.drop_column("owner")

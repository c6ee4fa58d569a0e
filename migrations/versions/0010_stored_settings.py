"""Settings that are changed while nodes run, for all nodes of the database."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "stored_settings",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("value", sa.Text, nullable=True, comment="null: its default"),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_stored_settings")),
        comment="as text; what a node's environment, file or flags say outweighs it",
    )


def downgrade() -> None:
    op.drop_table("stored_settings")

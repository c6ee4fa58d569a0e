"""The audit: who changed what, in chains."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

NAME = sa.String(255)


def upgrade() -> None:
    op.create_table(
        "audit_entries",
        sa.Column("node", NAME, nullable=False),
        sa.Column("seq", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("principal", sa.Text, nullable=True),
        sa.Column("address", sa.Text, nullable=True),
        sa.Column("request_id", sa.Text, nullable=True),
        sa.Column("client_request_id", sa.Text, nullable=True),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("before", sa.Text, nullable=True, comment="JSON"),
        sa.Column("after", sa.Text, nullable=True, comment="JSON"),
        sa.Column("key_id", sa.Text, nullable=True, comment="fingerprint of the secret key"),
        sa.Column("previous", sa.LargeBinary, nullable=False),
        sa.Column("link", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("node", "seq", name=op.f("pk_audit_entries")),
    )
    op.create_index(op.f("ix_audit_entries_at_ms"), "audit_entries", ["at_ms"])
    op.create_table(
        "audit_heads",
        sa.Column("node", NAME, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("link", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_audit_heads")),
        comment="the newest entry of each chain; also its lock",
    )


def downgrade() -> None:
    op.drop_table("audit_heads")
    op.drop_index(op.f("ix_audit_entries_at_ms"), table_name="audit_entries")
    op.drop_table("audit_entries")

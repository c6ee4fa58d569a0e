"""Principals, their API keys, and the fact that a node asks for one."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

NAME = sa.String(255)


def upgrade() -> None:
    op.create_table(
        "principals",
        sa.Column("name", NAME, nullable=False),
        sa.Column("roles", sa.Text, nullable=False, comment="JSON: names"),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_principals")),
    )
    op.create_table(
        "api_keys",
        sa.Column("key_id", NAME, nullable=False),
        sa.Column("principal", NAME, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False, comment="SHA-256 of the key"),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=True, comment="null: never"),
        sa.ForeignKeyConstraint(
            ["principal"],
            ["principals.name"],
            name=op.f("fk_api_keys_principal_principals"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_api_keys")),
    )
    op.create_index(op.f("ix_api_keys_principal"), "api_keys", ["principal"])
    op.create_table(
        "access_state",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("closed_ms", sa.BigInteger, nullable=True, comment="null: open to anybody"),
        sa.CheckConstraint("id = 1", name=op.f("ck_access_state_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_state")),
        comment="one row, raised by every change of who may do what; also their lock",
    )
    op.execute("INSERT INTO access_state (id, version, closed_ms) VALUES (1, 0, NULL)")


def downgrade() -> None:
    op.drop_table("access_state")
    op.drop_index(op.f("ix_api_keys_principal"), table_name="api_keys")
    op.drop_table("api_keys")
    op.drop_table("principals")

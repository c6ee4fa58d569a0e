"""Generations of groups, what was deleted and is to be carried out, and whose store this is."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NAME = sa.String(255)


def upgrade() -> None:
    with op.batch_alter_table("consumer_groups") as groups:
        groups.add_column(
            sa.Column("generation", sa.BigInteger, nullable=False, server_default="1")
        )
    op.drop_table("topic_generations")
    op.create_table(
        "tombstones",
        sa.Column("kind", sa.String(32), nullable=False, comment="topic or group"),
        sa.Column("name", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("deleted_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", "generation", name=op.f("pk_tombstones")),
        comment="deletions that the store has not carried out yet",
    )
    op.create_table(
        "store_claim",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("store_id", sa.LargeBinary, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("claimed_ms", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_store_claim_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_store_claim")),
        comment="one row: the store that this metadata belongs to",
    )
    _claim_for_the_only_node()


def _claim_for_the_only_node() -> None:
    """Where only one store was ever used, it is the one. Else the first that starts is."""
    connection = op.get_bind()
    found = connection.execute(
        sa.text("SELECT store_id, address, started_ms FROM nodes ORDER BY node_id LIMIT 2")
    ).all()
    if len(found) == 1:
        connection.execute(
            sa.text(
                "INSERT INTO store_claim (id, store_id, address, claimed_ms)"
                " VALUES (1, :store_id, :address, :claimed_ms)"
            ),
            {
                "store_id": found[0].store_id,
                "address": found[0].address,
                "claimed_ms": found[0].started_ms,
            },
        )


def downgrade() -> None:
    op.drop_table("store_claim")
    op.drop_table("tombstones")
    op.create_table(
        "topic_generations",
        sa.Column("topic", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("topic", name=op.f("pk_topic_generations")),
        comment="outlives the topic: a name that is made again gets the next generation",
    )
    op.execute(
        "INSERT INTO topic_generations (topic, generation) SELECT name, generation FROM topics"
    )
    with op.batch_alter_table("consumer_groups") as groups:
        groups.drop_column("generation")

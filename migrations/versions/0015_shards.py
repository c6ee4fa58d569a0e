"""Shards, the shard of each queue, what nodes say of themselves, and deletions by shard.

The store that the database belonged to is its first shard, under the name that its id makes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

NAME = sa.String(255)
_OF_NODES = ("shard", "advertise_url", "cluster_url", "zone", "version")


def upgrade() -> None:
    connection = op.get_bind()
    shards = op.create_table(
        "shards",
        sa.Column("name", NAME, nullable=False),
        sa.Column("shard_id", sa.LargeBinary, nullable=False, comment="the id of its store"),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("grant_id", sa.LargeBinary, nullable=True, comment="of the leader's start"),
        sa.Column("leader", NAME, nullable=True, comment="a node"),
        sa.Column("place", sa.Text, nullable=False, comment="host and data directory"),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("lease_until_ms", sa.BigInteger, nullable=False, comment="0: without a lease"),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_shards")),
        sa.UniqueConstraint("shard_id", name=op.f("uq_shards_shard_id")),
        comment="each is one log; who leads it takes what is for its queues",
    )
    claim = connection.execute(
        sa.text("SELECT store_id, address, claimed_ms FROM store_claim")
    ).one_or_none()
    name = "" if claim is None else bytes(claim.store_id).hex()
    if claim is not None:
        op.bulk_insert(
            shards,
            [
                {
                    "name": name,
                    "shard_id": bytes(claim.store_id),
                    "epoch": 0,
                    "grant_id": None,
                    "leader": None,
                    "place": "",
                    "address": claim.address,
                    "lease_until_ms": 0,
                    "created_ms": claim.claimed_ms,
                }
            ],
        )
    op.drop_table("store_claim")
    with op.batch_alter_table("topic_queues") as table:
        table.add_column(sa.Column("shard", NAME, nullable=False, server_default=sa.text("''")))
    connection.execute(sa.text("UPDATE topic_queues SET shard = :name"), {"name": name})
    with op.batch_alter_table("nodes") as table:
        for column in _OF_NODES:
            table.add_column(sa.Column(column, sa.Text, nullable=False, server_default=sa.text("''")))
    with op.batch_alter_table("topics") as table:
        table.add_column(
            sa.Column(
                "first_queues",
                sa.Integer,
                nullable=False,
                server_default="1",
                comment="when it was made; homes of producers and keys are by this number",
            )
        )
    connection.execute(sa.text("UPDATE topics SET first_queues = queues"))
    _remake_tombstones(name)


def _remake_tombstones(name: str) -> None:
    connection = op.get_bind()
    found = connection.execute(
        sa.text("SELECT kind, name, generation, deleted_ms FROM tombstones")
    ).all()
    op.drop_table("tombstones")
    tombstones = op.create_table(
        "tombstones",
        sa.Column("kind", sa.String(32), nullable=False, comment="topic or group"),
        sa.Column("name", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("shard", NAME, nullable=False),
        sa.Column("deleted_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", "generation", "shard", name=op.f("pk_tombstones")),
        comment="deletions that a shard has not carried out yet",
    )
    rows = [{**row._asdict(), "shard": name} for row in found]
    if rows:
        op.bulk_insert(tombstones, rows)


def downgrade() -> None:
    """Only of a database with one shard: the version before knows no others."""
    connection = op.get_bind()
    found = connection.execute(
        sa.text("SELECT shard_id, address, created_ms FROM shards ORDER BY name LIMIT 2")
    ).all()
    if len(found) > 1:
        raise ValueError("the database has several shards, which the schema before cannot have")
    deletions = connection.execute(
        sa.text("SELECT DISTINCT kind, name, generation, deleted_ms FROM tombstones")
    ).all()
    op.drop_table("tombstones")
    tombstones = op.create_table(
        "tombstones",
        sa.Column("kind", sa.String(32), nullable=False, comment="topic or group"),
        sa.Column("name", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("deleted_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", "generation", name=op.f("pk_tombstones")),
        comment="deletions that the store has not carried out yet",
    )
    if deletions:
        op.bulk_insert(tombstones, [row._asdict() for row in deletions])
    with op.batch_alter_table("nodes") as table:
        for column in _OF_NODES:
            table.drop_column(column)
    with op.batch_alter_table("topics") as table:
        table.drop_column("first_queues")
    with op.batch_alter_table("topic_queues") as table:
        table.drop_column("shard")
    claims = op.create_table(
        "store_claim",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("store_id", sa.LargeBinary, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("claimed_ms", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_store_claim_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_store_claim")),
        comment="one row: the store that this metadata belongs to",
    )
    for row in found:
        op.bulk_insert(
            claims,
            [
                {
                    "id": 1,
                    "store_id": bytes(row.shard_id),
                    "address": row.address,
                    "claimed_ms": row.created_ms,
                }
            ],
        )
    op.drop_table("shards")

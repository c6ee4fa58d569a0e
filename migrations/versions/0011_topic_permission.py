"""What clients may do with a topic and its queues, and how much a topic takes."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

NAME = sa.String(255)
_TOPICS_AT_A_TIME = 200


def upgrade() -> None:
    with op.batch_alter_table("topics") as topics:
        topics.add_column(
            sa.Column("permission", sa.String(32), nullable=False, server_default="rw")
        )
        topics.add_column(
            sa.Column("write_queues", sa.Integer, nullable=True, comment="null: all")
        )
        topics.add_column(sa.Column("max_body_bytes", sa.BigInteger, nullable=True))
        topics.add_column(
            sa.Column("max_rate", sa.BigInteger, nullable=True, comment="messages a second")
        )
        topics.add_column(sa.Column("max_stored_bytes", sa.BigInteger, nullable=True))
    queues = op.create_table(
        "topic_queues",
        sa.Column("topic", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("queue_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("perm", sa.String(32), nullable=False, comment="rw, r, w or none"),
        sa.ForeignKeyConstraint(
            ["topic"],
            ["topics.name"],
            name=op.f("fk_topic_queues_topic_topics"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("topic", "generation", "queue_id", name=op.f("pk_topic_queues")),
        comment="each queue of each topic, and what clients may do with it",
    )
    rows = op.get_bind().execute(sa.text("SELECT name, generation, queues FROM topics")).all()
    for first in range(0, len(rows), _TOPICS_AT_A_TIME):
        op.bulk_insert(
            queues,
            [
                {"topic": name, "generation": generation, "queue_id": queue_id, "perm": "rw"}
                for name, generation, count in rows[first : first + _TOPICS_AT_A_TIME]
                for queue_id in range(count)
            ],
        )


def downgrade() -> None:
    op.drop_table("topic_queues")
    with op.batch_alter_table("topics") as topics:
        for name in ("max_stored_bytes", "max_rate", "max_body_bytes", "write_queues", "permission"):
            topics.drop_column(name)

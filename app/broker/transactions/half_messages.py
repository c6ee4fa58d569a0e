"""What a half message says of its transaction, in properties of its own. Pure."""

from typing import Final

from app.broker.transactions.transaction_table import Transaction
from app.domain.message import (
    PROPERTY_GENERATION,
    PROPERTY_REAL_QUEUE,
    PROPERTY_REAL_TOPIC,
    StoredMessage,
)

QUEUE: Final = 0
"""Of the topic of half messages."""
PRODUCER_GROUP: Final = "PGROUP"
CHECK_AFTER: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""RocketMQ's name; fractions are allowed here."""
CHECKS: Final = "MQ_CHECKS"
WHEN_ASKED: Final = "when_asked"
"""A value of `CHECKS`: only checks that were handed out count."""


def transaction_of(half: StoredMessage) -> Transaction:
    """What a half message prepares."""
    system = half.system
    return Transaction(
        half.message_id,
        system[PRODUCER_GROUP],
        system[PROPERTY_REAL_TOPIC],
        int(system[PROPERTY_REAL_QUEUE]),
        half.queue_offset,
        half.store_time_ms,
        round(float(system[CHECK_AFTER]) * 1_000),
        counts_when_asked=system.get(CHECKS) == WHEN_ASKED,
        generation=int(system.get(PROPERTY_GENERATION, 0)),
    )

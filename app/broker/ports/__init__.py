"""What the broker needs from its neighbours, as protocols: of the store, of the metadata.

`app.store.MessageStore` and `app.cluster.Metadata` satisfy them; so do the fakes of the tests.
The value types are the store's own and the domain's.
"""

from app.broker.ports.consumptions import ConsumptionRows
from app.broker.ports.metadata import (
    Group,
    Memberships,
    Metadata,
    ScheduleBook,
    Snapshot,
    Topic,
)
from app.broker.ports.positions import FirstUses, OffsetSnapshots
from app.broker.ports.store import (
    FollowedRecords,
    Frame,
    QueueRecords,
    Store,
    StoredNames,
    StoreStatus,
)

__all__ = [
    "ConsumptionRows",
    "FirstUses",
    "FollowedRecords",
    "Frame",
    "Group",
    "Memberships",
    "Metadata",
    "OffsetSnapshots",
    "QueueRecords",
    "ScheduleBook",
    "Snapshot",
    "Store",
    "StoreStatus",
    "StoredNames",
    "Topic",
]

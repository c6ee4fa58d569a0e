"""Every operation of the service, of both planes."""

from typing import Final

from app.api.control.routes import (
    clients,
    cluster,
    figures,
    namespaces,
    operations,
    positions,
    producers,
    scheduled,
    schedules,
    service,
    topics,
    transactions,
)
from app.api.control.routes.access import audit, policies, principals, whoami
from app.api.control.routes.groups import (
    dead_letters,
    group_flow,
    group_offsets,
    groups,
    lag,
    members,
    parked,
    subscriptions,
    traces,
)
from app.api.control.routes.shards import drain, elect, hand_over, replicas, topic_routes
from app.api.dataplane import routes

ROUTERS: Final = (
    producers.router,
    topics.router,
    topic_routes.router,
    cluster.router,
    hand_over.router,
    drain.router,
    elect.router,
    replicas.router,
    namespaces.router,
    figures.router,
    clients.router,
    positions.router,
    scheduled.router,
    schedules.router,
    groups.router,
    lag.router,
    group_flow.router,
    parked.router,
    subscriptions.router,
    members.router,
    group_offsets.router,
    dead_letters.router,
    operations.router,
    transactions.router,
    traces.router,
    audit.router,
    principals.router,
    policies.router,
    whoami.router,
    service.router,
)

OPERATIONS: Final = (
    *routes.OPERATIONS,
    *(operation for router in ROUTERS for operation in router.operations),
)
"""Nothing else is served but the document, its page, and what is mounted at `/ui`."""

"""Who consumes and who produces: what mqadmin's consumerConnection and producerConnection show."""

import base64
import binascii
import heapq
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from fastapi import Query

from app.api.aims import merges
from app.api.aims.across import InOrder, Together
from app.api.control.dependencies import Services, WithAccess, WithPageSize, WithServices
from app.api.control.operation_router import OperationRouter
from app.api.control.schemas.client_schemas import (
    ClientDocument,
    ConsumerDocument,
    ConsumerList,
    GroupClientDocument,
    ProducerDocument,
    ProducerList,
    topics_of,
    version_of,
)
from app.api.naming.request_namespace import is_of_request
from app.api.operations.operation import Action, Json
from app.broker.figures.clients import ClientRow, Key
from app.broker.insight.lag import check_known_group
from app.broker.topic_lookup import find_topic
from app.domain.access.actions import Kind
from app.domain.errors import ClientNotFound, IllegalPage

_MARK: Final = "c1:"

router = OperationRouter("clients")

Prefix = Annotated[
    str, Query(description="clients whose name begins so: client id, producer group, or address")
]


@router.serve(
    "GET /v1/groups/{group}/clients",
    "Who consumes in a group",
    needs={"group": Action.GET},
    across=InOrder("clients"),
)
async def list_group_clients(
    group: str,
    services: WithServices,
    access: WithAccess,
    page_size: WithPageSize,
    prefix: Prefix = "",
    page_token: str | None = None,
) -> ConsumerList:
    """Clients that received, streamed or sent heartbeats in the last ten minutes; of each node at
    most 1,000. One that named no client id is a row for each address."""
    check_known_group(services.metadata, group)
    rows = services.broker.clients.consumers.rows(group)
    page, token = _page(rows, prefix, page_size, page_token)
    assigned = await _assigned(services, group) if page else {}
    clients = [
        ConsumerDocument(**_consumer(services, access, group, row, assigned)) for row in page
    ]
    return ConsumerList(clients=clients, next_page_token=token, partial=[])


@router.serve(
    "GET /v1/topics/{topic}/producers",
    "Who produces to a topic",
    needs={"topic": Action.GET},
    across=InOrder("clients"),
)
async def list_topic_producers(
    topic: str,
    services: WithServices,
    access: WithAccess,
    page_size: WithPageSize,
    prefix: Prefix = "",
    page_token: str | None = None,
) -> ProducerList:
    """Clients that sent in the last ten minutes; of each node at most 1,000. One that named no
    producer is a row for each address."""
    find_topic(services.metadata, topic)
    found = services.broker.clients.producers.rows(topic)
    rows = {key: row for key, row in found.items() if _sees_producer(access, row)}
    page, token = _page(rows, prefix, page_size, page_token)
    now_ms, node_id = _now(services)
    clients = [ProducerDocument.of(row, now_ms, node_id) for row in page]
    return ProducerList(clients=clients, next_page_token=token, partial=[])


@router.serve(
    "GET /v1/clients/{client_id}",
    "What a client consumes and produces",
    needs={"cluster": Action.GET},
    across=Together(merges.client),
)
async def get_client(client_id: str, services: WithServices, access: WithAccess) -> ClientDocument:
    """All groups and topics, of those that the caller may know of, in which it was seen in the last
    ten minutes, at any node."""
    clients = services.broker.clients
    now_ms, node_id = _now(services)
    consumes = [
        GroupClientDocument(
            group=group,
            **_consumer(services, access, group, row, await _assigned(services, group)),
        )
        for group, rows in sorted(clients.consumers.all().items())
        for key, row in sorted(rows.items())
        if key[0] == client_id and is_of_request(group) and access.sees_group(group)
    ]
    produces = [
        ProducerDocument.of(row, now_ms, node_id)
        for topic, rows in sorted(clients.producers.all().items())
        for key, row in sorted(rows.items())
        if key[0] == client_id and is_of_request(topic)
        if access.sees_topic(topic) and _sees_producer(access, row)
    ]
    if not (consumes or produces):
        raise ClientNotFound(
            f"no client {client_id!r} was seen in the last ten minutes",
            hint="GET /v1/groups/{group}/clients lists those of a group; a client names itself by"
            " client_id",
        )
    return ClientDocument(client_id=client_id, consumes=consumes, produces=produces)


_MEMBERS: Final = ("heartbeat", "poll")
"""Kinds of clients that are members."""


def _now(services: Services) -> tuple[int, str]:
    return services.broker.store_now_ms(), services.broker.store.store_id.hex()


async def _assigned(services: Services, group: str) -> dict[str, int]:
    """Member → queues that it owns."""
    found = await services.broker.members.describe(group)
    return {member.client_id: len(assignment.assigned) for member, assignment in found.shares}


def _sees_producer(access: WithAccess, row: ClientRow) -> bool:
    """Whether the caller may know of the producer group or id that a row has."""
    names = [name for name in (row.producer_group, row.producer_id) if name is not None]
    return all(access.may(Action.GET, Kind.PRODUCER, name) for name in names)


def _consumer(
    services: Services,
    access: WithAccess,
    group: str,
    row: ClientRow,
    assigned: Mapping[str, int],
) -> Json:
    now_ms, node_id = _now(services)
    holder = None
    for topic in row.topics:
        subscription = services.broker.groups.find(group, topic)
        if subscription is not None:  # the count is of the group, whatever the topic
            holder = subscription.in_flight.holders.get(row.client_id or "")
            break
    return {
        "client_id": row.client_id,
        "principal": row.principal,
        "address": row.address,
        "user_agent": row.user_agent,
        "version": version_of(row.user_agent),
        "kind": row.kind,
        "topics": [each for each in topics_of(row) if access.sees_topic(each.topic)],
        "first_seen_ms": row.first_seen_ms,
        "last_seen_ms": row.last_seen_ms,
        "in_flight": None if holder is None else holder.count,
        "in_flight_bytes": None if holder is None else holder.bytes,
        "rate_per_s": row.rate_per_s(now_ms),
        "assigned": assigned.get(row.client_id or "") if row.kind in _MEMBERS else None,
        "node_id": node_id,
    }


def _page(
    rows: Mapping[Key, ClientRow],
    prefix: str,
    page_size: int,
    page_token: str | None,
) -> tuple[Sequence[ClientRow], str | None]:
    """The rows behind the token, by their keys; the token of the next page."""
    after = _key_in(page_token) if page_token else ("", "")
    wanted = (key for key in rows if key > after and (key[0] or key[1]).startswith(prefix))
    keys = heapq.nsmallest(page_size + 1, wanted)
    shown = keys[:page_size]
    token = None
    if len(keys) > page_size:
        token = base64.urlsafe_b64encode((_MARK + "\n".join(shown[-1])).encode()).decode()
    return [rows[key] for key in shown], token


def _key_in(token: str) -> Key:
    try:
        text = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        text = ""
    name, _, rest = text.removeprefix(_MARK).partition("\n")
    if not text.startswith(_MARK):
        raise IllegalPage(
            "the page token was not issued by this service",
            hint="begin again without page_token",
        )
    return name, rest

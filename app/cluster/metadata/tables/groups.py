"""Groups in SQL: what is particular to them. `GROUPS` works in the caller's transaction."""

from dataclasses import replace
from typing import Final

from sqlalchemy import Row

from app.cluster.metadata.consumers.member_numbers import forget_deleted
from app.cluster.metadata.schema.group_columns import (
    policy_from_json,
    policy_to_json,
    start_from_text,
    start_to_text,
)
from app.cluster.metadata.schema.tables import consumer_groups
from app.cluster.metadata.snapshot import GroupView
from app.cluster.metadata.tables import room
from app.cluster.metadata.tables.settings_table import SettingsTable, as_arguments
from app.domain.errors import GroupNotFound
from app.domain.identity import Kind
from app.domain.positions import TimestampMs
from app.domain.settings import (
    DeliveryOrder,
    GroupMode,
    GroupSettings,
    SubscriptionRule,
    WhenExhausted,
)


def _made(
    name: str, settings: GroupSettings, generation: int, now_ms: TimestampMs, version: int
) -> GroupView:
    return GroupView(
        name,
        **as_arguments(settings),
        generation=generation,
        created_ms=now_ms,
        updated_ms=now_ms,
        version=version,
    )


def _altered(
    present: GroupView, settings: GroupSettings, now_ms: TimestampMs, version: int
) -> GroupView:
    return replace(present, **as_arguments(settings), updated_ms=now_ms, version=version)


def _columns(view: GroupView) -> dict[str, str | int | None]:
    return {
        "max_attempts": view.max_attempts,
        "retry_policy": policy_to_json(view.retry_policy),
        "delivery_order": view.order.value,
        "invisible_ms": view.invisible_ms,
        "start_position": start_to_text(view.start),
        "max_in_flight": view.max_in_flight,
        "mode": view.mode.value,
        "on_exhausted": view.on_exhausted.value,
        "max_in_flight_per_member": view.max_in_flight_per_member,
        "paused": view.paused,
        "max_in_flight_bytes": view.max_in_flight_bytes,
        "max_span": view.max_span,
        "subscription": view.subscription.value,
        "generation": view.generation,
        "updated_ms": view.updated_ms,
        "version": view.version,
    }


def _view(row: Row[*tuple[object, ...]]) -> GroupView:
    return GroupView(
        name=row.name,
        max_attempts=row.max_attempts,
        retry_policy=policy_from_json(row.retry_policy),
        order=DeliveryOrder(row.delivery_order),
        invisible_ms=row.invisible_ms,
        start=start_from_text(row.start_position),
        max_in_flight=row.max_in_flight,
        mode=GroupMode(row.mode),
        on_exhausted=WhenExhausted(row.on_exhausted),
        max_in_flight_per_member=row.max_in_flight_per_member,
        paused=row.paused,
        max_in_flight_bytes=row.max_in_flight_bytes,
        max_span=row.max_span,
        subscription=SubscriptionRule(row.subscription),
        generation=row.generation,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
        version=row.version,
    )


def _missing(name: str) -> GroupNotFound:
    return GroupNotFound(f"consumer group {name!r} does not exist", hint="see GET /v1/groups")


GROUPS: Final[SettingsTable[GroupView, GroupSettings]] = SettingsTable(
    consumer_groups,
    "group",
    _view,
    _columns,
    _made,
    _altered,
    _missing,
    room.for_group,
    Kind.GROUP,
    forget=forget_deleted,
)

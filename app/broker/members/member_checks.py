"""What a heartbeat or a poll may say of its member. Pure, but for the limits."""

import re
from collections.abc import Sequence
from typing import Final

from app.broker.filters.filters import parse_filter
from app.broker.ports import Group
from app.domain.consumers.membership import Profile, StrategyName
from app.domain.errors import IllegalMember
from app.domain.limits import CLIENT_ID_CHARS_MAX, Limits
from app.domain.settings import GroupMode

_CLIENT_ID: Final = re.compile(rf"[A-Za-z0-9._:@#-]{{1,{CLIENT_ID_CHARS_MAX}}}")


def check_profile(profile: Profile, limits: Limits) -> None:
    """Raise `IllegalMember` or `IllegalFilter` for what no member can be."""
    count, most = len(profile.subscriptions), limits.subscriptions_per_member_max
    if not 1 <= count <= most:
        raise IllegalMember(
            f"a member subscribes to 1 to {most} topics, not to {count}",
            hint='for instance "subscriptions": [{"topic": "orders"}]',
            pointer="/subscriptions",
        )
    for index, (topic, _) in enumerate(profile.subscriptions[1:]):
        if topic == profile.subscriptions[index].topic:
            raise IllegalMember(f"topic {topic!r} is subscribed twice", pointer="/subscriptions")
    for subscription in profile.subscriptions:
        parse_filter(subscription.filter)
    _check_strategy(profile)


def check_client_id(client_id: str) -> None:
    """Raise `IllegalMember` for an id that nobody can have."""
    if not _CLIENT_ID.fullmatch(client_id):
        raise IllegalMember(
            f"client id {client_id!r} is not allowed",
            hint=f"use 1 to {CLIENT_ID_CHARS_MAX} letters, digits, or any of . _ : @ # -",
        )


def assigned_topics(group: Group, profile: Profile) -> Sequence[str]:
    """Topics whose queues are shared out to the member: in a broadcast group none are."""
    return () if group.mode is GroupMode.BROADCAST else profile.topics


def _check_strategy(profile: Profile) -> None:
    strategy = profile.strategy
    if strategy is None:
        return
    if strategy.name is StrategyName.MACHINE_ROOM and not strategy.rooms:
        raise IllegalMember(
            "strategy machine_room needs the rooms whose queues are read",
            hint='for instance "rooms": ["hz"], with "brokers": {"orders": ["hz@a", "sh@b"]}',
            pointer="/strategy/rooms",
        )
    if strategy.name is StrategyName.MACHINE_ROOM_NEARBY and not profile.room:
        raise IllegalMember(
            "strategy machine_room_nearby needs the room in which the member runs",
            hint='for instance "room": "hz"',
            pointer="/room",
        )
    if strategy.inner in {StrategyName.MACHINE_ROOM_NEARBY, StrategyName.CONFIGURATION}:
        raise IllegalMember(
            f"{strategy.inner} cannot share the queues of one room", pointer="/strategy/inner"
        )

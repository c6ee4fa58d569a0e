"""Which change of settings does what to those who are at work, and how many it counts."""

import re
from dataclasses import replace

import pytest

from app.domain.changes.effects import (
    Effect,
    GroupFacts,
    TopicFacts,
    effects_of_deletion,
    effects_on_group,
    effects_on_topic,
)
from app.domain.positions import FlushMode, ReplicationMode
from app.domain.settings import (
    DeliveryOrder,
    GroupMode,
    GroupSettings,
    Permission,
    TopicSettings,
    TopicType,
)

TOPIC, GROUP = TopicSettings(queues=2), GroupSettings(max_in_flight=100)
BUSY = TopicFacts(messages=7, groups=3)
REPLICATED = TopicFacts(messages=7, groups=3, has_replicas=True)
EARLY = replace(TOPIC, replication=ReplicationMode.ASYNC)
AT_WORK = GroupFacts(leases=5, in_flight=9, waiting=2, topics=3, holders=(4, 1, 0))
FIFO = replace(GROUP, order=DeliveryOrder.FIFO)
BROADCAST = replace(GROUP, mode=GroupMode.BROADCAST)


def counted(effects: list[Effect]) -> dict[str, int | None]:
    assert all(effect.detail for effect in effects)
    assert len({effect.code for effect in effects}) == len(effects)
    return {effect.code.value: effect.count for effect in effects}


@pytest.mark.parametrize(
    ("before", "after", "facts", "effects"),
    [
        (TOPIC, TOPIC, BUSY, {}),
        (TOPIC, replace(TOPIC, flush=FlushMode.ASYNC, retention_ms=60_000), BUSY, {}),
        (TOPIC, replace(TOPIC, queues=8), BUSY, {"QUEUES_GROW_FOR_EVER": 6, "KEYS_MOVE": 7}),
        (TOPIC, replace(TOPIC, queues=3), TopicFacts(), {"QUEUES_GROW_FOR_EVER": 1}),
        (
            replace(TOPIC, queues=1),
            TOPIC,
            BUSY,
            {"QUEUES_GROW_FOR_EVER": 1, "KEYS_MOVE": 7, "ORDER_CHANGES": 3},
        ),
        (TOPIC, replace(TOPIC, type=TopicType.FIFO), BUSY, {"CLIENTS_REFUSED": None}),
        (TOPIC, replace(TOPIC, type=TopicType.DELAY), BUSY, {"CLIENTS_REFUSED": None}),
        (replace(TOPIC, type=TopicType.DELAY), TOPIC, BUSY, {}),
        (TOPIC, replace(TOPIC, permission=Permission.READ), BUSY, {"CLIENTS_REFUSED": None}),
        (TOPIC, replace(TOPIC, permission=Permission.WRITE), BUSY, {"CLIENTS_REFUSED": 3}),
        (replace(TOPIC, permission=Permission.NONE), TOPIC, BUSY, {}),
        (replace(TOPIC, permission=Permission.WRITE), TOPIC, BUSY, {}),
        (
            TOPIC,
            replace(TOPIC, write_queues=1),
            BUSY,
            {"KEYS_MOVE": 7, "CLIENTS_REFUSED": None},
        ),
        (TOPIC, replace(TOPIC, write_queues=2), BUSY, {}),
        (replace(TOPIC, write_queues=1), TOPIC, BUSY, {"KEYS_MOVE": 7, "ORDER_CHANGES": 3}),
        (
            replace(TOPIC, write_queues=2),
            replace(TOPIC, queues=8, write_queues=2),
            BUSY,
            {"QUEUES_GROW_FOR_EVER": 6},
        ),
        (TOPIC, replace(TOPIC, max_rate=5), BUSY, {"CLIENTS_REFUSED": None}),
        (replace(TOPIC, max_rate=5), replace(TOPIC, max_rate=6), BUSY, {}),
        (replace(TOPIC, max_body_bytes=5), TOPIC, BUSY, {}),
        (TOPIC, replace(TOPIC, max_stored_bytes=5), BUSY, {"CLIENTS_REFUSED": None}),
        (EARLY, EARLY, REPLICATED, {}),
        (TOPIC, replace(TOPIC, replication=ReplicationMode.SYNC), REPLICATED, {}),
    ],
)
def test_on_a_topic(
    before: TopicSettings, after: TopicSettings, facts: TopicFacts, effects: dict[str, int | None]
) -> None:
    assert counted(effects_on_topic(before, after, facts)) == effects


@pytest.mark.parametrize(
    ("before", "after", "facts", "effects"),
    [
        (GROUP, GROUP, AT_WORK, {}),
        (GROUP, replace(GROUP, max_attempts=3, start="latest", paused=True), AT_WORK, {}),
        (GROUP, FIFO, AT_WORK, {"ORDER_CHANGES": 3, "LEASES_END": 5}),
        (FIFO, GROUP, AT_WORK, {"ORDER_CHANGES": 3, "LEASES_END": 5}),
        (GROUP, FIFO, GroupFacts(), {"ORDER_CHANGES": 0}),
        (GROUP, BROADCAST, AT_WORK, {"CLIENTS_REFUSED": 2}),
        (BROADCAST, GROUP, AT_WORK, {}),
        (GROUP, replace(GROUP, max_in_flight=9), AT_WORK, {}),
        (GROUP, replace(GROUP, max_in_flight=8), AT_WORK, {"CLIENTS_REFUSED": 2}),
        (replace(GROUP, max_in_flight=1), replace(GROUP, max_in_flight=8), AT_WORK, {}),
        (GROUP, replace(GROUP, max_in_flight_per_member=4), AT_WORK, {}),
        (GROUP, replace(GROUP, max_in_flight_per_member=3), AT_WORK, {"CLIENTS_REFUSED": 1}),
        (
            replace(GROUP, max_in_flight_per_member=1),
            replace(GROUP, max_in_flight_per_member=3),
            AT_WORK,
            {},
        ),
    ],
)
def test_on_a_group(
    before: GroupSettings, after: GroupSettings, facts: GroupFacts, effects: dict[str, int | None]
) -> None:
    assert counted(effects_on_group(before, after, facts)) == effects


def test_a_topic_that_is_closed_tells_both_who_sends_and_who_reads() -> None:
    closed = replace(TOPIC, permission=Permission.NONE)
    effects = effects_on_topic(TOPIC, closed, BUSY)
    assert [(each.code.value, each.count) for each in effects] == [
        ("CLIENTS_REFUSED", None),
        ("CLIENTS_REFUSED", 3),
    ]


def test_of_a_deletion() -> None:
    assert effects_of_deletion(0, 0) == []
    assert counted(effects_of_deletion(4, 1)) == {"LEASES_END": 4, "CLIENTS_REFUSED": 1}


@pytest.mark.parametrize(
    ("before", "after", "facts", "words"),
    [
        (TOPIC, EARLY, REPLICATED, "a failover may lose"),
        (EARLY, TOPIC, REPLICATED, "refused while too few"),
        (EARLY, replace(TOPIC, replication=ReplicationMode.SYNC), REPLICATED, "refused while"),
        (TOPIC, EARLY, BUSY, "^none, as the shard of this node has one replica"),
        (EARLY, TOPIC, BUSY, "^none, "),
        (TOPIC, replace(TOPIC, replication=ReplicationMode.SYNC), BUSY, "^none, "),
    ],
)
def test_another_replication_says_what_it_means_here(
    before: TopicSettings, after: TopicSettings, facts: TopicFacts, words: str
) -> None:
    [effect] = effects_on_topic(before, after, facts)
    assert (effect.code, effect.count) == ("REPLICATION_CHANGES", None)
    assert re.search(words, effect.detail)

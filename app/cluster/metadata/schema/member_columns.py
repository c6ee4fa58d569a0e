"""What members say of themselves, and entries of the rebalance history, as JSON and back. Pure.

profile  {"subscriptions": [[topic, filter]], "strategy": null | {…}, "room": "",
          "queues": [[topic, queue id]], "principal": null}
detail   {"client_ids": […], "members": […], "strategy": "averagely", "queues": 4, "moved": 2}
"""

import json
from typing import Any

from app.domain.consumers.membership import (
    Profile,
    QueueName,
    Rebalance,
    RebalanceReason,
    Strategy,
    StrategyName,
    TopicSubscription,
)


def profile_to_json(profile: Profile) -> str:
    """One text for one profile."""
    strategy = profile.strategy
    value = {
        "subscriptions": profile.subscriptions,
        "strategy": None
        if strategy is None
        else {
            "name": strategy.name,
            "virtual_nodes": strategy.virtual_nodes,
            "rooms": strategy.rooms,
            "brokers": strategy.brokers,
            "inner": strategy.inner,
        },
        "room": profile.room,
        "queues": profile.queues,
        "principal": profile.principal,
    }
    return json.dumps(value, sort_keys=True)


def profile_from_json(text: str) -> Profile:
    """Invert `profile_to_json`."""
    value: dict[str, Any] = json.loads(text)
    strategy = value["strategy"]
    return Profile(
        tuple(TopicSubscription(*each) for each in value["subscriptions"]),
        None
        if strategy is None
        else Strategy(
            StrategyName(strategy["name"]),
            strategy["virtual_nodes"],
            tuple(strategy["rooms"]),
            tuple((topic, tuple(names)) for topic, names in strategy["brokers"]),
            StrategyName(strategy["inner"]),
        ),
        value["room"],
        tuple(QueueName(*each) for each in value["queues"]),
        value.get("principal"),
    )


def detail_to_json(entry: Rebalance) -> str:
    """What has no column of its own."""
    return json.dumps(
        {
            "client_ids": entry.client_ids,
            "members": entry.members,
            "strategy": entry.strategy,
            "queues": entry.queues,
            "moved": entry.moved,
        },
        sort_keys=True,
    )


def rebalance_of(generation: int, at_ms: int, reason: str, detail: str) -> Rebalance:
    """Invert `detail_to_json`, with the columns."""
    value: dict[str, Any] = json.loads(detail)
    return Rebalance(
        generation,
        at_ms,
        RebalanceReason(reason),
        tuple(value["client_ids"]),
        tuple(value["members"]),
        StrategyName(value["strategy"]),
        value["queues"],
        value["moved"],
    )

"""What the node says about changes."""

from typing import Literal, TypedDict

EffectCode = Literal[
    "LEASES_END", "QUEUES_GROW_FOR_EVER", "KEYS_MOVE", "ORDER_CHANGES", "CLIENTS_REFUSED"
]


class Effect(TypedDict):
    """What a change does to those who are at work. `count`: of what `detail` names; null:
    not known."""

    code: EffectCode
    detail: str
    count: int | None

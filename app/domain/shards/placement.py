"""To which shard a new queue goes: the one with the fewest queues, and another than its neighbour.

A queue never moves, so this is asked once for each. Pure.
"""

from collections.abc import Mapping


def placed(counts: Mapping[str, int], number: int, neighbour: str | None) -> list[str]:
    """The shards of the next `number` queues of a topic, in order; there is at least one shard.

    `counts` has the queues of each shard that takes new ones; `neighbour` is the shard of the
    topic's last queue. Of two with as many queues the first by name is taken.
    """
    held = dict(sorted(counts.items()))
    chosen: list[str] = []
    for _ in range(number):
        others = [name for name in held if name != neighbour] or list(held)
        neighbour = min(others, key=held.__getitem__)
        held[neighbour] += 1
        chosen.append(neighbour)
    return chosen

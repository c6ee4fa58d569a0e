"""Which member of a group gets which queue: RocketMQ's six allocation strategies. Pure.

For the same sorted queues and the same sorted client ids every strategy gives what RocketMQ 4.9 and
5.x give (the algorithms are facts from its sources, the code is ours); golden results of the Java
classes are in the tests. RocketMQ lets every client compute its own share; here the server does,
and so the whole allocation is made in one pass. No input is changed, nothing is kept.

Inputs are sorted by the caller: queues as `MessageQueue` sorts (topic, broker name, queue id),
client ids as text. Where RocketMQ throws because a list is empty, the answer here is empty.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import md5
from typing import Final, NamedTuple

VIRTUAL_NODES: Final = 10
"""Places of one client on the ring; RocketMQ's default."""

NO_BROKER: Final = "curlew"
"""The broker name of a queue for which nobody named one."""

Allocation = dict[str, list["MessageQueue"]]
"""Client id → its queues, in the order in which RocketMQ lists them. Every client has an entry."""

Allocate = Callable[[Sequence["MessageQueue"], Sequence[str]], Allocation]


class MessageQueue(NamedTuple):
    """A queue under RocketMQ's name for it. Its text is what consistent hashing hashes."""

    topic: str
    broker_name: str
    queue_id: int

    @property
    def key(self) -> str:
        return (
            f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, "
            f"queueId={self.queue_id}]"
        )


def averagely(queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Allocation:
    """AVG: neighbouring queues, the first clients one more where it does not divide evenly."""
    allocation: Allocation = {}
    share, rest = divmod(len(queues), len(client_ids)) if client_ids else (0, 0)
    start = 0
    for index, client_id in enumerate(client_ids):
        end = start + share + (index < rest)
        allocation[client_id] = list(queues[start:end])
        start = end
    return allocation


def averagely_by_circle(queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Allocation:
    """AVG_BY_CIRCLE: dealt out one by one, like cards."""
    count = len(client_ids)
    return {client_id: list(queues[index::count]) for index, client_id in enumerate(client_ids)}


def consistent_hash(
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    *,
    virtual_nodes: int = VIRTUAL_NODES,
) -> Allocation:
    """CONSISTENT_HASH: a ring of MD5 hashes; few queues move when a member comes or goes.

    Of two places with the same hash the later client's counts, as in RocketMQ.
    """
    allocation: Allocation = {client_id: [] for client_id in client_ids}
    ring = {
        _ring_hash(f"{client_id}-{index}"): client_id
        for client_id in client_ids
        for index in range(virtual_nodes)
    }
    places = sorted(ring)
    if not places:
        return allocation
    for queue in queues:
        at = bisect_left(places, _ring_hash(queue.key))
        allocation[ring[places[at % len(places)]]].append(queue)
    return allocation


def _ring_hash(text: str) -> int:
    """The first four bytes of the MD5 digest, big-endian, unsigned."""
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4])


def by_configuration(
    configured: Mapping[str, Sequence[MessageQueue]], client_ids: Sequence[str]
) -> Allocation:
    """CONFIG: each client gets what its own configuration lists, whatever the others have."""
    return {client_id: list(configured.get(client_id, ())) for client_id in client_ids}


def machine_room(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], *, rooms: Collection[str]
) -> Allocation:
    """MACHINE_ROOM: queues of brokers named `room@broker` in one of `rooms`; others go to nobody.

    Neighbouring queues, an even share for all; what is left over goes one by one to the first.
    """
    kept = [queue for queue in queues if _room_prefix(queue.broker_name) in rooms]
    share, rest = divmod(len(kept), len(client_ids)) if client_ids else (0, 0)
    allocation: Allocation = {}
    for index, client_id in enumerate(client_ids):
        allocation[client_id] = kept[index * share : (index + 1) * share]
        if index < rest:
            allocation[client_id].append(kept[share * len(client_ids) + index])
    return allocation


def _room_prefix(broker_name: str) -> str | None:
    """`room` of `room@broker`; None for other forms. Java's split forgets empty parts at the end,
    so `room@broker@` is one, too."""
    parts = broker_name.split("@")
    while parts and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 2 else None


def room_of_broker(broker_name: str) -> str:
    """The room that a broker name says: what is before the `@`; empty when there is none."""
    room, at, _ = broker_name.partition("@")
    return room if at else ""


def machine_room_nearby(
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    *,
    room_of_client: Callable[[str], str],
    room_of_queue: Callable[[MessageQueue], str] = lambda queue: room_of_broker(queue.broker_name),
    inner: Allocate = averagely,
) -> Allocation:
    """MACHINE_ROOM_NEARBY: queues go to clients of their room, by the strategy `inner`; queues of
    rooms without a client are shared by all. First the own room's queues, then those of other
    rooms in the order of the rooms' names. RocketMQ refuses a queue without a room; here it is in
    a room of its own, without clients.
    """
    queues_by_room: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        queues_by_room.setdefault(room_of_queue(queue), []).append(queue)
    clients_by_room: dict[str, list[str]] = {}
    for client_id in client_ids:
        clients_by_room.setdefault(room_of_client(client_id), []).append(client_id)
    allocation: Allocation = {client_id: [] for client_id in client_ids}
    own = [room for room in queues_by_room if room and room in clients_by_room]
    foreign = [room for room in sorted(queues_by_room) if room not in own]
    for room in [*own, *foreign]:
        sharing = clients_by_room[room] if room in own else client_ids
        for client_id, share in inner(queues_by_room[room], sharing).items():
            allocation[client_id] += share
    return allocation

"""A member that polls, and what its answers say."""

from collections.abc import Mapping

import msgspec

from app.broker.polling.poll_values import (
    PollRequest,
    PollResult,
)
from app.domain.consumers.membership import Profile, QueueName, TopicSubscription
from app.domain.errors import (
    CurlewError,
)
from app.domain.limits import Limits
from tests.support.nodes.brokers import GROUP, TOPIC, World, never_gone

LEASE_S = Limits().member_lease_ms / 1_000
ORDERS = Profile((TopicSubscription(TOPIC),))


def queue(queue_id: int) -> QueueName:
    return QueueName(TOPIC, queue_id)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def bodies(world: World, result: PollResult) -> dict[int, list[bytes]]:
    """Queue → bodies."""
    decode = world.store.decode
    return {
        part.queue.queue_id: [decode(record).body for read in part.reads for record in read.records]
        for part in result.parts
        if part.reads
    }


def errors(result: PollResult) -> dict[tuple[int, int], type[CurlewError]]:
    """(queue, offset) → why it was refused."""
    return {(each.queue.queue_id, each.offset): type(each.error) for each in result.refused}


class Member:
    """A client that does what the answers say: the node keeps nothing for it."""

    def __init__(self, world: World, client_id: str = "w1", **more: object) -> None:
        self.world = world
        self.client_id = client_id
        self.request = msgspec.structs.replace(PollRequest(ORDERS, 0), **more)

    async def poll(self, **more: object) -> PollResult:
        request = msgspec.structs.replace(self.request, **more)
        result = await self.world.broker.poller.poll(
            GROUP, self.client_id, request, gone=never_gone
        )
        assignment = result.share.assignment
        positions = {part.queue: part.offset for part in result.parts}
        self.request = msgspec.structs.replace(
            self.request,
            generation=assignment.generation,
            assignment_id=assignment.assignment_id,
            positions=positions,
        )
        return result

    @property
    def positions(self) -> Mapping[QueueName, int]:
        return self.request.positions

    def since(self, result: PollResult, queue_id: int) -> int:
        [since] = [
            each.since_generation
            for each in result.share.assignment.assigned
            if each.queue_id == queue_id
        ]
        return since

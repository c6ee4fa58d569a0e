"""Reads of chosen queues: what one queue gave is not lost by what another says."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from curlew_client.assigned.places import Places
from curlew_client.assigned.pulling import ChosenPulls
from curlew_client.assigned.queues import OwnedQueue
from curlew_client.assigned.records import Polled, QueueName
from curlew_client.errors import ConnectionFailed, ServiceError
from curlew_client.wire.http1 import Answer
from typing_extensions import override

pytestmark = pytest.mark.anyio

Step = Callable[[OwnedQueue], Awaitable[list[Polled]]]
AWAY = ConnectionFailed("its node is down", "unknown")


class ScriptedPulls(ChosenPulls):
    """Queues 0 to n - 1; each answers with the next of its steps, then with nothing."""

    def __init__(self, *steps: list[Step]) -> None:
        options: Any = SimpleNamespace(group="billing", topics={}, start=None)
        nothing: Any = None
        super().__init__(nothing, nothing, options, lambda _decision: None, nothing)
        self.steps = dict(enumerate(map(iter, steps)))
        for number in range(len(steps)):
            name = QueueName("orders", number)
            self.queues[name] = OwnedQueue(name, 0, 0)

    @override
    async def _pull(self, queue: OwnedQueue, _count: int, _wait_s: float) -> list[Polled]:
        step = next(self.steps[queue.name.queue_id], none)
        return await step(queue)

    async def polled(self, count: int = 10, wait_s: float = 0.0) -> list[Any]:
        messages, _ = await self.read(count, wait_s, ())
        return [message.body for message in messages]


async def none(_queue: OwnedQueue) -> list[Polled]:
    return []


async def away(_queue: OwnedQueue) -> list[Polled]:
    raise AWAY


async def never(_queue: OwnedQueue) -> list[Polled]:
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


def gives(body: str) -> Step:
    async def step(queue: OwnedQueue) -> list[Polled]:
        message: Any = SimpleNamespace(owner=queue, body=body)
        return [message]

    return step


async def test_a_queue_that_is_away_takes_nothing_from_another() -> None:
    pulls = ScriptedPulls([gives("a")], [away], [gives("c")])
    assert await pulls.polled() == ["a", "c"]


async def test_where_nothing_came_the_failure_is_raised() -> None:
    with pytest.raises(ConnectionFailed):
        await ScriptedPulls([none], [away]).polled()


async def test_the_same_of_reads_that_wait() -> None:
    pulls = ScriptedPulls([none, away], [none, gives("b")])
    assert await pulls.polled(wait_s=1.0) == ["b"]


async def test_what_was_read_as_the_program_gave_up_comes_next_time() -> None:
    pulls = ScriptedPulls([gives("a")], [never])
    reading = asyncio.ensure_future(pulls.polled())
    for _ in range(5):
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await pulls.polled() == ["a"]


async def test_what_is_kept_of_a_queue_that_was_sought_is_dropped() -> None:
    pulls = ScriptedPulls([gives("a"), gives("again")], [never])
    reading = asyncio.ensure_future(pulls.polled())
    for _ in range(5):
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    await pulls.seek(QueueName("orders", 0), 0)
    assert await pulls.polled() == ["again"]


async def test_rows_that_a_shard_did_not_commit_are_no_success() -> None:
    asked: list[str] = []
    row = {"topic": "orders", "queue_id": 1, "offset": 5, "code": "SHARD_UNAVAILABLE"}

    async def call(_method: str, path: str, _body: bytes, **_: object) -> tuple[Answer, str]:
        asked.append(path)
        shown = {"offsets": [], "refused": [{**row, "detail": "away"}]}
        body = json.dumps(shown if "orders" in path else {"offsets": []}).encode()
        return Answer(207, b"", body, keep_alive=True), "http://a:1"

    session: Any = SimpleNamespace(timeout_s=1.0, options=SimpleNamespace(retries=0))
    sender: Any = SimpleNamespace(call=call)
    places = {QueueName("orders", 1): 5, QueueName("bills", 0): 2}
    with pytest.raises(ServiceError, match="away") as raised:
        await Places(session, sender).commit("billing", places)
    assert raised.value.code == "SHARD_UNAVAILABLE"
    assert len(asked) == 2
    await Places(session, sender).commit("billing", {QueueName("bills", 0): 2})

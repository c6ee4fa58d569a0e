"""Lite pull of a group's queues: what was read ahead is given only while the queue is the member's.

Without a node: a script of answers, and a clock that the test sets.
"""

import json
from collections.abc import AsyncIterator
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from curlew_client.assigned import pulling
from curlew_client.assigned.options import member_options
from curlew_client.assigned.pulling import FRESH_S, SharedPulls, given_done
from curlew_client.assigned.records import Polled, QueueName
from curlew_client.assigned.running import Patience, ask
from curlew_client.assigned.share import Said
from curlew_client.consuming.decisions import Decision
from curlew_client.errors import ConnectionFailed, InvalidRequest, StaleGeneration
from typing_extensions import override

from tests.client.assigned.test_assigned_share import ONE, TWO, message, told

pytestmark = pytest.mark.anyio

Answer = tuple[dict[str, Any], list[tuple[QueueName, list[Polled]]]] | Exception
BOTH = (ONE, 0), (TWO, 0)


class Clock:
    """Stands still until a test moves it."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class ScriptedPulls(SharedPulls):
    """Each poll has the next answer of the script."""

    takes_s = 0.0
    """How long a poll takes, by the clock of the test."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        session: Any = SimpleNamespace(client_id="me", connect_timeout_s=1, timeout_s=1)
        sender: Any = SimpleNamespace(call=self.called)
        options = member_options("billing", "orders")
        super().__init__(session, sender, options, lambda _decision: None, lambda _retries: None)
        self.script: list[Answer] = []
        self.said: list[dict[str, Any]] = []

    async def called(self, *_given: Any, **_named: Any) -> None:
        """Leave the group."""

    @override
    async def _ask(self, body: bytes, said: Said, wait_s: float) -> Any:
        self.said.append(json.loads(body))
        self.clock.now_s += self.takes_s
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            self._share.unanswered(said)
            raise answer
        return answer

    async def offsets(self, count: int = 1, paused: tuple[QueueName, ...] = ()) -> list[Any]:
        """Queue and offset of what a read gives."""
        found, _ = await self.read(count, 0.0, paused)
        return [(each.queue_id, each.offset) for each in found]


def gave(queue: QueueName, *offsets: int, **more: Any) -> Answer:
    """Messages of a queue, to a member of both."""
    messages = [message(offset, queue) for offset in offsets]
    shown = told(*BOTH, queues={queue: offsets[-1] + 1}, retries=[], **more)
    return shown, [(queue, messages)]


def nothing(*assigned: tuple[QueueName, int], **more: Any) -> Answer:
    return told(*assigned, retries=[], **more), []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pulling, "monotonic", clock)
    return clock


@pytest.fixture
async def pulls(clock: Clock) -> AsyncIterator[ScriptedPulls]:
    """Three messages of the first queue are read, and one of them is given."""
    found = ScriptedPulls(clock)
    found.script.append(gave(ONE, 0, 1, 2))
    assert await found.offsets() == [(0, 0)]
    yield found
    await found.close()


async def test_what_is_fresh_is_given_without_asking(pulls: ScriptedPulls) -> None:
    assert await pulls.offsets(5) == [(0, 1), (0, 2)]
    assert len(pulls.said) == 1


async def test_nothing_of_a_queue_that_goes_to_another_is_given(
    pulls: ScriptedPulls, clock: Clock
) -> None:
    clock.now_s += FRESH_S
    pulls.script += [nothing((TWO, 0), revoked=(ONE,), generation=2), gave(TWO, 0)]
    assert await pulls.offsets(5) == [(1, 0)]


async def test_who_was_taken_out_gives_nothing_and_joins_anew(
    pulls: ScriptedPulls, clock: Clock
) -> None:
    clock.now_s += FRESH_S
    gone = StaleGeneration("a member no more", code="STALE_GENERATION", status=409)
    pulls.script += [gone, gave(ONE, 0, generation=2, since=2)]
    assert await pulls.offsets(5) == [(0, 0)]
    assert "assignment_id" not in pulls.said[-1]


async def test_nothing_is_given_while_nobody_says_whose_it_is(
    pulls: ScriptedPulls, clock: Clock
) -> None:
    clock.now_s += FRESH_S
    pulls.script += [ConnectionFailed("its node is down", "unknown"), nothing(*BOTH)]
    with pytest.raises(ConnectionFailed):
        await pulls.offsets(5)
    assert await pulls.offsets(5) == [(0, 1), (0, 2)], "it is the member's still"


async def test_what_comes_with_a_new_queue_is_at_work_once_it_is_given(
    pulls: ScriptedPulls, clock: Clock
) -> None:
    three = QueueName("orders", 2)
    clock.now_s += FRESH_S
    new = told(*BOTH, (three, 0), queues={three: 1}, generation=2, retries=[])
    pulls.script.append((new, [(three, [message(0, three)])]))
    assert await pulls.offsets(5) == [(0, 1), (0, 2), (2, 0)]
    assert pulls.queues[three].busy


async def test_what_no_shard_takes_is_said_no_longer_than_the_timeout(
    pulls: ScriptedPulls,
) -> None:
    given_done([*pulls.queues[ONE]._held])
    pulls.said.clear()
    pulls.takes_s = 0.6  # of 1 s
    pulls.script += [nothing(*BOTH)] * 3
    await pulls.say()
    assert len(pulls.said) == 2


async def test_a_poll_for_another_node_says_the_same_and_waits_not(pulls: ScriptedPulls) -> None:
    found, _ = await pulls.read(5, 0.0, ())
    pulls.hand_back(Decision("nack", found[0]))
    share = pulls._share
    body, said = share.poll(10, 2.0)
    asked: dict[str, Any] = {}

    async def call(*_given: Any, **named: Any) -> Any:
        asked.update(named)
        assert not share._unsure
        asked["body"] = named["again"]()
        raise ConnectionFailed("its node is down", "unknown")

    async def leader_of_most(_queues: Any) -> None:
        return None

    sender: Any = SimpleNamespace(call=call, leader_of_most=leader_of_most)
    began_s = monotonic()
    with pytest.raises(ConnectionFailed):
        await ask(sender, share, body, said, Patience(2.0, 10.0), lambda _decision: None)
    assert json.loads(asked["body"]) == {**json.loads(body), "wait": 0}
    assert share._unsure == {(ONE, 1)}, "the silent node may have taken it back"
    assert asked["timeout_s"] == 12.0
    assert 7.0 <= asked["begins_by_s"] - began_s < 12.0


async def test_a_pause_holds_nothing_when_more_is_read(pulls: ScriptedPulls) -> None:
    pulls.script += [gave(TWO, 0, 1), gave(ONE, 1, 2)]
    assert await pulls.offsets(paused=(ONE,)) == [(1, 0)]
    assert (pulls.queues[ONE].count, pulls.queues[ONE].bytes) == (1, 1), "what was given"
    assert await pulls.offsets(paused=(TWO,)) == [(0, 1)], "it is read again, from its place"
    assert position(pulls.said[-1], ONE) == 1
    assert await pulls.offsets() == [(0, 2)]


async def test_a_pause_forgets_only_what_was_read_last(pulls: ScriptedPulls) -> None:
    pulls.queues[ONE].add([message(3)])  # as if more had been read behind it
    pulls.script.append(gave(TWO, 0))
    assert await pulls.offsets(paused=(ONE,)) == [(1, 0)]
    assert await pulls.offsets(5) == [(0, 1), (0, 2)], "what is not the last is kept"


def position(said: dict[str, Any], queue: QueueName) -> int:
    (found,) = [each for each in said["positions"] if each["queue_id"] == queue.queue_id]
    return int(found["offset"])


async def test_a_node_that_gives_fewer_at_once_is_asked_for_what_it_gives(
    pulls: ScriptedPulls,
) -> None:
    fields = {"parameter": "max_messages", "min": 1, "max": 100}
    refused = InvalidRequest("too many", code="BAD_REQUEST", status=400, fields=fields)
    await pulls.offsets(2)
    pulls.script = [refused, gave(ONE, 3), nothing(*BOTH)]
    assert await pulls.offsets() == [(0, 3)]
    assert await pulls.offsets() == []
    assert [said["max_messages"] for said in pulls.said] == [1_000, 1_000, 100, 100]
    pulls.script = [refused]
    with pytest.raises(InvalidRequest):  # the program has asked for more itself
        await pulls.offsets(101)

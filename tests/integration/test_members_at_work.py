"""Members of a group at work over HTTP while others join, leave, freeze, die and come back.

A real node on real sockets and files; the lease is short, so that a frozen member is missed soon.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from app.domain.limits import Limits
from tests.support.clients.wire import Served, served_node
from tests.support.nodes.patience import PatientTransport
from tests.support.nodes.pull_members import History, PullMember, Queue, checked, repeated

pytestmark = pytest.mark.anyio

TOPIC, GROUP = "orders", "billing"
LIMITS = Limits(member_lease_ms=5_000)
PATIENCE_S = 90.0


class Crew:
    """Processes, and what an operator sees of them."""

    def __init__(self, http: httpx.AsyncClient, tasks: asyncio.TaskGroup) -> None:
        self.http = http
        self.history = History()
        self.over = asyncio.Event()
        self._tasks = tasks
        self._runs: dict[str, asyncio.Task[None]] = {}

    def start(self, client_id: str, name: str | None = None, *, obeys: bool = True) -> PullMember:
        member = PullMember(
            self.http, GROUP, TOPIC, client_id, name or client_id, self.history, obeys=obeys
        )
        self._runs[member.name] = self._tasks.create_task(member.run(self.over))
        return member

    async def kill(self, member: PullMember) -> None:
        run = self._runs.pop(member.name)
        run.cancel()
        self.history.lost.add(member.name)
        await asyncio.wait([run])

    async def json(self, path: str) -> dict[str, object]:
        answer = await self.http.get(path)
        answer.raise_for_status()
        document = answer.json()
        assert isinstance(document, dict)
        return document

    async def owners(self) -> dict[Queue, str]:
        answer = (await self.http.get(f"/v1/groups/{GROUP}/members")).json()
        return {
            (queue["topic"], queue["queue_id"]): member["client_id"]
            for member in answer.get("members", ())
            for queue in member["assigned"]
        }

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await condition():  # noqa: ASYNC110 - over HTTP there is no event
                await asyncio.sleep(0.05)

    async def settled(self, *client_ids: str) -> None:
        """Wait until these, and only these, own all queues."""

        async def is_settled() -> bool:
            stats = await self.json(f"/v1/topics/{TOPIC}/stats")
            owners = await self.owners()
            queues = stats["queues"]
            assert isinstance(queues, list)
            return len(owners) == len(queues) and set(owners.values()) == set(client_ids)

        await self.until(is_settled)

    async def send(self, count: int) -> None:
        for _ in range(count // 50):
            messages = [{"text": "x", "sharding_key": str(number)} for number in range(50)]
            answer = await self.http.post(
                f"/v1/topics/{TOPIC}/messages:batch", json={"messages": messages}
            )
            answer.raise_for_status()

    async def ends(self) -> dict[Queue, int]:
        stats = await self.json(f"/v1/topics/{TOPIC}/stats")
        queues = stats["queues"]
        assert isinstance(queues, list)
        return {(TOPIC, queue["queue_id"]): queue["max_offset"] for queue in queues}

    async def committed(self) -> dict[Queue, int]:
        answer = (await self.http.get(f"/v1/groups/{GROUP}/offsets/{TOPIC}")).json()
        return {(TOPIC, each["queue_id"]): each["offset"] for each in answer.get("offsets", ())}

    async def finish(self) -> list[str]:
        """Wait until everything is committed, stop all, and say what was wrong."""

        async def is_done() -> bool:
            return await self.committed() == await self.ends()

        await self.until(is_done)
        self.over.set()
        await asyncio.wait(self._runs.values())
        return checked(self.history, await self.ends(), await self.committed())


async def put_topic(http: httpx.AsyncClient, queues: int) -> None:
    answer = await http.put(f"/v1/topics/{TOPIC}", json={"queues": queues, "flush": "async"})
    answer.raise_for_status()


def client_of(served: Served) -> httpx.AsyncClient:
    url = f"http://127.0.0.1:{served.port}"
    return httpx.AsyncClient(base_url=url, timeout=60, transport=PatientTransport())


async def test_queues_have_one_reader_through_all_changes(tmp_path: Path) -> None:
    async with (
        served_node(tmp_path, LIMITS) as served,
        client_of(served) as http,
        asyncio.TaskGroup() as tasks,
    ):
        await put_topic(http, 8)
        crew = Crew(http, tasks)
        sending = tasks.create_task(crew.send(1_000))
        first, second = crew.start("a"), crew.start("b")
        third = crew.start("c")
        await crew.settled("a", "b", "c")

        frozen = second
        frozen.freeze()
        await crew.settled("a", "c")
        late = {
            "offsets": [{"queue_id": 0, "offset": 0}],
            "client_id": frozen.client_id,
            "generation": frozen.generation,
        }
        answer = await http.put(f"/v1/groups/{GROUP}/offsets/{TOPIC}", json=late)
        assert (answer.status_code, answer.json()["code"]) == (409, "STALE_GENERATION")
        frozen.awake.set()
        await crew.settled("a", "b", "c")

        await crew.kill(third)
        crew.start("c", "c again")
        crew.start("d")
        await crew.settled("a", "b", "c", "d")
        await put_topic(http, 12)
        await crew.settled("a", "b", "c", "d")

        await crew.kill(first)
        await http.delete(f"/v1/groups/{GROUP}/members/a")
        await crew.settled("b", "c", "d")
        await sending
        await crew.send(500)
        assert await crew.finish() == []

        history = (await http.get(f"/v1/groups/{GROUP}/rebalances")).json()["rebalances"]
        generations = [entry["generation"] for entry in history]
        assert generations == list(range(generations[0], 0, -1))
        assert {entry["reason"] for entry in history} == {
            *("member_joined", "member_restarted", "member_left", "member_silent"),
            "queues_changed",
        }
        assert len(crew.history.reads) >= 1_500
        assert repeated(crew.history.reads) <= crew.history.lost


async def test_the_check_notices_a_member_that_does_not_let_go(tmp_path: Path) -> None:
    async with (
        served_node(tmp_path, LIMITS) as served,
        client_of(served) as http,
        asyncio.TaskGroup() as tasks,
    ):
        await put_topic(http, 4)
        crew = Crew(http, tasks)
        await crew.send(200)
        crew.start("a", obeys=False)
        await crew.settled("a")
        crew.start("b")
        await crew.settled("a", "b")
        faults = await crew.finish()
        assert any("was given" in fault for fault in faults), faults

"""What pages of lists tell of what is not in them: neither where it stands, nor how much it is.

Teams share the order of delayed messages, the names of schedules and the notes of traces. Who lists
its own learns nothing exact of the others', and has all of its own.
"""

from typing import Any

import pytest

from app.broker.results import Nack
from app.domain.limits import Limits
from app.domain.message import Message
from tests.support.nodes.closed import ClosedNode, closed_node, principal
from tests.support.stores.clock import START_MS

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000
FEW = 8
"""Waiting messages that a page looks at."""


async def delay(node: ClosedNode, team: str, due_ms: int, body: bytes = b"x") -> None:
    headers = {"MQ-Deliver-At": str(due_ms)}
    path = f"/v1/topics/{team}-in/messages"
    sent = await node.ask("admin", "POST", path, body, headers=headers)
    assert sent.status in {200, 201, 202}, sent.body


async def pages(
    node: ClosedNode, who: str, path: str, rows: str, query: str
) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """All pages of a list, and the tokens that led from one to the next."""
    found: list[list[dict[str, Any]]] = []
    tokens: list[str] = []
    while True:
        token = f"&page_token={tokens[-1]}" if tokens else ""
        answer = (await node.ask(who, "GET", path, query=query + token)).json()
        found.append(answer[rows])
        if answer["next_page_token"] is None:
            return found, tokens
        assert answer["next_page_token"] not in tokens
        tokens.append(answer["next_page_token"])


@pytest.mark.parametrize("path", ["/v1/topics/alpha-in/scheduled", "/v1/scheduled"])
async def test_delayed_messages_of_others_are_passed_by_without_a_trace(path: str) -> None:
    async with closed_node(limits=Limits(scheduled_scan_max=FEW)) as node:
        due_ms = START_MS + HOUR_MS
        theirs = [due_ms + 61_234 * each + 1 for each in range(5 * FEW)]
        theirs += [due_ms + 77] * 3 * FEW
        own = [due_ms, due_ms + 77, due_ms + 30 * 61_234]
        for each in theirs:
            await delay(node, "beta", each)
        for each in own:
            await delay(node, "alpha", each)
        found, tokens = await pages(node, "alpha", path, "messages", "page_size=2")
        assert [each["deliver_time_ms"] for page in found for each in page] == own
        said = {int(token.partition("-")[0]) for token in tokens}
        assert said.isdisjoint(set(theirs) - set(own)), "a token is another team's due time"


async def test_behind_the_last_delayed_message_of_ones_own_there_is_no_page() -> None:
    async with closed_node() as node:
        await delay(node, "alpha", START_MS + HOUR_MS)
        path = "/v1/topics/alpha-in/scheduled"
        before = (await node.ask("alpha", "GET", path, query="page_size=1")).body
        await delay(node, "beta", START_MS + 2 * HOUR_MS)
        assert (await node.ask("alpha", "GET", path, query="page_size=1")).body == before


async def test_behind_the_last_schedule_of_ones_own_there_is_no_page() -> None:
    async with closed_node() as node:
        node.access.show(
            [principal(team, "producer", to=[f"topic:{team}-*"]) for team in ("alpha", "beta")]
        )
        for team, name in (("alpha", "m"), ("beta", "z"), ("beta", "b"), ("alpha", "a")):
            body = {"cron": "0 3 * * *", "topic": f"{team}-in", "message": {"text": "x"}}
            made = await node.ask(team, "PUT", f"/v1/schedules/{name}", body)
            assert made.status == 201, made.body
        found, tokens = await pages(node, "alpha", "/v1/schedules", "schedules", "page_size=1")
        assert [[each["name"] for each in page] for page in found] == [["a"], ["m"]]
        assert tokens == ["a"]


async def test_a_search_of_traces_counts_no_notes_of_others() -> None:
    async with closed_node() as node:
        world = node.world
        query = f"since_ms=0&until_ms={START_MS + HOUR_MS}"

        async def scanned(who: str, topic: str, more: str = "") -> int:
            answer = await node.ask(who, "GET", f"/v1/topics/{topic}/trace", query=query + more)
            return int(answer.json()["scanned"])

        await world.broker.sender.send("alpha-in", Message(b"x", keys=("k",)))
        before = [await scanned("alpha", "alpha-in", each) for each in ("", "&key=k")]
        for _ in range(3):
            await world.broker.sender.send("beta-in", Message(b"x"))
        (received,) = await world.receive(1, topic="alpha-in", group="beta-g")
        await world.broker.settler.settle(
            "alpha-in", "beta-g", nacks=[Nack(received.receipt_handle, 1_000, "no")]
        )
        assert [await scanned("alpha", "alpha-in", each) for each in ("", "&key=k")] == before
        assert await scanned("admin", "alpha-in") > before[0]

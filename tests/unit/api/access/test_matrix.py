"""Every operation, asked by every role and by three teams, with their own names and with those of
each other team, in path, query, header, body and by id, of a closed node; and by anybody, of a
closed and of an open one.

What is asked and who may is in `tests.support.nodes.access_matrix`. Refused by name: 403, the same
bytes for what is there and what is not. By id: as if it were not there. Positive controls: handlers
that do not ask for what a body or a header names, and a node that decides on nothing; the matrix
notices each.
"""

import asyncio
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from app.api.access.named_elsewhere import NamedElsewhere
from app.api.access.operation_rights import OperationRights
from app.api.control.operation_list import OPERATIONS
from app.api.operations.operation import Operation
from app.domain.access.standing import Standing
from app.domain.limits import Limits
from tests.support.clients.asgi import Answer
from tests.support.nodes.access_matrix import (
    BODIES,
    BY_ID,
    ELSEWHERE,
    LISTS,
    MISSING,
    OWN,
    PRINCIPALS,
    QUERIES,
    TEAMS,
    Elsewhere,
    cells,
    filled,
    ids_of,
    may,
    may_all,
    may_make,
    may_path,
    operation_of,
    own_of,
    path_of,
    teams_of,
    undescribed,
    waiting_request,
)
from tests.support.nodes.closed import ClosedNode, closed_node

pytestmark = pytest.mark.anyio

PARTS = 4
DOCS = Path(__file__).parents[4] / "docs" / "security" / "rights.md"


async def ask_path(node: ClosedNode, who: str | None, operation: Operation, team: str) -> Answer:
    return await node.ask(
        who,
        operation.method,
        path_of(operation, who or "c1", team),
        BODIES.get(operation.operation_id),
        query=QUERIES.get(operation.operation_id, ""),
    )


def is_refused(answer: Answer) -> bool:
    return answer.status in {401, 403}


async def make_anew(node: ClosedNode) -> None:
    """What an earlier cell may have deleted."""
    for team in TEAMS:
        await node.world.topic(2, name=f"{team}-in")
        await node.world.metadata.ensure_group(f"{team}-g")


async def wrong_in_paths(operation: Operation, node: ClosedNode) -> list[str]:
    """Cells of one operation, with names in its path, that are not answered as they should be."""
    wrong = []
    for who in PRINCIPALS:
        for team in teams_of(who):
            await make_anew(node)
            allowed = may_path(who, operation, team)
            answer = await ask_path(node, who, operation, team)
            cell = f"{operation.operation_id} {who} {team}: {answer.status}"
            is_broken = answer.status >= 500 and answer.status != 504
            if is_broken or (not allowed and answer.status != 403):
                wrong.append(cell)
            elif allowed and is_refused(answer) and not _asks_for_more(operation):
                wrong.append(f"{cell} {answer.body!r}")
            if not (allowed or may_make(who, operation, team)) and team != own_of(who):
                missing = await ask_path(node, who, operation, MISSING)
                if missing.body.replace(b"zeta", team.encode()) != answer.body:
                    wrong.append(f"{cell}: differs from what is missing")
    return wrong


def _asks_for_more(operation: Operation) -> bool:
    """Whether what the path allows is not enough: see the other tables."""
    return any(each.operation_id == operation.operation_id for each in ELSEWHERE)


@pytest.mark.parametrize("part", range(PARTS))
async def test_names_in_the_path(part: int) -> None:
    async with closed_node() as node:
        wrong = [await wrong_in_paths(each, node) for each in OPERATIONS[part::PARTS]]
    assert [cell for cells_of_one in wrong for cell in cells_of_one] == []


async def wrong_elsewhere(asked: Elsewhere, node: ClosedNode) -> list[str]:
    """The same with a name in another place."""
    operation, wrong = operation_of(asked.operation_id), []
    for who in PRINCIPALS:
        for team in teams_of(who):
            await make_anew(node)
            own = may_path(who, operation, own_of(who))
            allowed = own and may_all(who, asked.needs, team)
            answer = await ask_elsewhere(node, who, asked, team)
            cell = f"{asked.operation_id} {asked.place} {who} {team}: {answer.status}"
            if (answer.status == 403) is allowed or answer.status in {401, 500}:
                wrong.append(f"{cell} {answer.body!r}")
            if not allowed and team != own_of(who):
                missing = await ask_elsewhere(node, who, asked, MISSING)
                if missing.body.replace(b"zeta", team.encode()) != answer.body:
                    wrong.append(f"{cell}: differs from what is missing")
    return wrong


async def ask_elsewhere(node: ClosedNode, who: str | None, asked: Elsewhere, team: str) -> Answer:
    operation = operation_of(asked.operation_id)
    return await node.ask(
        who,
        operation.method,
        path_of(operation, who or "c1", own_of(who or "")),
        filled(asked.body, who or "c1", team),
        query=filled(asked.query, who or "c1", team),
        headers=filled(dict(asked.headers), who or "c1", team),
    )


@pytest.mark.parametrize("part", range(PARTS))
async def test_names_in_query_header_and_body(part: int) -> None:
    async with closed_node() as node:
        wrong = [await wrong_elsewhere(each, node) for each in ELSEWHERE[part::PARTS]]
    assert [cell for cells_of_one in wrong for cell in cells_of_one] == []


async def _named(
    node: ClosedNode, operation: Operation, team: str, ends: AsyncExitStack
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Ids of a thing of the team, and of one that is not there, of the same form."""
    if "correlation_id" in operation.names:
        correlation_id, waits = await waiting_request(node.world, team)
        ends.push_async_callback(asyncio.wait, [waits])
        ends.callback(waits.cancel)
        return {"correlation_id": correlation_id}, {"correlation_id": correlation_id[:-4] + "0000"}
    ids = await ids_of(node.world, team)
    return ids, {
        "transaction_id": "0" * len(ids["transaction_id"]),
        "handle": ids["handle"][:-4] + "AAAA",
        "operation_id": "redrive-0-0",
        "name": "zeta-s",
    }


@pytest.mark.parametrize("operation_id", BY_ID)
async def test_ids(operation_id: str) -> None:
    operation = operation_of(operation_id)
    sent: object = None
    if operation_id == "change_receipt":
        sent = {"action": "extend", "invisible": "60s"}
    elif operation_id == "patch_schedule":
        sent = {"cron": "0 4 * * *"}
    at_work = Limits(operations_running_max=64, operations_per_principal_max=64)
    async with closed_node(limits=at_work) as node:
        for who in PRINCIPALS:
            for team in teams_of(who):
                async with AsyncExitStack() as ends:
                    ids, missing_ids = await _named(node, operation, team, ends)
                    path = path_of(operation, who, team, missing_ids)
                    missing = await node.ask(who, operation.method, path, sent)
                    path = path_of(operation, who, team, ids)
                    found = await node.ask(who, operation.method, path, sent)
                allowed = may_all(who, BY_ID[operation_id], team)
                cell = f"{who} {team}: {found.status} {found.body!r}"
                assert missing.status in {400, 404, 410}, cell
                assert (found.status < 300) is allowed, cell
                if not allowed:
                    assert found.status == missing.status, cell
                    said = found.body
                    for name, text in ids.items():
                        said = said.replace(text.encode(), missing_ids[name].encode())
                    assert said == missing.body


@pytest.mark.parametrize("who", PRINCIPALS)
async def test_lists_have_what_one_may_know_of(who: str) -> None:
    async with closed_node() as node:
        for team in TEAMS:
            await ids_of(node.world, team)

        async def names(path: str, member: str, key: str) -> set[str]:
            rows = (await node.ask(who, "GET", path)).json()[member]
            return {row[key] for row in rows if row[key] != "orders"}

        seen = {each for each in TEAMS if may(who, "GET", "topic", f"{each}-in")}
        assert await names("/v1/topics", "topics", "name") == {f"{each}-in" for each in seen}
        groups = {f"{each}-g" for each in TEAMS if may(who, "GET", "group", f"{each}-g")}
        assert await names("/v1/groups", "groups", "name") == groups
        sent = {each for each in TEAMS if may(who, "PUB", "topic", f"{each}-in")}
        assert await names("/v1/schedules", "schedules", "name") == {f"{e}-s" for e in sent}
        known = {each for each in sent if may(who, "GET", "producer", f"{each}-pg")}
        found = await names("/v1/transactions", "transactions", "topic")
        assert found == {f"{each}-in" for each in known}
        jobs = (await node.ask(who, "GET", "/v1/operations")).json()["operations"]
        assert len(jobs) == len(groups)
        for path in ("/v1/topics:positions", "/v1/topics:offsets"):
            query = "topics=alpha-in,beta-in,gamma-in,zeta-in" + (
                "&at=latest" * path.endswith("offsets")
            )
            answer = (await node.ask(who, "GET", path, query=query)).json()
            assert {each["topic"] for each in answer["topics"]} == {f"{e}-in" for e in seen}
            hidden = {f"{each}-in" for each in (*TEAMS, MISSING) if each not in seen}
            assert set(answer["missing"]) == hidden


async def asked_without_a_key(*, is_closed: bool) -> set[str]:
    """Operations that were not refused."""
    async with closed_node(is_closed=is_closed) as node:
        return {
            operation.operation_id
            for operation in OPERATIONS
            if not is_refused(await ask_path(node, None, operation, OWN))
        }


async def test_without_a_key_a_closed_node_serves_two_and_an_open_one_all() -> None:
    assert await asked_without_a_key(is_closed=True) == {"get_health", "get_readiness"}
    assert await asked_without_a_key(is_closed=False) == {e.operation_id for e in OPERATIONS}


def test_every_operation_is_described() -> None:
    """One that names something besides its path needs a row in `ELSEWHERE`, `BY_ID` or `LISTS`."""
    assert undescribed() == []
    assert set(LISTS) <= {each.operation_id for each in OPERATIONS}


def test_the_page_counts_the_cells() -> None:
    said = re.search(r"over ([\d,]+) cells", DOCS.read_text(encoding="utf-8"))
    assert said is not None
    count = len(list(cells())) + 2 * len(OPERATIONS)
    assert int(said[1].replace(",", "")) <= count


# --- positive controls


async def noticed(operation_id: str) -> list[str]:
    """What is wrong with the first that `ELSEWHERE` has of an operation."""
    asked = next(each for each in ELSEWHERE if each.operation_id == operation_id)
    async with closed_node() as node:
        return await wrong_elsewhere(asked, node)


async def test_a_body_that_is_not_asked_for_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NamedElsewhere, "topics_sent_to", lambda *_: None)
    assert any("alpha beta" in each for each in await noticed("settle_messages"))


@pytest.mark.parametrize(
    "operation_id", ["send_message", "redrive_dead_letters", "seal_producer", "put_schedule"]
)
async def test_names_that_nobody_asks_for_are_noticed(
    operation_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(standing: Standing, *_: object) -> None:
        standing.for_anybody()

    monkeypatch.setattr(Standing, "require", nothing)
    monkeypatch.setattr(Standing, "require_family", nothing)
    assert any(" beta: " in each for each in await noticed(operation_id))


async def test_a_node_that_decides_on_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def anything(_: OperationRights, standing: Standing, *__: object) -> None:
        standing.for_anybody()

    monkeypatch.setattr(OperationRights, "require", anything)
    async with closed_node() as node:
        assert await wrong_in_paths(operation_of("get_topic"), node) != []

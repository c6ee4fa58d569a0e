"""Two teams in each other's topics and groups: no answer to one has a name of the other in it.

An administrator made a mess: each team's group reads the other's topic (offsets, members, leases,
retries, dead letters), and each team's producers send to the other's. Every GET that a team may
have on its own names is asked, and the lists. (Who owns a topic sees the schedules that send to it,
and the clients.) Positive control: without the filter of rows it
shows.
"""

import pytest

from app.api.control.operation_list import OPERATIONS
from app.broker.results import Nack
from app.domain.access.standing import Standing
from app.domain.message import Message
from tests.support.nodes.access_matrix import QUERIES, path_of
from tests.support.nodes.closed import EVERYBODY, ClosedNode, closed_node, principal

pytestmark = pytest.mark.anyio

TEAMS = ("alpha", "beta")
ROLES = ("producer", "consumer", "operator")
SEQUENCE = {"MQ-Producer-Epoch": "1", "MQ-Producer-Seq": "0"}


def team(name: str) -> object:
    kinds = ("topic", "group", "producer")
    return principal(name, *ROLES, to=tuple(f"{kind}:{name}-*" for kind in kinds))


async def mess(node: ClosedNode) -> None:
    """Each team in what is the other's."""
    broker = node.world.broker
    for own, other in (TEAMS, TEAMS[::-1]):
        topic, group = f"{other}-in", f"{own}-g"
        for number in range(3):
            await broker.sender.send(topic, Message(b"%d" % number, keys=("k",)))
        for body in (b"s", b"t"):
            headers = {
                "MQ-Producer-Id": f"{own}-job",
                **SEQUENCE,
                "MQ-Producer-Seq": str(int(body == b"t")),
                **({"MQ-Client-Id": "c1"} if body == b"s" else {}),
            }
            await node.ask("admin", "POST", f"/v1/topics/{topic}/messages", body, headers=headers)
        half = {"MQ-Transaction": f"prepare; group={own}-pg"}
        await node.ask("admin", "POST", f"/v1/topics/{topic}/messages", b"h", headers=half)
        received = await node.world.receive(3, topic=topic, group=group)
        nacks = [Nack(received[0].receipt_handle, 1_000, f"of {topic}")]
        letters = [Nack(received[1].receipt_handle, None, "bad")]
        await broker.settler.settle(topic, group, nacks=nacks, dead_letters=letters)
        schedule = {"cron": "0 3 * * *", "topic": topic, "message": {"text": "x"}}
        await node.ask("admin", "PUT", f"/v1/schedules/{other}-s", schedule)
        await node.ask("admin", "PUT", f"/v1/groups/{group}/snapshots/{own}-s")
    for name in TEAMS:
        own, other = name, TEAMS[1 - TEAMS.index(name)]
        subscribed = {"subscriptions": [{"topic": f"{other}-pulled"}, {"topic": f"{own}-pulled"}]}
        await node.ask("admin", "PUT", f"/v1/groups/{own}-pull/members/{own}-m", subscribed)
        commit = {"offsets": [{"queue_id": 0, "offset": 0}]}
        await node.ask("admin", "PUT", f"/v1/groups/{own}-pull/offsets/{other}-pulled", commit)


async def shown(node: ClosedNode, who: str) -> dict[str, str]:
    """What is answered to a team about its own names, by request."""
    found = {}
    for operation in OPERATIONS:
        if operation.method != "GET" or "stream" in operation.path:
            continue
        for group in ("g", "pull"):
            path = path_of(operation, who, who, {"group": f"{who}-{group}"})
            for query in (QUERIES.get(operation.operation_id, ""), "topics=alpha-in,beta-in"):
                if ("topics=" in query) is not (":" in operation.path):
                    continue
                more = "&at=latest" if operation.path.endswith(":offsets") else ""
                answer = await node.ask(who, "GET", path, query=query + more)
                if answer.status == 200:
                    found[f"{operation.operation_id} {path}"] = answer.body.decode("latin-1")
    return found


def names_of(other: str) -> list[str]:
    things = ("in", "g", "pull", "pulled", "job", "pg", "m", "s")
    return [f"{other}-{each}" for each in things]


async def leaks(node: ClosedNode) -> list[str]:
    found = []
    for who, other in (TEAMS, TEAMS[::-1]):
        answers = await shown(node, who)
        assert len(answers) > 25, sorted(answers)
        for asked, text in answers.items():
            said = text
            if asked.startswith(("get_positions", "get_offsets_of_topics", "get_routes")):
                said = said.replace(f'"missing":["{other}-in"]', "")  # as it was asked
            hit = [each for each in names_of(other) if f'"{each}"' in said or f"'{each}'" in said]
            found += [f"{asked}: {hit} in {said[:600]}"] if hit else []
    return found


@pytest.fixture
async def node_in_a_mess() -> object:
    async with closed_node() as node:
        for name in TEAMS:
            await node.world.topic(1, name=f"{name}-pulled")
            await node.world.metadata.ensure_group(f"{name}-pull")
        await mess(node)
        rest = [each for each in EVERYBODY if each.name not in TEAMS]
        node.access.show([*rest, *map(team, TEAMS)])  # type: ignore[list-item]
        yield node


async def test_no_answer_has_a_name_of_another_team(node_in_a_mess: ClosedNode) -> None:
    assert await leaks(node_in_a_mess) == []


async def test_a_member_hears_nothing_of_what_others_of_its_group_read(
    node_in_a_mess: ClosedNode,
) -> None:
    node, path = node_in_a_mess, "/v1/groups/alpha-pull/members"
    reads = [{"topic": "beta-pulled", "filter": f"tag{number}"} for number in range(2)]
    for number, each in enumerate(reads):
        query = "replace_subscription=true"
        await node.ask("admin", "PUT", f"{path}/b{number}", {"subscriptions": [each]}, query=query)
    mine = {"subscriptions": [{"topic": "alpha-pulled"}]}
    asked = [
        await node.ask("alpha", "PUT", f"{path}/own", mine),
        await node.ask("alpha", "POST", f"{path}:poll", {**mine, "client_id": "own"}),
        await node.ask("alpha", "GET", path),
    ]
    for answer in asked:
        assert answer.status == 200
        text = answer.body.decode()
        assert "alpha-pulled" in text
        assert "beta-pulled" not in text
    seen = await node.ask("admin", "GET", path)
    assert "beta-pulled" in seen.body.decode()
    assert b'"kind":"topics"' in seen.body


async def test_rows_that_are_not_left_out_are_noticed(
    node_in_a_mess: ClosedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Standing, "may", lambda *_: True)
    monkeypatch.setattr(Standing, "visible", lambda _, __, ___, names: list(names))
    assert len(await leaks(node_in_a_mess)) > 5

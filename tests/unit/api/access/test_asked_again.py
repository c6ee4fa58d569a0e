"""What goes on after it was permitted: waits, streams, redrives and schedules ask again.

Positive controls: a wait and a stream that are told of nothing go on when the key is revoked, and
so does a redrive whose steps ask nobody.
"""

import asyncio
from collections.abc import Callable

import pytest

from app.api.access.access_watch import AccessWatch
from app.api.control.operation_list import OPERATIONS
from app.broker.failures import dead_letter_admin
from app.broker.jobs import Job, OperationState
from app.broker.results import Nack
from app.domain.access.actions import Action
from app.domain.access.caller import Known
from app.domain.access.policies import Effect, Policy, Subject, SubjectKind, read_pattern
from app.domain.access.standing import CHANGING, Standing
from app.domain.message import Message
from tests.support.clients.asgi import Answer
from tests.support.nodes.access_matrix import BODIES, QUERIES, path_of
from tests.support.nodes.closed import EVERYBODY, ClosedNode, closed_node, principal
from tests.support.nodes.waiting import until
from tests.support.stores.clock import START_MS

pytestmark = pytest.mark.anyio

MINUTE = 60_000
WITHOUT_ALPHA = tuple(each for each in EVERYBODY if each.name != "alpha")


def denied(action: Action, pattern: str) -> Policy:
    who = Subject(SubjectKind.PRINCIPAL, "alpha")
    return Policy("no", who, Effect.DENY, frozenset({action}), (read_pattern(pattern),))


Waits = tuple[str, str, str, object]
RECEIVE: Waits = ("POST", "/v1/topics/alpha-in/groups/alpha-g/messages:receive", "wait=30", None)
POLLS: dict[str, Waits] = {
    "receive": RECEIVE,
    "pull": ("GET", "/v1/topics/alpha-in/queues/0/messages", "offset=0&wait=30", None),
    "checks": ("POST", "/v1/producer-groups/alpha-pg/transactions:receive", "wait=30", None),
    "request": ("POST", "/v1/topics/alpha-in/messages:request", "wait=30", b"?"),
}


async def begin(node: ClosedNode, poll: Waits, who: str | None = "alpha") -> asyncio.Task[Answer]:
    """A request that waits."""
    method, path, query, body = poll
    task = asyncio.ensure_future(node.ask(who, method, path, body, query=query))
    broker = node.world.broker
    await until(lambda: broker.long_polls.count + broker.request_reply.waiting_count > 0)
    return task


@pytest.mark.parametrize("poll", POLLS.values(), ids=POLLS)
async def test_a_request_that_waits_ends_when_its_key_is_revoked(poll: Waits) -> None:
    async with closed_node() as node:
        task = await begin(node, poll)
        node.access.show()  # something else has changed
        await asyncio.sleep(0)
        assert not task.done()
        node.access.show(WITHOUT_ALPHA)
        answer = await task
        assert answer.status == 401
        is_send = poll is POLLS["request"]
        assert answer.json().get("outcome") in ({"stored", "unknown"} if is_send else {None})
        assert not node.access.waiting


async def test_a_request_that_waits_ends_when_a_policy_denies_it() -> None:
    async with closed_node() as node:
        task = await begin(node, RECEIVE)
        node.access.show(policies=[denied(Action.SUB, "topic:alpha-*")])
        answer = await task
        assert (answer.status, answer.json()["resource"]) == (403, "topic:alpha-in")


async def test_a_request_that_waits_ends_when_its_key_expires() -> None:
    async with closed_node() as node:
        node.access.expires_ms["alpha"] = node.world.clock.now_ms() + 20
        node.access.show()
        task = await begin(node, RECEIVE)
        node.world.clock.advance(ms=20)
        assert (await task).status == 401
        assert (await node.ask("alpha", "GET", "/v1/whoami")).status == 401


async def test_a_request_that_waits_ends_when_what_is_known_is_too_old() -> None:
    async with closed_node() as node:
        task = await begin(node, RECEIVE)
        node.access.age.is_over = True
        for look_again in tuple(node.access.waiting):
            look_again()
        answer = await task
        assert (answer.status, answer.json()["code"]) == (503, "POLICY_TOO_OLD")


async def test_what_is_known_for_long_changes_nothing() -> None:
    async with closed_node() as node:
        node.access.age.is_stale = True
        refused = []
        for operation in OPERATIONS:
            answer = await node.ask(
                "admin",
                operation.method,
                path_of(operation, "admin", "alpha"),
                BODIES.get(operation.operation_id),
                query=QUERIES.get(operation.operation_id, ""),
            )
            if answer.status == 503 and answer.json()["code"] == "POLICY_TOO_OLD":
                refused.append(operation.operation_id)
        changing = {
            each.operation_id
            for each in OPERATIONS
            if each.method != "GET" and not CHANGING.isdisjoint(each.needs.values())
        }
        assert set(refused) == changing
        assert {"put_topic", "delete_group", "patch_config", "redrive_dead_letters"} <= changing
        assert not {"send_message", "receive_messages", "commit_group_offsets"} & changing
        forced = {"offsets": [{"queue_id": 0, "offset": 0}], "force": True}
        path = "/v1/groups/alpha-g/offsets/alpha-in"
        assert (await node.ask("admin", "PUT", path, forced)).status == 503


async def test_what_anybody_waits_for_ends_when_the_node_closes() -> None:
    async with closed_node(is_closed=False) as node:
        task = await begin(node, RECEIVE, who=None)
        node.access.show()
        assert (await task).status == 401


async def leased_after(node: ClosedNode) -> int:
    """A receive of a revoked key, and a message that comes then: how many it was given."""
    task = await begin(node, RECEIVE)
    node.access.show(WITHOUT_ALPHA)
    await node.world.broker.sender.send("alpha-in", Message(b"x"))
    answer = await task
    return len(answer.json().get("messages", ()))


async def test_nothing_is_handed_out_for_a_revoked_key() -> None:
    async with closed_node() as node:
        assert await leased_after(node) == 0
        (delivery,) = await node.world.receive(topic="alpha-in", group="alpha-g")
        assert delivery.attempt == 1


async def test_a_receive_that_does_not_ask_again_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AccessWatch, "look", lambda _: None)
    async with closed_node() as node:
        assert await leased_after(node) == 1


# --- streams


async def streamed(node: ClosedNode, path: str) -> str:
    """What a stream says whose key is revoked after its first message."""
    await node.world.broker.sender.send("alpha-in", Message(b"first"))
    task = asyncio.ensure_future(node.ask("alpha", "GET", path, query="duration=5s"))
    await until(lambda: node.world.broker.long_polls.count > 0)
    await node.world.broker.sender.send("alpha-in", Message(b"second"))
    for _ in range(100):  # it is woken, sends, and waits again
        await asyncio.sleep(0)
    await until(lambda: node.world.broker.long_polls.count > 0)
    node.access.show(WITHOUT_ALPHA)
    await node.world.broker.sender.send("alpha-in", Message(b"third"))
    return (await task).body.decode()


STREAMS = ("/v1/topics/alpha-in/stream", "/v1/topics/alpha-in/groups/alpha-g/stream")


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_ends_with_an_event_when_its_key_is_revoked(path: str) -> None:
    async with closed_node() as node:
        said = await streamed(node, path)
        assert '"text":"second"' in said
        assert '"text":"third"' not in said
        assert '"reason":"access_ended"' in said
        assert '"code":"UNAUTHORIZED"' in said
        assert not node.access.waiting


async def test_a_stream_that_is_told_of_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AccessWatch, "look", lambda _: None)
    async with closed_node() as node:
        assert '"text":"third"' in await streamed(node, STREAMS[0])


# --- redrives


async def redriven(
    node: ClosedNode, change: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> Job:
    """The job of a redrive of three letters, one a step; `change` comes after the first."""
    world = node.world
    for number in range(3):
        await world.broker.sender.send("alpha-in", Message(b"%d" % number))
    deliveries = await world.receive(topic="alpha-in", group="alpha-g")
    letters = [Nack(each.receipt_handle, None, "bad") for each in deliveries]
    await world.broker.settler.settle("alpha-in", "alpha-g", dead_letters=letters)
    await until(lambda: world.broker.dead_letters.count("alpha-g") == 3)
    changes = iter([change])

    def after_a_step(*_: object) -> None:
        next(changes, lambda: None)()

    monkeypatch.setattr(dead_letter_admin, "STEP_MESSAGES", 1)
    monkeypatch.setattr(dead_letter_admin.DeadLetters, "_note", after_a_step)
    answer = await node.ask(
        "alpha",
        "POST",
        "/v1/groups/alpha-g/dlq/messages:redrive",
        {"all": True, "to_topic": "alpha-in"},
    )
    job = world.broker.jobs.find(answer.json()["operation_id"])
    await until(lambda: job.state is not OperationState.RUNNING)
    return job


ALPHA = principal(
    "alpha",
    "producer",
    "consumer",
    "operator",
    to=("topic:alpha-*", "group:alpha-*", "producer:alpha-*"),
)


async def test_each_step_of_a_redrive_asks_what_its_owner_may_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with closed_node() as node:
        node.access.show([ALPHA])
        denial = [denied(Action.PUB, "topic:alpha-in")]
        job = await redriven(node, lambda: node.access.show([ALPHA], denial), monkeypatch)
        assert (job.state, job.done, job.owner) == (OperationState.FAILED, 1, "alpha")
        assert "may not PUB" in (job.problem or "")
        assert node.world.broker.dead_letters.count("alpha-g") == 2


async def test_a_redrive_whose_steps_ask_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with closed_node() as node:
        node.access.show([ALPHA])

        def change() -> None:
            node.access.show([ALPHA], [denied(Action.PUB, "topic:alpha-in")])
            monkeypatch.setattr(Standing, "require", lambda *_: None)

        assert (await redriven(node, change, monkeypatch)).done == 3


# --- schedules


async def fired(node: ClosedNode, change: Callable[[], None]) -> int:
    """Messages of a schedule of alpha after one due time; `change` comes before it."""
    world = node.world
    body = {"cron": "* * * * *", "topic": "alpha-in", "message": {"text": "tick"}}
    made = await node.ask("alpha", "PUT", "/v1/schedules/tick", body)
    assert (made.status, made.json()["owner"]) == (201, "alpha")
    world.metadata.callers["alpha"] = Known(node.access, "alpha")
    change()
    for after_ms in (-1_000, 0):
        world.clock.set_wall(START_MS // MINUTE * MINUTE + MINUTE + after_ms)
        await world.broker.schedules.turn()
        await world.broker.delays.turn()
    return sum(world.store.bounds("alpha-in", queue).max_offset for queue in range(2))


async def test_a_schedule_is_fired_by_the_present_rights_of_its_owner(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with closed_node() as node:
        assert await fired(node, lambda: None) == 1
    async with closed_node() as node:
        assert await fired(node, lambda: node.access.show(WITHOUT_ALPHA)) == 0
        assert "its owner alpha may not send" in caplog.text


# --- client ids and attempts


async def test_a_client_id_belongs_to_who_first_used_it() -> None:
    async with closed_node() as node:
        await node.world.topic(name="shared")
        both = [principal(each, "consumer", to=("topic:shared", "group:shared")) for each in "xy"]
        node.access.show(both)
        path, body = "/v1/groups/shared/members/worker", {"subscriptions": [{"topic": "shared"}]}
        assert (await node.ask("x", "PUT", path, body)).status == 200
        refused = await node.ask("y", "PUT", path, body)
        assert (refused.status, refused.json()["action"]) == (403, "UPDATE")
        assert (await node.ask("y", "DELETE", path)).status == 403
        lock = {
            "client_id": "worker",
            "generation": 1,
            "queues": [{"topic": "shared", "queue_id": 0}],
        }
        assert (await node.ask("y", "POST", "/v1/groups/shared/queues:lock", lock)).status == 403
        commit = {
            "offsets": [{"queue_id": 0, "offset": 0}],
            "client_id": "worker",
            "generation": 1,
        }
        assert (
            await node.ask("y", "PUT", "/v1/groups/shared/offsets/shared", commit)
        ).status == 403
        for _ in range(2 * node.world.limits.member_lease_ms // 1_000):  # until it is taken out
            node.world.clock.advance(s=1)
            await node.world.broker.members.turn()
        assert (await node.ask("y", "PUT", path, body)).status == 200
        assert (await node.ask("x", "DELETE", path)).status == 403


async def test_the_same_attempt_of_another_principal_is_another_one() -> None:
    async with closed_node() as node:
        await node.world.topic(name="shared")
        both = [principal(each, "consumer", to=("topic:shared", "group:shared")) for each in "xy"]
        node.access.show(both)
        for body in (b"1", b"2"):
            await node.world.broker.sender.send("shared", Message(body))
        path = "/v1/topics/shared/groups/shared/messages:receive"

        async def got(who: str) -> list[str]:
            answer = await node.ask(who, "POST", path, query="attempt_id=a")
            return [each["text"] for each in answer.json()["messages"]]

        assert await got("x") == await got("x") == ["1"]
        assert await got("y") == ["2"]

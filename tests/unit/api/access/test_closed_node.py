"""What a principal of one team is answered for what is its own, another's, and not there at all."""

import pytest

from app.api.control.operation_list import OPERATIONS
from app.broker.results import Nack
from app.cluster.metadata.snapshot import NamespaceView
from app.domain.access.actions import Action
from app.domain.access.policies import Effect, Policy, Subject, SubjectKind, read_pattern
from app.domain.message import Message
from app.domain.positions import TimestampMs
from tests.support.nodes.access_matrix import path_of
from tests.support.nodes.closed import EVERYBODY, ClosedNode, closed_node, principal

pytestmark = pytest.mark.anyio

SEND = "/v1/topics/{topic}/messages"
RECEIVE = "/v1/topics/{topic}/groups/{group}/messages:receive"


async def test_a_team_uses_what_is_its_own() -> None:
    async with closed_node() as node:
        assert (await node.ask("alpha", "POST", SEND.format(topic="alpha-in"), b"x")).status == 201
        path = RECEIVE.format(topic="alpha-in", group="alpha-new")
        answer = await node.ask("alpha", "POST", path)
        assert [each["text"] for each in answer.json()["messages"]] == ["x"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/topics/{name}-in/messages"),
        ("GET", "/v1/topics/{name}-in/messages"),
        ("GET", "/v1/topics/{name}-in/queues/0/messages"),
        ("GET", "/v1/topics/{name}-in/stream"),
        ("GET", "/v1/topics/{name}-in"),
        ("PUT", "/v1/topics/{name}-in"),
        ("DELETE", "/v1/topics/{name}-in"),
        ("GET", "/v1/groups/{name}-g"),
        ("GET", "/v1/groups/{name}-g/lag"),
        ("POST", "/v1/groups/{name}-g/dlq/messages:redrive"),
        ("GET", "/v1/producers/{name}-job"),
        ("POST", "/v1/topics/{name}-in/groups/{name}-g/messages:receive"),
        ("GET", "/v1/operations/{name}-1"),
        ("POST", "/v1/transactions/{name}:commit"),
    ],
)
async def test_foreign_and_missing_names_have_the_same_answer(method: str, path: str) -> None:
    async with closed_node() as node:
        known = await node.ask("alpha", method, path.format(name="beta"))
        missing = await node.ask("alpha", method, path.format(name="zeta"))
        assert known.status == missing.status >= 400
        assert known.body.replace(b"beta", b"zeta") == missing.body


async def test_a_refusal_names_action_and_resource_and_is_noted() -> None:
    async with closed_node() as node:
        answer = await node.ask("alpha", "POST", SEND.format(topic="beta-in"), b"x")
        problem = answer.json()
        assert (answer.status, problem["code"], problem["outcome"]) == (
            403,
            "FORBIDDEN",
            "not_stored",
        )
        assert (problem["action"], problem["resource"]) == ("PUB", "topic:beta-in")
        (denial,) = node.access.denials
        assert (denial.actor.principal, denial.actor.address) == ("alpha", "127.0.0.1")
        assert (denial.action, denial.resource) == ("PUB", "topic:beta-in")


async def test_a_denial_of_the_control_plane_is_noted_too() -> None:
    async with closed_node() as node:
        await node.ask("alpha", "DELETE", "/v1/topics/beta-in")
        (denial,) = node.access.denials
        assert (denial.action, denial.resource, denial.code) == (
            "DELETE",
            "topic:beta-in",
            "FORBIDDEN",
        )


async def test_lists_and_hints_know_only_what_one_may_see() -> None:
    async with closed_node() as node:
        topics = (await node.ask("alpha", "GET", "/v1/topics", query="page_size=1")).json()
        assert [each["name"] for each in topics["topics"]] == ["alpha-in"]
        assert topics["next_page_token"] is None
        groups = (await node.ask("alpha", "GET", "/v1/groups")).json()
        assert [each["name"] for each in groups["groups"]] == ["alpha-g"]
        await node.world.topic(name="alphabeta-in")
        hint = (await node.ask("alpha", "GET", "/v1/topics/alpha-inn")).json()["hint"]
        assert hint == "did you mean 'alpha-in'?"
        node.access.show([principal("alpha", "viewer", to=["topic:alpha-inn"])])
        hint = (await node.ask("alpha", "GET", "/v1/topics/alpha-inn")).json()["hint"]
        assert "did you mean" not in hint


async def test_delayed_messages_are_listed_to_who_sends_or_reads() -> None:
    async with closed_node() as node:
        path = "/v1/topics/alpha-in/scheduled"
        seen = {}
        for who in ("producer", "consumer", "viewer", "operator", "alpha", "beta"):
            seen[who] = (await node.ask(who, "GET", path)).status
        assert seen == {
            **dict.fromkeys(("producer", "consumer", "alpha"), 200),
            **dict.fromkeys(("viewer", "operator", "beta"), 403),
        }
        handle = await node.ask("consumer", "DELETE", f"{path}/x")
        assert (handle.status, handle.json()["action"]) == (403, "PUB")


async def test_all_delayed_messages_are_listed_to_who_sends_or_reads_them() -> None:
    async with closed_node() as node:
        for topic in ("alpha-in", "beta-in"):
            path = SEND.format(topic=topic)
            sent = await node.ask("admin", "POST", path, b"x", headers={"MQ-Delay": "1h"})
            assert sent.status in {200, 201, 202}

        async def seen(who: str, query: str = "") -> list[str]:
            found = await node.ask(who, "GET", "/v1/scheduled", query=query)
            return [each["topic"] for each in found.json()["messages"]]

        assert await seen("admin") == await seen("consumer") == ["alpha-in", "beta-in"]
        assert await seen("alpha") == ["alpha-in"]
        assert await seen("viewer") == []
        assert await seen("admin", "prefix=b") == ["beta-in"]
        counts = {}
        for who in ("admin", "alpha", "viewer"):  # of others not even the number is told
            counts[who] = (await node.ask(who, "GET", "/v1/scheduled")).json()["scanned"]
        assert counts == {"admin": 2, "alpha": 1, "viewer": 0}


async def test_a_family_of_producers_is_sealed_and_forgotten_by_who_may_name_all_of_it() -> None:
    async with closed_node() as node:
        sealing = ("job", "POST", "/v1/producers:seal", {"producer": "job", "epoch": 1})
        node.access.show([principal("job", "producer", to=["producer:job"])])
        refused = await node.ask(*sealing)
        assert (refused.status, refused.json()["resource"]) == (403, "producer:job:*")
        refused = await node.ask("job", "DELETE", "/v1/producers/job")
        assert (refused.status, refused.json()["resource"]) == (403, "producer:job:*")
        node.access.show([principal("job", "producer", to=["producer:job", "producer:job:*"])])
        forgotten = await node.ask("job", "DELETE", "/v1/producers/job")
        assert (forgotten.status, forgotten.json()["code"]) == (404, "PRODUCER_NOT_FOUND")
        assert (await node.ask(*sealing)).status == 200


async def test_a_transaction_is_for_who_may_use_its_topic_and_its_group() -> None:
    """The group's name alone shows no bodies, and takes no checks away from who can decide them."""
    async with closed_node() as node:
        world = node.world
        names = {"topic": "topic:alpha-in", "group": "producer:alpha-pg"}
        halves = [principal(each, "producer", to=[name]) for each, name in names.items()]
        node.access.show([*halves, principal("both", "producer", to=names.values())])
        half = await world.broker.transactions.prepare(
            "alpha-in", Message(b"half"), producer_group="alpha-pg"
        )
        world.clock.advance(ms=world.limits.transaction_check_after_ms)
        await world.broker.transactions.checks.turn()
        path = f"/v1/transactions/{half.transaction_id}:commit"
        asking = "/v1/producer-groups/alpha-pg/transactions:receive"
        assert (await node.ask("topic", "POST", asking)).status == 403
        assert (await node.ask("group", "POST", asking)).json() == {"transactions": []}
        for who in names:
            assert (await node.ask(who, "POST", path)).status == 404, who
        (check,) = (await node.ask("both", "POST", asking)).json()["transactions"]
        assert check["transaction_id"] == half.transaction_id
        assert (await node.ask("both", "POST", path)).status == 200


async def test_bodies_are_for_who_may_read_the_topic() -> None:
    """Written out, as the matrix asks what each operation says of itself."""
    async with closed_node() as node:
        broker, topic, group = node.world.broker, "/v1/topics/alpha-in", "alpha-g"
        for _ in range(2):
            await broker.sender.send("alpha-in", Message(b"secret"), queue_id=0)
        (delivery,) = await node.world.receive(1, topic="alpha-in", group=group)
        letter = Nack(delivery.receipt_handle, None, "bad")
        await broker.settler.settle("alpha-in", group, dead_letters=[letter])
        reading = [
            ("GET", f"{topic}/messages"),
            ("GET", f"{topic}/messages/{delivery.message.message_id}"),
            ("GET", f"{topic}/queues/0/messages"),
            ("GET", f"/v1/groups/{group}/dlq/messages"),
            ("POST", f"{topic}/groups/{group}/messages:receive"),
        ]
        streams = [("GET", f"{topic}/stream"), ("GET", f"{topic}/groups/{group}/stream")]
        for who in ("viewer", "operator", "producer", "beta"):
            for method, path in (*reading, *streams):
                answer = await node.ask(who, method, path, query=_offset(path))
                assert (answer.status, b"secret" in answer.body) == (403, False), (who, path)
        for method, path in reading:
            answer = await node.ask("consumer", method, path, query=_offset(path))
            assert (answer.status, b"secret" in answer.body) == (200, True), path


def _offset(path: str) -> str:
    """What a pull has to say."""
    return "offset=0" if "/queues/" in path else ""


async def test_letters_from_a_topic_that_one_may_not_read_show_nothing() -> None:
    """Nor by how many there are that a filter finds; that the group's right is enough for all."""
    async with closed_node() as node:
        team = [f"{kind}:alpha-*" for kind in ("topic", "group", "producer")]
        roles = ("consumer", "producer", "operator")
        node.access.show([principal("alpha", *roles, to=team), principal("admin", "admin")])
        await node.world.broker.sender.send("beta-in", Message(b"secret", tag="red"))
        (delivery,) = await node.world.receive(1, topic="beta-in", group="alpha-g")
        letter = Nack(delivery.receipt_handle, None, "bad")
        await node.world.broker.settler.settle("beta-in", "alpha-g", dead_letters=[letter])
        path = "/v1/groups/alpha-g/dlq/messages"
        asked: list[tuple[str, dict[str, object]]] = [
            (":purge", {"filter": "red"}),
            (":purge", {"reason": "bad"}),
            (":purge", {"all": True}),
            (":redrive", {"all": True, "to_topic": "alpha-in"}),
            (":redrive", {"filter": "red"}),
            (":redrive", {"all": True}),
        ]

        async def found(who: str) -> list[int]:
            counts = [len((await node.ask(who, "GET", path)).json()["messages"])]
            for ending, chosen in asked:
                tried = await node.ask(who, "POST", path + ending, chosen, query="dry_run=true")
                answer = tried.json()
                counts.append(answer["removed" if ending == ":purge" else "matched"])
            return counts

        assert await found("admin") == [1] * 7
        assert await found("alpha") == [0, 0, 0, 1, 0, 0, 1]


async def test_traces_of_all_topics_leave_out_what_one_may_not_know_of() -> None:
    async with closed_node() as node:
        for team in ("alpha", "beta"):
            await node.world.broker.sender.send(f"{team}-in", Message(b"x"))
            (delivery,) = await node.world.receive(1, topic=f"{team}-in", group=f"{team}-g")
            nack = [Nack(delivery.receipt_handle, 1_000, "bad")]
            await node.world.broker.settler.settle(f"{team}-in", f"{team}-g", nacks=nack)

        async def seen(*policies: Policy) -> set[tuple[str, str | None]]:
            node.access.show(policies=policies)
            answer = await node.ask("viewer", "GET", "/v1/trace", query="page_size=200")
            return {(each["topic"], each["group"]) for each in answer.json()["events"]}

        everything = await seen()
        assert {topic for topic, _ in everything} >= {"alpha-in", "beta-in"}
        of_alpha = {each for each in everything if each[0] == "alpha-in"}
        assert await seen(_denied("topic:beta-*")) == of_alpha
        of_no_group = {each for each in everything if each[1] != "beta-g"}
        assert await seen(_denied("group:beta-g")) == of_no_group != everything


def _denied(pattern: str) -> Policy:
    who = Subject(SubjectKind.ROLE, "viewer")
    return Policy("no", who, Effect.DENY, frozenset({Action.GET}), (read_pattern(pattern),))


async def test_namespaces_are_listed_to_who_may_do_something_in_them() -> None:
    async with closed_node() as node:
        for name in ("eu", "us"):
            make_namespace(node, name)
        for name in ("eu%red-in", "eu%blue-in", "us%red-in"):
            await node.world.topic(name=name)
        allowed = Policy(
            "red",
            Subject(SubjectKind.PRINCIPAL, "red"),
            Effect.ALLOW,
            frozenset({Action.GET}),
            (read_pattern("topic:red-*"),),
            "eu",
        )
        node.access.show(
            [*EVERYBODY, principal("bound", "viewer", namespace="us"), principal("red")], [allowed]
        )

        async def seen(who: str) -> dict[str, int]:
            found = (await node.ask(who, "GET", "/v1/namespaces")).json()["namespaces"]
            return {each["namespace"]: each["topics"] for each in found}

        assert await seen("viewer") == {"eu": 2, "us": 1}
        assert await seen("alpha") == await seen("nobody") == {}
        assert await seen("bound") == {"us": 1}
        assert await seen("red") == {"eu": 1}


async def test_the_reasons_of_readiness_are_for_who_sees_the_cluster() -> None:
    async with closed_node() as node:
        node.world.broker.health.node.metadata_problem = "the database is away"
        assert await _degraded(node, None) == []
        assert await _degraded(node, "alpha") == []
        assert await _degraded(node, "viewer") == ["METADATA_UNAVAILABLE"]
        bad = await node.ask(None, "GET", "/readyz", headers={"Authorization": "Bearer x"})
        assert bad.status == 401


async def _degraded(node: ClosedNode, who: str | None) -> list[str]:
    answer = await node.ask(who, "GET", "/readyz")
    return [each["code"] for each in answer.json()["degraded"]]


async def test_whoami_says_which_policy_decides() -> None:
    async with closed_node() as node:
        me = (await node.ask("alpha", "GET", "/v1/whoami", query="action=PUB&topic=alpha-x")).json()
        assert me == {
            "principal": "alpha",
            "roles": ["producer", "consumer"],
            "resources": ["topic:alpha-*", "group:alpha-*", "producer:alpha-*"],
            "allowed_from": [],
            "namespace": "",
            "allowed": True,
            "rule": {"policy": "producer:alpha:topic", "effect": "ALLOW"},
        }
        other = await node.ask("alpha", "GET", "/v1/whoami", query="action=PUB&topic=beta-x")
        assert (other.json()["allowed"], other.json()["rule"]) == (False, None)
        assert (await node.ask("alpha", "GET", "/v1/whoami", query="topic=x")).status == 400


async def test_an_administrator_asks_what_another_may() -> None:
    async with closed_node() as node:
        asked = "principal=alpha&action=PUB&topic="
        may = await node.ask("admin", "GET", "/v1/whoami", query=f"{asked}alpha-x")
        assert (may.json()["principal"], may.json()["allowed"]) == ("alpha", True)
        not_may = await node.ask("admin", "GET", "/v1/whoami", query=f"{asked}beta-x")
        assert not_may.json()["allowed"] is False
        assert (await node.ask("alpha", "GET", "/v1/whoami", query="principal=beta")).status == 403
        assert (await node.ask("alpha", "GET", "/v1/whoami", query="principal=none")).status == 403


async def test_a_closed_node_asks_and_an_open_one_does_not() -> None:
    async with closed_node(is_closed=False) as node:
        assert (await node.ask(None, "GET", "/v1/topics/beta-in")).status == 200
        me = (await node.ask(None, "GET", "/v1/whoami", query="action=ADMIN")).json()
        assert (me["principal"], me["allowed"]) == (None, True)
        node.access.show()
        assert (await node.ask(None, "GET", "/v1/topics/beta-in")).status == 401


async def test_what_use_makes_is_asked_by_the_settings_of_the_moment() -> None:
    async with closed_node() as node:
        by_use = node.world.broker.made_by_use
        by_use.topics = False
        path = "/v1/topics/unheard-of/messages"
        assert (await node.ask("producer", "POST", path, b"x")).status == 404
        by_use.topics = True
        refused = await node.ask("producer", "POST", path, b"x")
        assert (refused.status, refused.json()["action"]) == (403, "CREATE")
        assert (await node.ask("admin", "POST", path, b"x")).status == 201


async def test_so_is_what_a_body_or_a_membership_makes() -> None:
    """Nothing is settled with a send that would make a topic."""
    async with closed_node() as node:
        patterns = (read_pattern("topic:*"), read_pattern("group:*"))
        allow = Policy(
            "use",
            Subject(SubjectKind.PRINCIPAL, "user"),
            Effect.ALLOW,
            frozenset({Action.PUB, Action.SUB}),
            patterns,
        )
        node.access.show([principal("user"), principal("admin", "admin")], [allow])
        node.world.broker.made_by_use.topics = True
        await node.world.broker.sender.send("alpha-in", Message(b"x"))
        (delivery,) = await node.world.receive(1, topic="alpha-in", group="alpha-g")
        sends = [{"topic": "unheard-of", "text": "x"}]
        settle = {"acks": [delivery.receipt_handle], "sends": sends}
        path = "/v1/topics/alpha-in/groups/alpha-g/messages:settle"
        member = {"subscriptions": [{"topic": "alpha-in"}]}
        asked = [
            ("POST", path, settle),
            ("PUT", "/v1/groups/unheard-of/members/c1", member),
            ("POST", "/v1/groups/unheard-of/members:poll", {"client_id": "c1", **member}),
        ]
        for method, where, body in asked:
            refused = await node.ask("user", method, where, body)
            assert (refused.status, refused.json()["action"]) == (403, "CREATE"), where
        assert (await node.ask("admin", "GET", "/v1/topics/unheard-of")).status == 404
        assert (await node.ask("admin", "GET", "/v1/groups/unheard-of")).status == 404
        assert (await node.ask("admin", "POST", path, settle)).json()["sends"][0][
            "queue_offset"
        ] == 0


def make_namespace(node: ClosedNode, name: str) -> None:
    metadata = node.world.metadata
    view = NamespaceView(name, TimestampMs(1), metadata.snapshot.version + 1)
    metadata.snapshot = metadata.snapshot.with_namespace(view)


async def test_a_namespace_of_others_is_as_one_that_is_not_there() -> None:
    async with closed_node() as node:
        make_namespace(node, "theirs")
        for path in (
            *("/v1/topics", "/v1/groups", "/v1/schedules", "/v1/scheduled", "/v1/transactions"),
            *("/v1/operations", "/v1/whoami", "/v1/limits", "/v1/topics:positions"),
            *("/v1/route", "/v1/transactions/x", "/v1/receipts/x", "/v1/topics/alpha-in"),
        ):
            method = "DELETE" if "receipts" in path else "GET"
            query = "topics=alpha-in" if path.endswith(("positions", "route")) else ""
            answers = [
                await node.ask(
                    "alpha", method, path, query=query, headers={"MQ-Namespace": namespace}
                )
                for namespace in ("theirs", "theris")
            ]
            said = [each.body.replace(b"theris", b"theirs") for each in answers]
            assert (answers[0].status, said[0]) == (answers[1].status, said[1]), path
            assert answers[0].status in {403, 404}, path
        seen = await node.ask("viewer", "GET", "/v1/topics", headers={"MQ-Namespace": "theirs"})
        assert seen.status == 200


async def test_ids_and_handles_of_others_are_as_made_up_ones() -> None:
    """Under one's own topic and group, wherever an operation takes one."""
    async with closed_node() as node:
        ids = await ids_of_beta(node)
        made_up = {
            "receipt_handles": ids["receipt_handles"][:-8] + "AAAAAAAA",
            "recall_handle": ids["recall_handle"][:-8] + "AAAAAAAA",
            "message_id": ids["message_id"][:-4] + "0000",
        }

        async def said(method: str, path: str, text: str, body: object = None) -> tuple[int, bytes]:
            json = {"content-type": "application/json"}
            answer = await node.ask("alpha", method, path, body, headers=json)
            assert answer.status in {400, 404}, answer.body
            return answer.status, answer.body.replace(text.encode(), b"")

        tried = set()
        for operation in OPERATIONS:
            for name in {"recall_handle", "message_id"} & set(operation.names):
                paths = [
                    path_of(operation, "c1", "alpha", {name: each[name]}) for each in (ids, made_up)
                ]
                move = {"delay": "2h"} if operation.method == "PATCH" else None
                real = await said(operation.method, paths[0], ids[name], move)
                fake = await said(operation.method, paths[1], made_up[name], move)
                assert real == fake, operation.operation_id
                tried.add(operation.operation_id)
        assert len(tried) == 7
        for action in ("ack", "nack", "extend", "dead-letter"):
            path = f"/v1/topics/alpha-in/groups/alpha-g/messages:{action}"
            name = "receipt_handles"
            bodies = [{name: [each[name]]} for each in (ids, made_up)]
            real = await said("POST", path, ids[name], bodies[0])
            assert real == await said("POST", path, made_up[name], bodies[1])
        for own in (ids, made_up):
            text = own["receipt_handles"]
            sends = [{"topic": "alpha-in", "text": "x"}]
            path = "/v1/topics/alpha-in/groups/alpha-g/messages:settle"
            tried.add(str(await said("POST", path, text, {"acks": [text], "sends": sends})))
        assert len(tried) == 8


async def ids_of_beta(node: ClosedNode) -> dict[str, str]:
    path = SEND.format(topic="beta-in")
    delayed = await node.ask("beta", "POST", path, b"x", headers={"MQ-Delay": "1h"})
    sent = await node.ask("beta", "POST", path, b"x")
    receive = RECEIVE.format(topic="beta-in", group="beta-g")
    (received,) = (await node.ask("beta", "POST", receive)).json()["messages"]
    return {
        "receipt_handles": received["receipt_handle"],
        "recall_handle": delayed.json()["recall_handle"],
        "message_id": sent.json()["message_id"],
    }


async def test_a_refusal_says_what_would_do_and_where() -> None:
    async with closed_node() as node:
        made = await node.ask("alpha", "PUT", "/v1/topics/alpha-new", {})
        assert "may neither CREATE nor UPDATE topic:alpha-new" in made.json()["detail"]
        make_namespace(node, "theirs")
        headers = {"MQ-Namespace": "theirs"}
        sent = await node.ask("alpha", "POST", SEND.format(topic="alpha-in"), b"x", headers=headers)
        assert "may not PUB topic:alpha-in in namespace 'theirs'" in sent.json()["detail"]
        assert sent.json()["resource"] == "topic:alpha-in"
        await node.ask("alpha", "DELETE", "/v1/topics/alpha-in", headers=headers)
        noted = [each.resource for each in node.access.denials]
        assert noted == ["topic:alpha-new", *["topic:theirs%alpha-in"] * 2]


async def test_an_idempotency_key_is_its_principals() -> None:
    """Where two teams send to one topic, none takes the other's place with a guessed key."""
    async with closed_node() as node:
        everybody = [principal(name, "producer") for name in ("alpha", "beta")]
        node.access.show(everybody)
        path, key = SEND.format(topic="alpha-in"), {"Idempotency-Key": "order-17"}
        first = await node.ask("alpha", "POST", path, b"x", headers=key)
        other = await node.ask("beta", "POST", path, b"y", headers=key)
        same = await node.ask("beta", "POST", path, b"x", headers={"Idempotency-Key": "order-18"})
        again = await node.ask("alpha", "POST", path, b"x", headers=key)
        assert [each.status for each in (first, other, same, again)] == [201, 201, 201, 200]
        assert again.json()["message_id"] == first.json()["message_id"]
        reused = await node.ask("alpha", "POST", path, b"z", headers=key)
        assert (reused.status, reused.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
        assert "idempotency key 'order-17'" in reused.json()["detail"]

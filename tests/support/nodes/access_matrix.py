"""What every operation is asked with, and who may have it: the cells of the matrix of rights.

The generated part comes from the operations themselves: each is asked with the names of three teams
in its path. `ELSEWHERE` has what else an operation names, in query, header and body; `BY_ID` what
is found by an id. Who may is said by `may`, which knows roles and prefixes and none of the code
under test.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.api.control.operation_list import OPERATIONS
from app.api.operations.operation import Operation
from app.broker.jobs import Job
from app.domain.access.actions import Action, Kind
from app.domain.access.roles import RIGHTS, ROLES
from app.domain.message import Message
from app.domain.schedules import ScheduleSettings
from tests.support.nodes.brokers import World
from tests.support.nodes.waiting import until

TEAMS: Final = ("alpha", "beta", "gamma")
OWN, FOREIGN, _ = TEAMS
MISSING: Final = "zeta"
PRINCIPALS: Final = (*ROLES, "nobody", *TEAMS)
"""One for each role, one without any, and three teams that send and consume under their names."""

Rights = tuple[tuple[str, str, str], ...]
"""Action, kind and name; `PUB|SUB`: one of both is enough."""

NAMES: Final[Mapping[str, str]] = {
    "topic": "{team}-in",
    "group": "{team}-g",
    "producer": "{team}-job",
    "producer_group": "{team}-pg",
    "queue": "0",
    "message_id": "0101020304018BCFE56800000000000000",
    "client_id": "{who}",
    "name": "{team}-s",
    "recall_handle": "x",
    "key_id": "x",
    "namespace": "{team}",
    "handle": "x",
    "correlation_id": "x",
    "transaction_id": "x",
    "operation_id": "x",
    "shard": "x",
    "node_id": "x",
}
"""What stands in a path for each of its parameters."""

_SEQUENCE: Final = {"MQ-Producer-Epoch": "1", "MQ-Producer-Seq": "0"}
_IN_QUERY: Final = "producer_epoch=1&producer_seq=0&producer_id="
BODIES: Final[Mapping[str, object]] = {
    "settle_messages": {"acks": ["x"]},
    "ack_messages": {"receipt_handles": ["x"]},
    "put_member": {"subscriptions": []},
    "commit_group_offsets": {"offsets": [{"queue_id": 0, "offset": 0}]},
    "reset_group_offsets": {"to": "earliest"},
    "reset_all_group_offsets": {"to": "earliest"},
    "redrive_dead_letters": {"all": True},
    "purge_dead_letters": {"all": True},
}
"""Bodies with which an operation gets as far as asking for all."""
QUERIES: Final[Mapping[str, str]] = {
    "stream_topic": "duration=1ms&at=earliest",
    "stream_group": "duration=1ms",
    "pull_messages": "offset=0",
    "get_topic_offsets": "at=latest",
    "request_reply": "wait=0.01",
}


class Elsewhere(NamedTuple):
    """A name in another place than the path, which has the asker's own names."""

    operation_id: str
    place: str
    body: object = None
    query: str = ""
    headers: Mapping[str, str] = {}
    needs: Rights = ()
    """For it, beside what the path needs."""


ELSEWHERE: Final = (
    *(
        Elsewhere(
            operation,
            "header",
            {"messages": [{"text": "x"}]},
            headers={"MQ-Producer-Id": "{team}-job", **_SEQUENCE},
            needs=(("PUB", "producer", "{team}-job"),),
        )
        for operation in ("send_message", "send_batch")
    ),
    *(
        Elsewhere(
            operation,
            "query",
            {"messages": [{"text": "x"}]},
            query=_IN_QUERY + "{team}-job",
            needs=(("PUB", "producer", "{team}-job"),),
        )
        for operation in ("send_message", "send_batch")
    ),
    Elsewhere(
        "send_message",
        "header",
        {"x": 1},
        headers={"MQ-Transaction": "prepare; group={team}-pg"},
        needs=(("PUB", "producer", "{team}-pg"),),
    ),
    Elsewhere(
        "send_message",
        "query",
        {"x": 1},
        query="transaction=prepare&producer_group={team}-pg",
        needs=(("PUB", "producer", "{team}-pg"),),
    ),
    Elsewhere(
        "settle_messages",
        "body",
        {"acks": ["x"], "sends": [{"topic": "{team}-in", "text": "x"}]},
        needs=(("PUB", "topic", "{team}-in"),),
    ),
    Elsewhere(
        "put_member",
        "body",
        {"subscriptions": [{"topic": "{team}-in"}]},
        needs=(("SUB", "topic", "{team}-in"),),
    ),
    Elsewhere(
        "put_member",
        "query",
        {"subscriptions": [{"topic": "{own}-in"}]},
        "force=true",
        needs=(("UPDATE", "group", "{own}-g"), ("SUB", "topic", "{own}-in")),
    ),
    *(
        Elsewhere(
            operation,
            "body",
            {
                "client_id": "{who}",
                "queues": [{"topic": "{team}-in", "queue_id": 0}],
                **({"generation": 1} if operation == "lock_queues" else {}),
            },
            needs=(("SUB", "topic", "{team}-in"),),
        )
        for operation in ("lock_queues", "unlock_queues")
    ),
    Elsewhere(
        "poll_queues",
        "body",
        {"client_id": "{who}", "subscriptions": [{"topic": "{team}-in"}]},
        needs=(("SUB", "topic", "{team}-in"),),
    ),
    Elsewhere(
        "release_parked",
        "body",
        {"topic": "{team}-in", "queue_id": 0, "queue_offset": 0, "action": "retry"},
        needs=(("GET", "topic", "{team}-in"),),
    ),
    Elsewhere(
        "reset_all_group_offsets",
        "body",
        {"to": "earliest", "topics": ["{team}-in"]},
        needs=(("GET", "topic", "{team}-in"),),
    ),
    Elsewhere(
        "redrive_dead_letters",
        "body",
        {"all": True, "to_topic": "{team}-in"},
        needs=(("PUB", "topic", "{team}-in"),),
    ),
    Elsewhere(
        "redrive_dead_letters",
        "body",
        {"all": True, "to_topic": "{team}-in", "dry_run": True},
        needs=(("PUB", "topic", "{team}-in"),),
    ),
    Elsewhere(
        "commit_group_offsets",
        "body",
        {"offsets": [{"queue_id": 0, "offset": 0}], "force": True},
        needs=(("UPDATE", "group", "{own}-g"),),
    ),
    Elsewhere(
        "commit_group_offsets",
        "query",
        {"offsets": [{"queue_id": 0, "offset": 0}]},
        "force=true",
        needs=(("UPDATE", "group", "{own}-g"),),
    ),
    Elsewhere(
        "receive_messages", "query", None, "force=true", needs=(("UPDATE", "group", "{own}-g"),)
    ),
    Elsewhere(
        "plan_epoch",
        "body",
        {"producer": "{own}-job", "epoch": 1, "topic": "{team}-in"},
        needs=(("PUB", "topic", "{team}-in"), ("PUB", "producer", "{own}-job")),
    ),
    Elsewhere(
        "plan_epoch",
        "body",
        {"producer": "{team}-job", "epoch": 1, "topic": "{own}-in"},
        needs=(("PUB", "producer", "{team}-job"), ("PUB", "topic", "{own}-in")),
    ),
    Elsewhere(
        "seal_producer",
        "body",
        {"producer": "{team}-job", "epoch": 1},
        needs=(("PUB", "producer", "{team}-job"), ("PUB", "producer", "{team}-job:1")),
    ),
    Elsewhere(
        "put_schedule",
        "body",
        {"cron": "0 3 * * *", "topic": "{team}-in", "message": {"text": "x"}},
        needs=(("PUB", "topic", "{team}-in"),),
    ),
    *(
        Elsewhere(
            operation,
            "query",
            None,
            query="topic={team}-in",
            needs=(("GET", "topic", "{team}-in"),),
        )
        for operation in ("get_lag", "get_group_stats")
    ),
    Elsewhere(
        "list_dead_letters",
        "query",
        None,
        query="topic={team}-in",
        needs=(("SUB", "topic", "{team}-in"),),
    ),
    *(
        Elsewhere(
            operation, "query", None, query="group={team}-g", needs=(("GET", "group", "{team}-g"),)
        )
        for operation in ("get_delivery", "get_trace")
    ),
)
"""All second checks by name."""

BY_ID: Final[Mapping[str, Rights]] = {
    "ack_receipt": (("SUB", "topic", "{team}-in"), ("SUB", "group", "{team}-g")),
    "change_receipt": (("SUB", "topic", "{team}-in"), ("SUB", "group", "{team}-g")),
    "reply_to_request": (("SUB", "topic", "{team}-in"),),
    "get_transaction": (("PUB", "topic", "{team}-in"),),
    "commit_transaction": (("PUB", "topic", "{team}-in"), ("PUB", "producer", "{team}-pg")),
    "rollback_transaction": (("PUB", "topic", "{team}-in"), ("PUB", "producer", "{team}-pg")),
    "get_schedule": (("PUB", "topic", "{team}-in"),),
    "head_schedule": (("PUB", "topic", "{team}-in"),),
    "patch_schedule": (("PUB", "topic", "{team}-in"),),
    "delete_schedule": (("PUB", "topic", "{team}-in"),),
    "get_operation": (("GET", "group", "{team}-g"),),
    "cancel_operation": (("UPDATE", "group", "{team}-g"),),
}
"""What is looked up first, and what it takes."""

FOR_ANYBODY: Final = frozenset(
    {"get_limits", "list_error_codes", "list_roles", "get_whoami", "get_health", "get_readiness"}
)
LISTS: Final = frozenset(
    {
        *(
            "list_topics",
            "list_groups",
            "list_schedules",
            "list_all_scheduled_messages",
            "list_transactions",
            "list_operations",
        ),
        *("get_positions", "get_offsets_of_topics", "get_routes", "list_namespaces"),
    }
)
"""Answered to everybody, without the rows that one may not know of."""


def own_of(who: str) -> str:
    """The team whose names are its own; of a role any will do."""
    return who if who in TEAMS else OWN


def others_of(who: str) -> Sequence[str]:
    """The teams whose names it is asked with beside its own: for a role one is like another."""
    return [each for each in TEAMS if each != who] if who in TEAMS else [FOREIGN]


def teams_of(who: str) -> Sequence[str]:
    """All that it is asked with, its own first."""
    return [own_of(who), *others_of(who)]


def may(who: str, action: str, kind: str, name: str) -> bool:
    """Whether a principal of the matrix may, from the table of roles alone."""
    if who in TEAMS:
        is_own = name.startswith(f"{who}-")
        rights = (RIGHTS[ROLES["producer"]], RIGHTS[ROLES["consumer"]])
        return is_own and any(action in each.get(Kind(kind), ()) for each in rights)
    return who in ROLES and Action(action) in RIGHTS[ROLES[who]].get(Kind(kind), ())


def may_all(who: str, needs: Rights, team: str) -> bool:
    """Whether it may all of them."""
    return all(
        any(
            may(who, each, kind, name.format(team=team, own=own_of(who)))
            for each in action.split("|")
        )
        for action, kind, name in needs
    )


def path_needs(operation: Operation) -> Rights:
    """What the names of its path take; making and changing at one address is either."""
    needs = []
    for resource, action in operation.needs.items():
        names = [each for each in operation.names if _kind_of(each) == resource]
        if resource == "cluster":
            needs.append((str(action), "cluster", ""))
        elif names:
            either = [str(each) for each in (action, operation.instead.get(resource)) if each]
            needs.append(("|".join(either), str(resource), NAMES[names[0]]))
    return tuple(needs)


def _kind_of(name: str) -> str:
    return "producer" if name == "producer_group" else name


def may_path(who: str, operation: Operation, team: str) -> bool:
    """Whether a principal may have the operation on the names of a team in its path, which are
    there."""
    return may_all(who, path_needs(operation), team)


def may_make(who: str, operation: Operation, team: str) -> bool:
    """Whether it may make what has one of those names, when it is not there."""
    return any(may(who, "CREATE", kind, f"{team}-") for kind in operation.makes)


def path_of(operation: Operation, who: str, team: str, ids: Mapping[str, str] = {}) -> str:
    """Its path with the names of a team, and a client id of the principal's own."""
    path = operation.path
    for name in operation.names:
        text = ids.get(name, NAMES[name].format(team=team, who=who))
        path = path.replace("{" + name + "}", text)
    return path


def filled(value: Any, who: str, team: str) -> Any:
    """A body, header or query with the names of the team, of the principal and of its team."""
    if isinstance(value, str):
        return value.replace("{team}", team).replace("{who}", who).replace("{own}", own_of(who))
    if isinstance(value, dict):
        return {key: filled(each, who, team) for key, each in value.items()}
    return [filled(each, who, team) for each in value] if isinstance(value, list) else value


def operation_of(operation_id: str) -> Operation:
    """The operation of that id."""
    return next(each for each in OPERATIONS if each.operation_id == operation_id)


def undescribed() -> list[str]:
    """Operations of which nobody says how they are asked for what is not in their path."""
    described = {each.operation_id for each in ELSEWHERE} | {*BY_ID, *FOR_ANYBODY, *LISTS}
    return [
        each.operation_id
        for each in OPERATIONS
        if each.operation_id not in described and len(path_needs(each)) < len(each.needs)
    ]


async def ids_of(world: World, team: str) -> dict[str, str]:
    """Ids of things that belong to a team, by the parameter that names them."""
    broker = world.broker
    topic, group = f"{team}-in", f"{team}-g"
    transaction = await broker.transactions.prepare(
        topic, Message(b"half"), producer_group=f"{team}-pg"
    )
    await broker.sender.send(topic, Message(b"x"))
    (delivery,) = await world.receive(1, topic=topic, group=group)
    await broker.schedules.put(f"{team}-s", ScheduleSettings("0 3 * * *", topic, b"x"))

    async def work(job: Job) -> None:
        await job.pause(60)

    job = broker.jobs.start("redrive", 0, work, owner=f"{team}-other", group=group)
    return {
        "transaction_id": transaction.transaction_id,
        "handle": delivery.receipt_handle,
        "operation_id": job.operation_id,
        "name": f"{team}-s",
    }


async def waiting_request(world: World, team: str) -> tuple[str, asyncio.Task[object]]:
    """The correlation id of a request of a team that waits for its reply, and who waits."""
    task: asyncio.Task[object] = asyncio.ensure_future(
        world.broker.request_reply.request(f"{team}-in", Message(b"?"), 30)
    )
    requests = world.broker.request_reply
    await until(lambda: requests.waiting_count > 0)
    return next(iter(requests._waiting)), task


def cells() -> Iterator[tuple[str, str, str, str]]:
    """All cells: operation, place, principal, whose names."""
    for operation in OPERATIONS:
        has_names = any(
            name in ("topic", "group", "producer", "producer_group") for name in operation.names
        )
        for who in PRINCIPALS:
            for team in teams_of(who)[: None if has_names else 1]:
                yield operation.operation_id, "path", who, team
    for each in ELSEWHERE:
        for who in PRINCIPALS:
            for team in teams_of(who):
                yield each.operation_id, each.place, who, team
    for operation_id in BY_ID:
        for who in PRINCIPALS:
            for team in teams_of(who):
                yield operation_id, "id", who, team

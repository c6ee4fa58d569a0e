"""A closed cluster of three shards, attacked: at its ports as a stranger, by a team that has a key,
and by a neighbour that speaks as a node does.

What found something has its test beside the code that was mended, or stands here; most of it found
nothing, and is here so that it stays so.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from app.api.control.operation_list import OPERATIONS
from app.api.http.request_context import RequestContext
from app.api.peers.pool import NotReached, Peers
from app.api.quotas.quotas import Quotas
from app.broker.members.member_values import Heartbeat
from app.domain.consumers.membership import Profile, TopicSubscription
from app.domain.limits import TOKEN_LEEWAY_S
from tests.support.clients.tls import TlsPlace
from tests.support.cluster.closed_cluster import (
    ISSUER,
    TEAMS,
    ClosedCluster,
    closed_cluster,
    in_envelope,
    shake_hands,
)
from tests.support.cluster.forged_tokens import bad_tokens
from tests.support.cluster.smuggled import SMUGGLED
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.access_matrix import QUERIES, path_of
from tests.support.nodes.pull_members import said_next
from tests.support.nodes.waiting import until
from tests.unit.runtime.secure.test_tokens import document_of, written

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

SEND = "/v1/topics/{}-in/messages?queue_id={}"
MANY = 1_000_000


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
async def cluster(
    postgres_databases: PostgresDatabases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClosedCluster]:
    """With quotas that nobody reaches, so that they count."""
    directory, url = tmp_path_factory.mktemp("closed"), postgres_databases.migrated()
    async with closed_cluster(directory, url, quota_requests_per_second=MANY) as made:
        yield made


def problem(answer: httpx.Response) -> tuple[int, object]:
    return answer.status_code, answer.json().get("code")


# --- the port for nodes


GREETINGS = {
    "http": b"GET /v1/topics HTTP/1.1\r\nhost: cluster\r\n\r\n",
    "a key": b"authorization: Bearer curlew_x_y\n",
    "another version": b"curlew-cluster 2 0123\n",
    "nothing": b"\n",
    "without an end": b"x" * 600,
    "as a replica": b"curlew-replica 1 0123 5 evil\n",
    "too many words": b"curlew-cluster 1 0123 4 5 6\n",
}


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS)
async def test_the_port_for_nodes_tells_a_stranger_nothing(
    cluster: ClosedCluster, greeting: bytes
) -> None:
    async with cluster.to_cluster_port(1) as connection:
        await connection.say(greeting)
        said = await connection.rest()
    assert said.startswith(b"refused ")
    assert said.count(b"\n") == 1


@pytest.mark.parametrize("secret", [b"", b"1" * 64, b"0" * 63], ids=["no", "wrong", "cut"])
async def test_another_secret_is_refused(cluster: ClosedCluster, secret: bytes) -> None:
    async with cluster.to_cluster_port(1) as connection:
        await shake_hands(connection, secret)
        await connection.say(in_envelope("GET", "/v1/topics", principal="admin"))
        assert await connection.rest() == b"refused another cluster secret\n"


async def test_what_one_connection_has_said_opens_no_other(cluster: ClosedCluster) -> None:
    """A proof that is said again, that comes back, that is cut, and one for another side."""
    async with cluster.to_cluster_port(1) as connection:
        heard = await shake_hands(connection)
    for kind in ("again", "back", "cut"):
        async with cluster.to_cluster_port(1) as connection:
            await connection.say(b"curlew-cluster 1 %b\n" % (b"0" * 32))
            line = await connection.until(b"\n")
            said = {"again": heard, "back": line.split()[1] + b"\n", "cut": heard[:32] + b"\n"}
            await connection.say(said[kind])
            assert await connection.rest() == b"refused another cluster secret\n", kind


ENVELOPES: Mapping[str, dict[str, str]] = {
    "no versions": {"versions": ""},
    "one version": {"versions": "1"},
    "a version too many": {"versions": "1 2 3"},
    "versions of words": {"versions": "a b"},
    "a client without a port": {"client": "evil "},
    "an end of words": {"principal": "admin", "ends": "never"},
}


@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=ENVELOPES)
async def test_an_envelope_that_is_not_whole_is_refused(
    cluster: ClosedCluster, envelope: dict[str, str]
) -> None:
    async with cluster.to_cluster_port(1) as connection:
        await shake_hands(connection)
        await connection.say(in_envelope("GET", "/v1/topics", **envelope))
        assert b"HTTP/1.1 400 " in await connection.until(b"a request of no node\n")


async def test_behind_the_secret_there_is_nobody_and_no_key(cluster: ClosedCluster) -> None:
    """Who is not named, is not there or has ended gets nothing; a client's key does not count."""
    key = cluster.keys["root"].encode()
    asked = {
        "nobody": in_envelope("GET", "/v1/topics"),
        "of another": in_envelope("GET", "/v1/topics", principal="stranger"),
        "ended": in_envelope("GET", "/v1/topics/alpha-in", principal="alpha", ends="1"),
        "a key": in_envelope("GET", "/v1/topics")[:-2] + b"authorization: Bearer %b\r\n\r\n" % key,
        "of a team": in_envelope("GET", "/v1/topics/beta-in", principal="alpha"),
    }
    async with cluster.to_cluster_port(1) as connection:
        await shake_hands(connection)
        for what, request in asked.items():
            await connection.say(request)
            answer = await connection.answer()
            assert answer.status in {401, 403}, what


async def test_a_request_that_was_carried_is_not_carried_on(cluster: ClosedCluster) -> None:
    path = "/v1/topics/alpha-in/queues/2/messages?offset=0"
    async with cluster.to_cluster_port(1) as connection:
        await shake_hands(connection)
        await connection.say(in_envelope("GET", path, principal="alpha"))
        assert (await connection.answer()).status == 421


# --- through the relay


FORGED = {
    "Curlew-Principal": "admin",
    "curlew-roles": "admin",
    "Curlew-Versions": "9 9",
    "Curlew-Of-Node": "1",
    "Curlew-Whole": "1",
    "Curlew-Asks": "stale",
    "Curlew_Principal": "admin",
    "Connection": "curlew-principal, authorization, mq-queue-id",
}


async def test_headers_of_the_envelope_are_nobodys_to_write(cluster: ClosedCluster) -> None:
    before = await cluster.stored("beta-in")
    for node in range(3):
        said = await cluster.ask(node, "alpha", "GET", "/v1/whoami", headers=FORGED)
        assert said.json()["principal"] == "alpha"
        nobody = await cluster.ask(node, None, "GET", "/v1/whoami", headers=FORGED)
        assert nobody.status_code == 401
        for queue in range(3):
            asked = SEND.format("beta", queue)
            refused = await cluster.ask(node, "alpha", "POST", asked, headers=FORGED, content=b"x")
            assert problem(refused) == (403, "FORBIDDEN")
            asked = SEND.format("alpha", queue)
            sent = await cluster.ask(node, "alpha", "POST", asked, headers=FORGED, content=b"x")
            assert (sent.status_code, sent.json()["queue_id"]) == (201, queue)
    assert await cluster.stored("beta-in") == before


@pytest.mark.parametrize(("status", "lines", "rest"), SMUGGLED.values(), ids=SMUGGLED)
@pytest.mark.parametrize("queue", [0, 2], ids=["here", "carried"])
async def test_nothing_is_smuggled(
    cluster: ClosedCluster, status: int, lines: list[bytes], rest: bytes, queue: int
) -> None:
    before = await cluster.stored("orders")
    head = [
        b"POST /v1/topics/alpha-in/messages HTTP/1.1",
        b"host: localhost",
        b"authorization: Bearer " + cluster.keys["alpha"].encode(),
        b"mq-queue-id: %d" % queue,
        *lines,
    ]
    async with cluster.raw(0) as connection:
        await connection.say(b"\r\n".join([*head, b"", b""]) + rest)
        answer = await connection.answer()
    assert answer.status == status, answer.body
    if status == 201:
        assert json.loads(answer.body)["queue_id"] == queue
    asked = SEND.format("beta", 2)  # on the same connection between the nodes
    after = await cluster.ask(0, "beta", "POST", asked, content=b"x")
    assert after.status_code == 201, after.text
    assert await cluster.stored("orders") == before


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost" + SEND.format("alpha", 2).encode(), 201),
        (b"http://cluster" + SEND.format("alpha", 2).encode(), 400),
        (b"/" + SEND.format("alpha", 2).encode(), 404),
        (b"/v1/topics/alpha-in%0d%0acurlew-principal:%20admin/messages?queue_id=2", 400),
        (SEND.format("alpha", 2).encode() + b"&tag=%0d%0acurlew-principal:admin", 400),
        (b"/v1/topics/alpha-in%2f..%2fbeta-in/messages?queue_id=2", 400),
        (b"/v1/topics/alpha-in/../beta-in/messages?queue_id=2", 404),
    ],
)
async def test_a_target_is_what_it_was_decided_as(
    cluster: ClosedCluster, target: bytes, status: int
) -> None:
    before = await cluster.stored("beta-in")
    key = cluster.keys["alpha"].encode()
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n%b\r\n\r\nx"
    async with cluster.raw(0) as connection:
        await connection.say(head % (target, key, b"content-length: 1"))
        assert (await connection.answer()).status == status
    assert await cluster.stored("beta-in") == before


async def test_a_team_is_not_told_where_nodes_are(
    cluster: ClosedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: Peers, url: str, principal: str | None) -> None:
        raise NotReached("it has another cluster secret")

    monkeypatch.setattr(Peers, "acquire", fails)
    for method, path in (("POST", SEND.format("alpha", 2)), ("GET", "/v1/topics/alpha-in/stats")):
        for who in ("alpha", "root"):
            answer = await cluster.ask(0, who, method, path, content=b"")
            told = "127.0.0.1" in answer.text or "secret" in answer.text
            assert told is (who == "root" and method == "POST"), answer.text
            assert answer.status_code == (503 if method == "POST" else 200)


# --- what is shown


async def test_no_forged_token_counts_at_any_node(cluster: ClosedCluster) -> None:
    for node in range(3):
        for what, token in bad_tokens(cluster).items():
            answer = await cluster.ask(node, token, "GET", "/v1/topics/alpha-in/stats")
            assert problem(answer) == (401, "UNAUTHORIZED"), what
    admin = cluster.token(roles="platform")
    for node in range(3):
        assert (
            await cluster.ask(node, admin, "GET", "/v1/topics/alpha-in/stats")
        ).status_code == 200
    nobody = cluster.token(sub="admin", roles=["admin"])
    assert problem(await cluster.ask(0, nobody, "POST", SEND.format("alpha", 2))) == (
        *(403, "FORBIDDEN"),
    )


async def test_a_certificate_goes_along_as_its_principal(cluster: ClosedCluster) -> None:
    url = cluster.nodes[0].client.base_url
    context = cluster.place.client("beta.example")
    async with httpx.AsyncClient(base_url=url, verify=context) as client:
        for team, status in (("beta", 201), ("alpha", 403)):
            for queue in range(3):
                sent = await client.post(SEND.format(team, queue), content=b"x")
                assert sent.status_code == status, sent.text
        headers = {"authorization": "Bearer curlew_wrong_key"}
        assert (await client.post(SEND.format("beta", 2), headers=headers)).status_code == 401
    stranger = TlsPlace(cluster.place.directory / "stranger")
    context = cluster.place.client()
    stranger.authority.issue_cert("beta.example").configure_cert(context)
    with pytest.raises(httpx.HTTPError):
        async with httpx.AsyncClient(base_url=url, verify=context) as client:
            await client.get("/v1/whoami")


async def test_what_either_node_knows_counts(
    cluster: ClosedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that has not heard of a change lets pass what it knows; the one that the request is
    carried to decides as well."""
    made = await cluster.ask(1, "root", "PUT", "/v1/principals/delta", json={"roles": ["producer"]})
    assert made.status_code == 201, made.text
    key = await cluster.ask(1, "root", "POST", "/v1/principals/delta/keys", json={})
    cluster.keys["delta"] = key.json()["key"]
    await cluster.refresh()
    asked = SEND.format("alpha", 2)
    assert (await cluster.ask(0, "delta", "POST", asked, content=b"x")).status_code == 201
    with monkeypatch.context() as deaf:
        deaf.setattr(cluster.nodes[0].node.metadata.principals, "_show", lambda _: None)
        gone = {"roles": ["producer"], "disabled": True}
        assert (await cluster.ask(1, "root", "PUT", "/v1/principals/delta", json=gone)).is_success
        await cluster.refresh()
        own = await cluster.ask(0, "delta", "POST", SEND.format("alpha", 0), content=b"x")
        assert own.status_code == 201, "it has not heard"
        assert (await cluster.ask(0, "delta", "POST", asked, content=b"x")).status_code == 401
    await cluster.refresh()
    assert (await cluster.ask(0, "delta", "POST", asked, content=b"x")).status_code == 403


async def test_the_node_that_is_asked_looks_for_the_address(cluster: ClosedCluster) -> None:
    """The node that it is carried to takes its word: it sees another node."""
    path, asked = "/v1/principals/eta", SEND.format("alpha", 2)
    near = {"roles": ["producer"], "allowed_from": ["127.0.0.0/8"]}
    assert (await cluster.ask(1, "root", "PUT", path, json=near)).status_code == 201
    key = await cluster.ask(1, "root", "POST", f"{path}/keys", json={})
    cluster.keys["eta"] = key.json()["key"]
    await cluster.refresh()
    assert (await cluster.ask(0, "eta", "POST", asked, content=b"x")).status_code == 201
    await cluster.ask(1, "root", "PUT", path, json={**near, "allowed_from": ["192.0.2.0/24"]})
    await cluster.refresh()
    for node in (0, 2):
        assert (await cluster.ask(node, "eta", "POST", asked, content=b"x")).status_code == 401
    await cluster.ask(1, "root", "DELETE", path)


# --- what goes on


Asked = tuple[str, str, Any]
WAITS: Mapping[str, Asked] = {
    "pull": ("GET", "/v1/topics/gamma-in/queues/2/messages?offset=0&wait=50s", None),
    "receive": ("POST", "/v1/topics/gamma-in/groups/gamma-g/messages:receive?wait=50s", None),
    "stream": ("GET", "/v1/topics/gamma-in/stream?duration=50s", None),
    "stream of a queue": ("GET", "/v1/topics/gamma-in/stream?duration=50s&queue_id=2", None),
    "stream of a group": ("GET", "/v1/topics/gamma-in/groups/gamma-s/stream?duration=50s", None),
    "checks": (
        *("POST", "/v1/producer-groups/gamma-pg/transactions:receive?wait=50s"),
        None,
    ),
    "request": ("POST", "/v1/topics/alpha-in/messages:request?wait=50s&queue_id=2", {"text": "?"}),
}


async def waiting(
    cluster: ClosedCluster, who: str, group: str
) -> dict[str, asyncio.Task[httpx.Response]]:
    """All of them through the first node, once they wait, and a poll of a group."""

    async def one(method: str, path: str, body: object) -> httpx.Response:
        return await cluster.ask(0, who, method, path, json=body)

    known = cluster.nodes[0].node.metadata.principals.waiting
    before = len(known)
    poll = f"/v1/groups/{group}/members:poll"
    said: dict[str, Any] = {"client_id": "c", "subscriptions": [{"topic": "gamma-in"}]}
    for _ in range(2):
        told = await cluster.ask(0, who, "POST", poll, json=said)
        assert told.status_code == 200, told.text
        said |= said_next(told.json())
    asked = {**WAITS, "poll": ("POST", poll, {**said, "wait": "50s"})}
    tasks = {what: asyncio.ensure_future(one(*each)) for what, each in asked.items()}
    await until(lambda: len(known) >= before + len(asked))
    assert not any(each.done() for each in tasks.values())
    return tasks


async def all_end(tasks: Mapping[str, asyncio.Task[httpx.Response]]) -> None:
    """By a refusal, or by the end of a stream, long before they are over."""
    answers = await asyncio.wait_for(asyncio.gather(*tasks.values()), 20)
    for what, answer in zip(tasks, answers, strict=True):
        if not what.startswith("stream"):
            assert answer.status_code == 401, f"{what}: {answer.text}"
        else:
            assert "access_ended" in answer.text, what
        if what == "request":
            assert answer.json()["outcome"] == "unknown", "it may be stored by now, and is"


async def test_what_waits_through_another_node_ends_with_its_key(cluster: ClosedCluster) -> None:
    """The principal stays, and so does its other key: only the node that was asked knows which it
    was."""
    policy = {
        "subject": "principal:gamma",
        "effect": "ALLOW",
        "actions": ["PUB"],
        "resources": ["topic:alpha-in"],
    }
    assert (await cluster.ask(0, "root", "PUT", "/v1/policies/more", json=policy)).is_success
    made = (await cluster.ask(1, "root", "POST", "/v1/principals/gamma/keys", json={})).json()
    await cluster.refresh()
    tasks = await waiting(cluster, made["key"], "gamma-key")
    path = f"/v1/principals/gamma/keys/{made['id']}"
    assert (await cluster.ask(1, "root", "DELETE", path)).status_code == 204
    await all_end(tasks)
    assert (await cluster.ask(0, "gamma", "GET", "/v1/whoami")).status_code == 200


async def test_what_waits_through_another_node_ends_with_the_issuers_key(
    cluster: ClosedCluster,
) -> None:
    policy = {
        "subject": f"principal:oidc:{ISSUER}#ann",
        "effect": "ALLOW",
        "actions": ["PUB", "SUB", "GET", "CREATE", "UPDATE"],
        "resources": ["topic:gamma-*", "group:gamma-*", "producer:gamma-*", "topic:alpha-in"],
    }
    assert (await cluster.ask(0, "root", "PUT", "/v1/policies/ann", json=policy)).is_success
    await cluster.refresh()
    tasks = await waiting(cluster, cluster.token(), "gamma-issuer")
    file = cluster.place.directory.parent / "jwks.json"
    before = file.read_text()
    written(file, document_of("b", "ES256", ec.generate_private_key(ec.SECP256R1())))
    await cluster.nodes[0].node.housekeeping.refresh_files()
    await all_end(tasks)
    file.write_text(before)
    await cluster.nodes[0].node.housekeeping.refresh_files()


async def test_what_waits_through_another_node_ends_with_the_token(
    cluster: ClosedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = cluster.nodes[0].node.clock.now_ms() / 1_000
    token = cluster.token(exp=now_s - TOKEN_LEEWAY_S + 4)
    await all_end(await waiting(cluster, token, "gamma-token"))
    assert "Exception in ASGI application" not in caplog.text, "the other node has ended the stream"


async def test_a_member_is_its_principals_at_every_node(cluster: ClosedCluster) -> None:
    """Two teams share a group; one tries to be, to evict and to commit for the other's member, at
    nodes that do not know of it, as after a start."""
    policy = {
        "subject": "principal:beta",
        "effect": "ALLOW",
        "actions": ["SUB", "GET"],
        "resources": ["topic:gamma-in", "group:gamma-shared"],
    }
    assert (await cluster.ask(0, "root", "PUT", "/v1/policies/shared", json=policy)).is_success
    await cluster.refresh()
    topic, group = {"topic": "gamma-in"}, "/v1/groups/gamma-shared"
    body = {"subscriptions": [topic]}
    path = f"{group}/members/worker"
    made = await cluster.ask(0, "gamma", "PUT", "/v1/groups/gamma-shared", json={})
    assert made.status_code == 201, made.text
    await cluster.refresh()
    profile = Profile((TopicSubscription("gamma-in", ""),), principal="gamma")
    first = cluster.nodes[0].node.broker.members
    await first.heartbeat("gamma-shared", "worker", Heartbeat(profile), lambda: False)
    receive = "/v1/topics/gamma-in/groups/gamma-shared/messages:receive"
    queue = {**topic, "queue_id": 0}
    of_member = {"client_id": "worker", "generation": 1}
    for node in (1, 2):
        client = {"MQ-Client-Id": "worker"}
        await cluster.ask(node, "beta", "POST", receive, headers=client)  # it says the name first
        for method, at, sent in (
            ("PUT", path, body),
            ("DELETE", path, None),
            ("POST", f"{group}/members:poll", {"client_id": "worker", **body}),
            ("POST", f"{group}/queues:lock", {**of_member, "queues": [queue]}),
            ("POST", f"{group}/queues:unlock", {"client_id": "worker", "queues": [queue]}),
            (
                *("PUT", f"{group}/offsets/gamma-in"),
                {**of_member, "offsets": [{"queue_id": 0, "offset": 0}]},
            ),
        ):
            answer = await cluster.ask(node, "beta", method, at, json=sent)
            assert problem(answer) == (403, "FORBIDDEN"), f"{at} at {node}: {answer.text}"
    members = (await cluster.ask(0, "gamma", "GET", f"{group}/members")).json()["members"]
    assert [each["client_id"] for each in members] == ["worker"]
    assert (await cluster.ask(2, "gamma", "DELETE", path)).status_code == 204


# --- what is counted and told


async def test_a_quota_counts_a_request_once_where_it_came_in(
    cluster: ClosedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str | None] = []
    admit = Quotas.admit

    def count(self: Quotas, exchange: RequestContext, who: str | None, topic: str | None) -> None:
        counted.append(who)
        admit(self, exchange, who, topic)

    monkeypatch.setattr(Quotas, "admit", count)
    asked: list[Asked] = [
        ("POST", SEND.format("alpha", 0), None),
        ("POST", SEND.format("alpha", 2), None),
        ("GET", "/v1/topics/alpha-in/stats", None),
        ("GET", "/v1/topics/alpha-in/queues/2/messages?offset=0", None),
        ("POST", "/v1/topics/alpha-in/groups/alpha-g/messages:receive", None),
        ("POST", "/v1/topics/alpha-in/messages:batch", {"messages": [{"text": "x"}] * 9}),
        ("POST", "/v1/groups/alpha-g/offsets/alpha-in:reset", {"to": "latest"}),
    ]
    for method, path, body in asked:
        counted.clear()
        answer = await cluster.ask(0, "alpha", method, path, json=body)
        assert answer.status_code < 300, answer.text
        assert counted == ["alpha"], path


async def test_a_change_that_was_carried_is_in_the_audit_once(cluster: ClosedCluster) -> None:
    """Where it was done, with who asked and from where, and not the node."""
    headers = {"Curlew-Principal": "admin", "MQ-Request-Id": "the-clients"}
    half = {"MQ-Delay": "1h", "MQ-Queue-Id": "2"}
    delayed = {"queues": 3, "type": "delay"}
    assert (await cluster.ask(0, "alpha", "PUT", "/v1/topics/alpha-later", json=delayed)).is_success
    await cluster.refresh()
    path = "/v1/topics/alpha-later/messages"
    sent = await cluster.ask(0, "alpha", "POST", path, headers=half, content=b"x")
    path = f"/v1/topics/alpha-later/scheduled/{sent.json()['recall_handle']}"
    gone = await cluster.ask(0, "alpha", "DELETE", path, headers=headers)
    assert gone.status_code == 204, gone.text
    denied = await cluster.ask(0, "alpha", "DELETE", "/v1/topics/beta-in", headers=headers)
    assert denied.status_code == 403
    nodes = [each.node.node_id for each in cluster.nodes]
    assert await audited(cluster, "the-clients") == [
        (nodes[2], "intended", "alpha", "127.0.0.1"),
        (nodes[2], "done", "alpha", "127.0.0.1"),
    ]
    path, headers = "/v1/groups/alpha-g/offsets/alpha-in:reset", {"MQ-Request-Id": "the-reset"}
    done = await cluster.ask(0, "alpha", "POST", path, headers=headers, json={"to": "latest"})
    assert done.status_code == 200, done.text
    assert sorted(await audited(cluster, "the-reset")) == sorted(
        (node, outcome, "alpha", "127.0.0.1") for node in nodes for outcome in ("intended", "done")
    ), "each node has what it did"


async def audited(cluster: ClosedCluster, request_id: str) -> list[tuple[str, ...]]:
    """Node, outcome, principal and address of the entries of a request."""
    found = await cluster.ask(1, "root", "GET", "/v1/audit?page_size=1000")
    entries = found.json()["entries"]
    of_request = [each for each in entries if each["client_request_id"] == request_id]
    names = ("node_id", "outcome", "principal", "address")
    return [tuple(each[name] for name in names) for each in of_request]


async def test_no_node_tells_a_team_of_another(cluster: ClosedCluster) -> None:
    """Each answer to a GET on its own names, and each list, at each node; all shards have
    something of all teams."""
    await fill(cluster)
    wrong: list[str] = []
    counted = 0
    for node in range(3):
        for operation in OPERATIONS:
            if operation.method != "GET" or "stream" in operation.path:
                continue
            path = path_of(operation, "c1", "alpha")
            query = "topics=alpha-in" if ":" in path or path.endswith("/route") else ""
            query += "&at=latest" if path.endswith("offsets") else ""
            queries = (QUERIES.get(operation.operation_id, query), "page_size=2")
            for each in queries:
                answer = await cluster.ask(node, "alpha", "GET", f"{path}?{each}")
                assert answer.status_code < 500, answer.text
                counted += answer.status_code == 200
                said = answer.text + str(answer.headers)
                names = [each for each in TEAMS if each != "alpha" and f"{each}-" in said]
                wrong += [f"{path} at {node}: {names} in {said[:300]}"] if names else []
    assert wrong == []
    assert counted > 3 * 30


async def fill(cluster: ClosedCluster) -> None:
    """Of each team something in each shard: messages, leases, members, halves, letters,
    producers, schedules."""
    for team in TEAMS:
        for queue in range(3):
            headers = {
                "MQ-Producer-Id": f"{team}-job",
                "MQ-Producer-Epoch": "1",
                "MQ-Producer-Seq": "0",
                "MQ-Client-Id": f"{team}-c",
            }
            path = SEND.format(team, queue)
            sent = await cluster.ask(queue, team, "POST", path, headers=headers, content=b"x")
            assert sent.status_code in {200, 201}, sent.text
            headers = {"MQ-Transaction": f"prepare; group={team}-pg"}
            half = await cluster.ask(0, team, "POST", path, headers=headers, content=b"x")
            assert half.status_code == 202, half.text
        path = f"/v1/topics/{team}-in/groups/{team}-g/messages:receive?max_messages=3"
        for node in range(3):
            got = await cluster.ask(node, team, "POST", path, headers={"MQ-Client-Id": f"{team}-c"})
            assert got.status_code == 200, got.text
        topic = {"topic": f"{team}-in"}
        body = {"cron": "0 3 * * *", "message": {"text": "x"}, **topic}
        assert (await cluster.ask(1, team, "PUT", f"/v1/schedules/{team}-s", json=body)).is_success
        path = f"/v1/groups/{team}-pull/members/{team}-c"
        joined = await cluster.ask(2, team, "PUT", path, json={"subscriptions": [topic]})
        assert joined.is_success

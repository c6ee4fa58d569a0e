"""The audit over HTTP: what is done, what was to be done, what was denied, and its chain."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.api.control.log_changes import IN_THE_LOG
from app.api.control.operation_list import OPERATIONS
from app.cluster.metadata.audit import audit_rows
from app.cluster.metadata.audit.audit_rows import Sought
from app.cluster.metadata.nodes.shared_secrets import OtherSecretKey
from app.commands import access_commands, secret_commands
from app.commands.server_words import parser_of
from app.config import Config
from app.domain.access.accounts import PrincipalSettings
from app.domain.access.audit import Actor, Denial, Forced
from app.domain.access.keys import NewKey
from app.domain.errors import MetadataUnavailable
from app.domain.limits import DENIALS_MAX, FORCED_MAX, Limits
from app.domain.positions import TimestampMs
from tests.integration.secure.test_secrets import SECRET, private
from tests.support.clients.wire import Served, served_node
from tests.support.metadata.databases import sync_engine

pytestmark = pytest.mark.anyio

IN_SQL = {
    *("put_topic", "patch_topic", "delete_topic", "put_group", "patch_group", "delete_group"),
    *("pause_group", "resume_group", "put_namespace", "delete_namespace"),
    *("put_principal", "delete_principal", "put_policy", "delete_policy"),
    *("make_key", "revoke_key"),
}
"""Operations whose entry is in the transaction of the change."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    key = private(tmp_path / "secret", SECRET)
    (tmp_path / "data").mkdir()
    async with served_node(tmp_path / "data", Limits(), secret_key_file=key) as served:
        yield served


@pytest.fixture
async def http(server: Served) -> AsyncIterator[httpx.AsyncClient]:
    url = f"http://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


async def entries(http: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    answer = await http.get("/v1/audit", params=query)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["entries"])


async def verified(server: Served, *flags: str) -> tuple[str, bool]:
    """What `curlew audit verify` says, with the key of the node."""
    options = parser_of().parse_args(["audit", "verify", *flags])
    return await secret_commands.run(options, server.node.config)


async def test_a_change_is_written_with_what_was_before_and_after(http: httpx.AsyncClient) -> None:
    await http.put("/v1/topics/pay", json={"queues": 2}, headers={"MQ-Request-Id": "mine"})
    await http.put("/v1/topics/pay", json={"queues": 4})
    await http.put("/v1/topics/pay", json={"queues": 4})
    await http.put("/v1/topics/pay?dry_run=true", json={"queues": 8})
    await http.delete("/v1/topics/pay")
    found = await entries(http, resource="topic:pay")
    assert [each["action"] for each in found] == ["CREATE", "UPDATE", "DELETE"]
    assert [each["outcome"] for each in found] == ["done"] * 3
    made, changed, gone = found
    assert (made["before"], made["after"]["queues"]) == (None, 2)
    assert (changed["before"]["queues"], changed["after"]["queues"]) == (2, 4)
    assert gone["after"] is None
    assert made["seq"] + 2 == gone["seq"]
    assert all(len(each["signed_with"]) == 16 for each in found)


async def test_what_happens_in_the_log_has_its_intent_before(http: httpx.AsyncClient) -> None:
    await http.put("/v1/groups/billing", json={})
    done = await http.post("/v1/groups/billing/offsets/orders:reset", json={"to": "earliest"})
    failed = await http.post("/v1/groups/billing/offsets/none:reset", json={"to": "earliest"})
    assert failed.status_code == 404
    found = await entries(http, action="UPDATE", resource="group:billing*")
    assert [each["outcome"] for each in found] == [
        "intended",
        "done" if done.status_code == 200 else "failed: BAD_REQUEST",
        "intended",
        "failed: TOPIC_NOT_FOUND",
    ]
    assert found[0]["resource"] == "group:billing/topic:orders"
    assert found[0]["after"]["operation"] == "reset_group_offsets"


async def test_nothing_is_written_for_who_may_not(server: Served, http: httpx.AsyncClient) -> None:
    await http.put("/v1/groups/billing", json={})
    principals = server.node.metadata.principals
    admin = (await principals.make_first()).text
    await principals.create("nobody", PrincipalSettings(), None)
    key = (await principals.rotate("nobody", None)).text
    await principals.refresh()
    asked: list[tuple[str, str, object]] = [
        ("POST", "/v1/groups/billing/offsets/orders:reset", {"to": "earliest"}),
        ("PUT", "/v1/groups/billing/offsets/orders", {"offsets": [], "force": True}),
        ("POST", "/v1/operations/redrive-1-1:cancel", None),
        ("POST", "/v1/producers:seal", {"producer": "job", "epoch": 1}),
        ("DELETE", "/v1/producers/job", None),
    ]
    headers = {"authorization": f"Bearer {key}"}
    for method, path, body in asked:
        answer = await http.request(method, path, json=body, headers=headers)
        assert answer.status_code in {403, 404}, answer.text
    http.headers["authorization"] = f"Bearer {admin}"
    assert await entries(http, principal="nobody") == []
    done = await http.post("/v1/producers:seal", json={"producer": "job", "epoch": 1})
    assert done.status_code == 200
    assert (await http.delete("/v1/producers/job")).status_code == 204
    found = await entries(http, principal="admin")
    assert [(each["outcome"], each["action"]) for each in found] == [
        *(("intended", "UPDATE"), ("done", "UPDATE")),
        *(("intended", "DELETE"), ("done", "DELETE")),
    ]
    assert await entries(http, resource="producer:job") == found


@pytest.mark.parametrize("place", ["query", "body"])
async def test_a_forced_commit_is_written_and_a_plain_one_is_not(
    http: httpx.AsyncClient, place: str
) -> None:
    await http.put("/v1/topics/orders", json={"queues": 1})
    await http.put("/v1/groups/billing", json={})
    path, plain = "/v1/groups/billing/offsets/orders", {"offsets": [{"queue_id": 0, "offset": 0}]}
    assert (await http.put(path, json=plain)).status_code == 200
    assert await entries(http, resource="group:billing/*") == []
    forced = plain | ({"force": True} if place == "body" else {})
    query = {"force": "true"} if place == "query" else {}
    assert (await http.put(path, json=forced, params=query)).status_code == 200
    found = await entries(http, resource="group:billing/*")
    assert [each["outcome"] for each in found] == ["intended", "done"]


async def test_without_the_database_nothing_is_redriven(
    server: Served, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await http.put("/v1/groups/billing", json={})
    file = server.node.config.data_dir / "metadata.db"
    engine = sync_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE audit_heads RENAME TO away"))
    engine.dispose()
    answer = await http.post("/v1/groups/billing/dlq/messages:purge", json={"all": True})
    assert (answer.status_code, answer.json()["code"]) == (503, "METADATA_UNAVAILABLE")


async def test_denials_are_added_up_and_bounded(server: Served, http: httpx.AsyncClient) -> None:
    audit = server.node.metadata.audit
    for number in range(3):
        audit.denied(Denial(Actor("bob", "::1"), "PUB", f"topic:t{number}", "FORBIDDEN"))
    for number in range(2 * DENIALS_MAX):
        audit.denied(Denial(Actor(None, f"10.0.0.{number}"), "GET", "", "UNAUTHORIZED"))
    for number in range(DENIALS_MAX):
        audit.denied(Denial(Actor(f"p{number}", "::1"), "GET", "topic:pay", "FORBIDDEN"))
    assert audit.unnamed_count == DENIALS_MAX + 1
    await audit.flush()
    await audit.flush()
    [denied] = await entries(http, principal="bob")
    assert (denied["outcome"], denied["after"]) == ("denied: FORBIDDEN", {"count": 3})
    assert denied["resource"] == "topic:t2", "the last of them"
    others = (await audit.page(Sought(action="GET"), None, 10 * DENIALS_MAX)).entries
    assert len(others) == 2 * DENIALS_MAX + 1, "but for bob's, and one more each for all others"
    counted = [json.loads(each.after or "") for each in others if each.principal is None]
    assert {"count": DENIALS_MAX, "of": "others"} in counted
    assert sum(each["count"] for each in counted) == 2 * DENIALS_MAX + 1, "none is lost"
    shown = (await http.get("/metrics")).text
    assert f"curlew_denials_unnamed_total {DENIALS_MAX + 1}" in shown


async def test_denials_that_could_not_be_written_are_the_same_the_next_time(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = server.node.metadata.audit
    for number in range(DENIALS_MAX + 5):
        audit.denied(Denial(Actor(None, f"10.0.0.{number}"), "GET", "", "UNAUTHORIZED"))

    async def fails(*_: object) -> None:
        raise MetadataUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(audit_rows, "append", fails)
        for _ in range(2):
            with pytest.raises(MetadataUnavailable):
                await audit.flush()
    assert audit.unnamed_count == 5, "each is counted once"
    await audit.flush()
    found = (await audit.page(Sought(action="GET"), None, 10 * DENIALS_MAX)).entries
    counted = [json.loads(each.after or "") for each in found]
    assert [each for each in counted if "of" in each] == [{"count": 5, "of": "others"}]
    assert len(counted) == DENIALS_MAX + 1


async def test_denials_push_no_change_out(server: Served, http: httpx.AsyncClient) -> None:
    await http.put("/v1/topics/pay", json={"queues": 1})
    audit = server.node.metadata.audit
    for number in range(9):
        audit.denied(Denial(Actor(None, f"10.0.0.{number}"), "GET", "", "UNAUTHORIZED"))
    await audit.flush()
    await audit.expire(keep_ms=86_400_000, entries_max=3)
    assert len(await entries(http, resource="topic:pay")) == 1
    assert len(await entries(http, action="GET")) == 3
    said, is_well = await verified(server)
    assert is_well, said


async def test_all_chains_are_kept_by_time(server: Served, http: httpx.AsyncClient) -> None:
    audit = server.node.metadata.audit
    node = audit._node
    for chain in ("commands", "gone"):
        audit._node = chain
        for number in range(3):
            await http.put(f"/v1/topics/{chain}{number}", json={"queues": 1})
    audit._node = node
    clock = audit._clock
    later_ms = clock.now_ms() + 86_400_000
    audit._clock = type("At", (), {"now_ms": lambda self: TimestampMs(later_ms)})()
    await audit.expire(keep_ms=1)
    kept: dict[str, list[str]] = {}
    for each in await entries(http):
        kept.setdefault(each["node_id"], []).append(each["resource"])
    assert kept["commands"] == ["topic:commands2", "audit"], "the last stays, and it is said"
    assert kept["gone"] == ["topic:gone2", "audit"], "also of a node that is no more"
    said, is_well = await verified(server)
    assert is_well, said


async def test_denials_wait_for_the_database(
    server: Served, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = server.node.metadata.audit
    bob = Denial(Actor("bob", "::1"), "PUB", "topic:pay", "FORBIDDEN")

    async def away(*_: object) -> None:
        audit.denied(bob)
        raise MetadataUnavailable("away")

    audit.denied(bob)
    with monkeypatch.context() as patch:
        patch.setattr(audit_rows, "append", away)
        with pytest.raises(MetadataUnavailable):
            await audit.flush()
    await audit.flush()
    [denied] = await entries(http, principal="bob")
    assert denied["after"] == {"count": 2}


async def test_a_client_does_not_choose_the_id_of_the_node(http: httpx.AsyncClient) -> None:
    await http.put("/v1/topics/pay", json={"queues": 1}, headers={"MQ-Request-Id": "mine"})
    [made] = await entries(http, resource="topic:pay")
    assert made["client_request_id"] == "mine"
    assert made["request_id"] not in {None, "mine"}


async def test_a_client_does_not_choose_how_much_is_kept(http: httpx.AsyncClient) -> None:
    await http.put("/v1/topics/pay", json={"queues": 1}, headers={"MQ-Request-Id": "m" * 8_000})
    [made] = await entries(http, resource="topic:pay")
    assert made["client_request_id"] == "m" * 128


async def test_on_a_closed_node_each_entry_says_whose_key_it_was_and_from_where(
    server: Served,
) -> None:
    principals = server.node.metadata.principals
    admin = await principals.make_first()
    ann = await principals.create("ann", PrincipalSettings(roles=("operator",)), None)
    await principals.refresh()
    url = f"http://127.0.0.1:{server.port}"

    def as_who(key: NewKey) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key.text}"}
        return httpx.AsyncClient(base_url=url, headers=headers, timeout=60)

    policy = {
        "subject": "principal:ann",
        "effect": "DENY",
        "actions": ["PUB"],
        "resources": ["topic:pay*"],
    }
    async with as_who(admin) as boss, as_who(ann) as http:
        assert (await http.put("/v1/topics/pay", json={"queues": 2})).status_code == 201
        assert (await boss.put("/v1/policies/no-pay", json=policy)).status_code == 201
        assert (await boss.put("/v1/principals/eve", json={"roles": []})).status_code == 201
        made = await boss.post("/v1/principals/eve/keys", json={})
        assert made.status_code == 201
        for _ in range(2):  # the data plane, and the control plane
            assert (await http.post("/v1/topics/pay/messages", content=b"x")).status_code == 403
            assert (await http.get("/v1/principals")).status_code == 403
        stranger = await http.get("/v1/topics", headers={"authorization": "Bearer wrong"})
        assert stranger.status_code == 401
        await server.node.metadata.audit.flush()
        [topic] = await entries(boss, resource="topic:pay", principal="ann", action="CREATE")
        assert (topic["address"], topic["after"]["queues"]) == ("127.0.0.1", 2)
        for resource in ("policy:no-pay", "principal:eve", f"key:eve/{made.json()['id']}"):
            [entry] = await entries(boss, resource=resource)
            said = [entry[name] for name in ("principal", "address", "action", "outcome")]
            assert said == ["admin", "127.0.0.1", "CREATE", "done"], resource
        denied = [each for each in await entries(boss) if "denied" in each["outcome"]]
        assert {
            (each["principal"], each["address"], each["action"], each["outcome"]): each["after"]
            for each in denied
        } == {
            ("ann", "127.0.0.1", "PUB", "denied: FORBIDDEN"): {"count": 2},
            ("ann", "127.0.0.1", "ADMIN", "denied: FORBIDDEN"): {"count": 2},
            (None, "127.0.0.1", "GET", "denied: UNAUTHORIZED"): {"count": 1},
        }
        assert made.json()["key"] not in (await boss.get("/v1/audit")).text


async def test_what_is_denied_is_never_intended(server: Served) -> None:
    """Else whoever has any key could fill the audit."""
    principals = server.node.metadata.principals
    admin = await principals.make_first()
    eve = await principals.create("eve", PrincipalSettings(roles=("viewer",)), None)
    await principals.refresh()
    url = f"http://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        boss, viewer = ({"authorization": f"Bearer {each.text}"} for each in (admin, eve))
        await http.put("/v1/groups/billing", json={}, headers=boss)
        before = len((await http.get("/v1/audit", headers=boss)).json()["entries"])
        denied = (
            ("POST", "/v1/groups/billing/dlq/messages:purge", {"all": True}),
            ("POST", "/v1/groups/billing/offsets:reset", {"to": "earliest"}),
            ("DELETE", "/v1/groups/billing/members/m", None),
            ("PUT", "/v1/groups/billing/snapshots/s", None),
            ("PATCH", "/v1/config", {"limit_page_size_max": 99}),
        )
        for method, path, body in denied:
            answer = await http.request(method, path, json=body, headers=viewer)
            assert answer.status_code == 403, path
        after = (await http.get("/v1/audit", headers=boss)).json()["entries"]
        assert len(after) == before, after[before:]


async def test_a_slash_in_a_name_is_not_one_between_names(
    server: Served, http: httpx.AsyncClient
) -> None:
    """What is asked for may have one; no group and no topic has."""
    await http.put("/v1/groups/billing", json={})
    principals = server.node.metadata.principals
    admin = (await principals.make_first()).text
    eve = (await principals.create("eve", PrincipalSettings(), None)).text
    await principals.refresh()
    path = "/v1/groups/billing%2Ftopic:orders%0Ax/members/m"
    for key, status in ((eve, 403), (admin, 400)):
        answer = await http.delete(path, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == status, answer.text
    await server.node.metadata.audit.flush()
    http.headers["authorization"] = f"Bearer {admin}"
    found = await entries(http, resource="group:billing*")
    named = "group:billing%2Ftopic:orders%0Ax"
    expected = {named, f"{named}/client_id:m", "group:billing"}
    assert {each["resource"] for each in found} == expected


async def test_commands_sign_their_chain_with_the_clusters_key(tmp_path: Path) -> None:
    key = private(tmp_path / "secret", SECRET)
    config = Config(data_dir=tmp_path / "data", secret_key_file=key)

    async def run(*arguments: str, config: Config = config) -> str:
        return await access_commands.run(parser_of().parse_args(arguments), config)

    await run("init")
    await run("key", "create", "ci", "--role", "producer")
    other = private(tmp_path / "other", f"other {SECRET}")
    for wrong in (None, other):
        with pytest.raises(OtherSecretKey):
            await run("key", "rotate", "ci", config=replace(config, secret_key_file=wrong))
    assert "ci" in await run("key", "list", config=replace(config, secret_key_file=None))
    await run("key", "revoke", "ci")
    options = parser_of().parse_args(["audit", "verify"])
    said, is_well = await secret_commands.run(options, config)
    assert is_well, said
    assert "5 entries, 0 findings" in said


async def test_the_chain_holds_and_an_edit_shows(server: Served, http: httpx.AsyncClient) -> None:
    for number in range(4):
        await http.put(f"/v1/topics/t{number}", json={"queues": 1})
    said, is_well = await verified(server)
    assert is_well, said
    head = said.split("--head ")[1].split()[0]
    file = server.node.config.data_dir / "metadata.db"
    engine = sync_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.execute(text("UPDATE audit_entries SET principal = 'eve' WHERE seq = 2"))
    said, is_well = await verified(server)
    assert not is_well
    assert " 2: it was changed" in said
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM audit_entries WHERE seq >= 3"))
        last = connection.execute(text("SELECT node, link FROM audit_entries WHERE seq = 2")).one()
        connection.execute(
            text("UPDATE audit_heads SET seq = 2, link = :link WHERE node = :node"), last._asdict()
        )
    engine.dispose()
    assert "cut off" not in (await verified(server))[0]
    assert "entries are cut off at the end" in (await verified(server, "--head", head))[0]


async def test_old_entries_go_and_the_chain_says_so(
    server: Served, http: httpx.AsyncClient
) -> None:
    for number in range(4):
        await http.put(f"/v1/topics/t{number}", json={"queues": 1})
    found = await entries(http, resource="topic:*")
    audit = server.node.metadata.audit
    now_ms = found[-1]["at_ms"]
    audit._clock = type("At", (), {"now_ms": lambda self: TimestampMs(now_ms + 1)})()
    await audit.expire(keep_ms=1)
    kept = await entries(http)
    assert kept[0]["at_ms"] == now_ms
    assert kept[-1]["resource"] == "audit"
    said, is_well = await verified(server)
    assert is_well, said


async def test_of_too_many_entries_the_oldest_go(server: Served, http: httpx.AsyncClient) -> None:
    for number in range(6):
        await http.put(f"/v1/topics/t{number}", json={"queues": 1})
    before = await entries(http)
    await server.node.metadata.audit.expire(keep_ms=86_400_000, entries_max=3)
    *kept, told = await entries(http)
    assert kept == before[-3:]
    assert (told["resource"], told["after"]) == ("audit", {"kept_from": kept[0]["seq"]})
    said, is_well = await verified(server)
    assert is_well, said


async def forced_entries(server: Served, http: httpx.AsyncClient) -> list[dict[str, Any]]:
    await server.node.metadata.audit.flush()
    found = await entries(http, resource="group:workers", action="UPDATE")
    return [each for each in found if each["before"] is not None]


async def test_what_a_consumer_ends_by_force_is_written(
    server: Served, http: httpx.AsyncClient
) -> None:
    await http.put("/v1/topics/pay", json={"queues": 1})
    await http.post("/v1/topics/pay/messages", content=b"x")
    receive = "/v1/topics/pay/groups/workers/messages:receive"
    member, profile = "/v1/groups/workers/members/m1", {"subscriptions": [{"topic": "pay"}]}
    await http.post(f"{receive}?force=true")
    assert await forced_entries(server, http) == []  # nothing was there to be ended
    joined = await http.put(f"{member}?force=true", json=profile)
    assert joined.status_code == 200, joined.text
    asked = {"MQ-Request-Id": "mine", "MQ-Client-Id": "m1"}
    back = await http.post(f"{receive}?force=true", headers=asked)
    assert back.status_code == 200, back.text
    leases_end, assignments_end = await forced_entries(server, http)
    assert (leases_end["outcome"], leases_end["before"]["consumption"]) == ("done", "lease")
    assert leases_end["after"]["effects"] == [{"code": "LEASES_END", "count": 1}]
    assert assignments_end["client_request_id"] == "mine"
    assert assignments_end["before"] == {"topic": "pay", "consumption": "assigned"}
    assert assignments_end["after"]["effects"] == [{"code": "ASSIGNMENTS_END", "count": 1}]


async def test_a_filter_that_a_consumer_replaces_is_written(
    server: Served, http: httpx.AsyncClient
) -> None:
    await http.put("/v1/topics/pay", json={"queues": 1})
    receive = "/v1/topics/pay/groups/workers/messages:receive"
    assert (await http.post(f"{receive}?filter=red")).status_code == 200
    for _ in range(2):  # the second one replaces nothing
        answer = await http.post(f"{receive}?filter=blue&replace_subscription=true")
        assert answer.status_code == 200
    (replaced,) = await forced_entries(server, http)
    assert replaced["before"] == {"topic": "pay", "filter": "red"}
    assert replaced["after"] == {"topic": "pay", "filter": "blue"}
    assert replaced["address"] == "127.0.0.1"


async def test_of_too_many_forced_changes_the_first_are_written(
    server: Served, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = server.node.metadata.audit
    forced = Forced(Actor("ann"), "group:workers", {"topic": "pay"}, {"topic": "pay"})

    async def fails(*_: object) -> None:
        raise MetadataUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(audit_rows, "append", fails)
        for _ in range(2):
            for _ in range(FORCED_MAX):
                audit.forced(forced)
            with pytest.raises(MetadataUnavailable):
                await audit.flush()
    assert audit.unwritten_count == FORCED_MAX
    await audit.flush()
    await audit.flush()
    page = await audit.page(Sought(principal="ann"), None, 2 * FORCED_MAX)
    assert len(page.entries) == FORCED_MAX


def test_each_operation_that_changes_something_is_written() -> None:
    changing = {
        each.operation_id
        for each in OPERATIONS
        if {"UPDATE", "DELETE", "ADMIN"} & {str(action) for action in each.needs.values()}
        and each.method != "GET"
    }
    written = {*IN_THE_LOG, *IN_SQL}
    assert changing - written == set()
    assert set(IN_THE_LOG) <= {each.operation_id for each in OPERATIONS}

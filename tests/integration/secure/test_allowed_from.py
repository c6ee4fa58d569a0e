"""Principals that are let in from some addresses only: over HTTP, behind a trusted proxy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.commands import access_commands
from app.commands.server_words import parser_of
from app.domain.access.accounts import PrincipalSettings
from app.domain.access.refusals import ADDRESS_NOT_ALLOWED
from app.domain.errors import InvalidRequest
from app.domain.limits import NETWORKS_OF_A_PRINCIPAL_MAX, Limits
from tests.support.clients.wire import Served, served_node

pytestmark = pytest.mark.anyio

INSIDE, OUTSIDE = {"x-forwarded-for": "10.1.2.3"}, {"x-forwarded-for": "192.0.2.1"}


@asynccontextmanager
async def holder_of(server: Served, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody with a key, on one connection."""
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}",
        headers={"authorization": f"Bearer {key}", "mq-request-id": "the-same"},
        limits=httpx.Limits(max_connections=1),
        timeout=60,
    ) as client:
        yield client


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    async with served_node(tmp_path, Limits(), trusted_proxies=("127.0.0.1",)) as served:
        yield served


@pytest.fixture
async def admin(server: Served) -> AsyncIterator[httpx.AsyncClient]:
    principals = server.node.metadata.principals
    key = (await principals.make_first()).text
    await principals.refresh()
    async with holder_of(server, key) as client:
        yield client


async def key_of(admin: httpx.AsyncClient, name: str, **settings: Any) -> str:
    made = await admin.put(f"/v1/principals/{name}", json=settings)
    assert made.status_code == 201, made.text
    return str((await admin.post(f"/v1/principals/{name}/keys")).json()["key"])


async def test_a_key_counts_where_its_principal_is_let_in(
    server: Served, admin: httpx.AsyncClient
) -> None:
    path, roles = "/v1/principals/ann", ["viewer"]
    key = await key_of(
        admin, "ann", roles=roles, allowed_from=["10.0.0.0/8", "::ffff:10.0.0.0/104"]
    )
    assert (await admin.get(path)).json()["allowed_from"] == ["10.0.0.0/8"]
    async with holder_of(server, key) as ann, holder_of(server, key[:-8] + "00000000") as wrong:

        async def statuses() -> list[int]:
            return [
                (await ann.get("/v1/topics", headers=headers)).status_code
                for headers in (INSIDE, OUTSIDE, {}, INSIDE)
            ]

        assert await statuses() == [200, 401, 401, 200]
        put = await admin.put(path, json={"roles": roles, "allowed_from": ["192.0.2.1"]})
        assert put.json()["allowed_from"] == ["192.0.2.1"]
        assert await statuses() == [401, 200, 401, 401]
        told = (await ann.get("/v1/whoami", headers=OUTSIDE)).json()
        assert (told["principal"], told["allowed_from"]) == ("ann", ["192.0.2.1"])
        of_ann = (await admin.get("/v1/whoami?principal=ann")).json()
        assert of_ann["allowed_from"] == ["192.0.2.1"]
        assert (await admin.get("/v1/whoami")).json()["allowed_from"] == []
        listed = (await admin.get("/v1/principals")).json()["principals"]
        assert {each["name"]: each["allowed_from"] for each in listed}["ann"] == ["192.0.2.1"]
        refused = await ann.get("/v1/topics", headers=INSIDE)
        assert refused.status_code == 401
        assert (await admin.put(path, json={"roles": roles})).json()["allowed_from"] == []
        assert await statuses() == [200, 200, 200, 200]
        assert (await wrong.get("/v1/topics", headers=INSIDE)).status_code == 401
    metrics = (await admin.get("/metrics")).text
    assert f'curlew_denials_total{{code="{ADDRESS_NOT_ALLOWED}"}} 6' in metrics


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0/8", "anywhere", "fe80::%eth0/64"])
async def test_a_bad_network_is_refused_where_it_stands(
    server: Served, admin: httpx.AsyncClient, text: str
) -> None:
    body = {"roles": ["viewer"], "allowed_from": ["10.0.0.0/8", text]}
    for query in ("", "?dry_run=true"):
        answer = await admin.put(f"/v1/principals/ann{query}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
        assert answer.json()["errors"][0]["pointer"] == "/allowed_from/1"
    assert "ann" not in server.node.metadata.principals.keyring.principals


async def test_there_are_only_so_many(admin: httpx.AsyncClient) -> None:
    for more, status in ((1, 400), (0, 201)):
        most = [f"10.0.{at}.0/24" for at in range(NETWORKS_OF_A_PRINCIPAL_MAX + more)]
        answer = await admin.put("/v1/principals/ann", json={"allowed_from": most})
        assert answer.status_code == status


async def test_an_administrator_is_warned_who_shuts_itself_out(admin: httpx.AsyncClient) -> None:
    path = "/v1/principals/admin?dry_run=true"
    for networks, headers, warns in (
        (["10.0.0.0/8"], {}, True),
        (["10.0.0.0/8"], OUTSIDE, True),
        (["10.0.0.0/8"], INSIDE, False),
        (["127.0.0.1"], {}, False),
        ([], OUTSIDE, False),
    ):
        body = {"roles": ["admin"], "allowed_from": networks}
        answer = await admin.put(path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        warnings = [each for each in answer.json()["warnings"] if "not let in" in each]
        assert len(warnings) == int(warns), (networks, headers)
    other = {"roles": ["viewer"], "allowed_from": ["10.0.0.0/8"]}
    assert (await admin.put("/v1/principals/ann", json=other)).json()["warnings"] == []


async def test_the_audit_has_the_networks_and_whose_key_was_refused(
    server: Served, admin: httpx.AsyncClient
) -> None:
    key = await key_of(admin, "ann", roles=["admin"], allowed_from=["10.0.0.0/8"])
    async with holder_of(server, key) as ann:
        assert (await ann.get("/v1/topics", headers=OUTSIDE)).status_code == 401
    await server.node.metadata.audit.flush()
    entries = (await admin.get("/v1/audit?resource=principal:ann")).json()["entries"]
    [made] = [each for each in entries if each["action"] == "CREATE"]
    assert made["after"]["allowed_from"] == ["10.0.0.0/8"]
    [denied] = [each for each in entries if each["action"] == "GET"]
    assert denied["outcome"] == f"denied: {ADDRESS_NOT_ALLOWED}"


def test_the_command_takes_networks() -> None:
    parsed = ["key", "create", "ann", "--role", "viewer", "--from", "10.0.0.0/8"]
    options = parser_of().parse_args([*parsed, "--from", "2001:DB8::1/128"])
    found = access_commands._settings(options)
    assert found == PrincipalSettings(("viewer",), allowed_from=("10.0.0.0/8", "2001:db8::1"))
    with pytest.raises(InvalidRequest):
        access_commands._settings(parser_of().parse_args([*parsed, "--from", "here"]))

"""Who is let in by a token of an issuer, or by the certificate of a client, and as whom."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from app.domain.access.accounts import PrincipalSettings
from app.domain.access.actions import Action, Kind
from app.domain.access.caller import Shown
from app.domain.limits import Limits
from app.domain.positions import TimestampMs
from tests.support.clients.tls import TlsPlace
from tests.support.clients.wire import Served, served_node
from tests.support.nodes.waiting import until
from tests.unit.runtime.secure.test_tokens import document_of, written

pytestmark = pytest.mark.anyio

ISSUER = "https://id.example.org"
KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> TlsPlace:
    return TlsPlace(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
async def server(place: TlsPlace) -> AsyncIterator[Served]:
    """A closed node, with a principal `billing` that consumes."""
    data_dir = place.directory / "data"
    data_dir.mkdir()
    keys = written(place.directory / "jwks.json", document_of("a", "ES256", KEY))
    settings: dict[str, Any] = {
        **place.settings,
        "tls_client_ca_file": place.authority_file,
        "tls_client_principals": (
            ("DNS:billing.example", "billing"),
            ("DNS:both.example", "billing"),
            ("DNS:other.example", "nobody"),
            ("DNS:second.example", "admin"),
            ("DNS:team.example", "team"),
        ),
        "oidc_issuer": ISSUER,
        "oidc_audience": "curlew",
        "oidc_jwks_file": keys,
        "oidc_roles": (("readers", "viewer"), ("platform", "admin")),
    }
    async with served_node(data_dir, Limits(), **settings) as served:
        principals = served.node.metadata.principals
        await principals.make_first()
        await principals.put("billing", PrincipalSettings(roles=("consumer",)))
        await served.node.metadata.put_namespace("shop")
        await principals.put("team", PrincipalSettings(roles=("admin",), namespace="shop"))
        await principals.refresh()
        yield served


async def asked(
    server: Served,
    place: TlsPlace,
    path: str,
    *names: str,
    token: str | None = None,
    method: str = "GET",
) -> httpx.Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    url = f"https://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url, verify=place.client(*names)) as client:
        return await client.request(method, path, headers=headers)


def token_of(server: Served, **changed: Any) -> str:
    now_s = server.node.clock.now_ms() / 1_000
    claims = {"iss": ISSUER, "aud": "curlew", "sub": "ann", "exp": now_s + 300, **changed}
    return jwt.encode(claims, KEY, "ES256", {"kid": "a"})


async def test_a_token_is_a_principal_of_its_own_with_the_roles_that_are_mapped(
    server: Served, place: TlsPlace
) -> None:
    viewer = token_of(server, roles=["readers"])
    said = (await asked(server, place, "/v1/whoami", token=viewer)).json()
    assert (said["principal"], said["roles"]) == (f"oidc:{ISSUER}#ann", ["viewer"])
    assert (await asked(server, place, "/v1/topics/orders", token=viewer)).status_code == 200
    gone = await asked(server, place, "/v1/topics/orders", token=viewer, method="DELETE")
    assert gone.status_code == 403
    none = token_of(server, roles=["admin"])
    assert (await asked(server, place, "/v1/topics/orders", token=none)).status_code == 403
    admin = token_of(server, roles="platform")
    assert (await asked(server, place, "/v1/config", token=admin)).status_code == 200


async def test_a_subject_cannot_be_a_local_name(server: Served, place: TlsPlace) -> None:
    said = (await asked(server, place, "/v1/whoami", token=token_of(server, sub="admin"))).json()
    assert (said["principal"], said["roles"]) == (f"oidc:{ISSUER}#admin", [])


@pytest.mark.parametrize(
    "changed", [{"aud": "other"}, {"exp": 1}, {"iss": "https://evil.example"}, {"nbf": 1e11}]
)
async def test_a_token_that_does_not_count_is_401(
    server: Served, place: TlsPlace, changed: dict[str, Any]
) -> None:
    answer = await asked(server, place, "/v1/limits", token=token_of(server, **changed))
    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_an_unsigned_token_is_401(server: Served, place: TlsPlace) -> None:
    unsigned = jwt.encode(
        jwt.decode(token_of(server), options={"verify_signature": False}), "", "none"
    )
    assert (await asked(server, place, "/v1/limits", token=unsigned)).status_code == 401


async def test_a_token_makes_no_schedule_that_would_fire_after_it(
    server: Served, place: TlsPlace
) -> None:
    body = {"topic": "orders", "cron": "0 6 * * *", "message": {"body": "x"}}
    admin = token_of(server, roles="platform")
    url = f"https://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url, verify=place.client()) as client:
        refused = await client.put(
            "/v1/schedules/daily", json=body, headers={"authorization": f"Bearer {admin}"}
        )
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN"), refused.text
        assert "token" in refused.json()["detail"]


def test_work_that_goes_on_ends_with_a_token_and_not_with_a_certificate(server: Served) -> None:
    source = server.node.metadata.principals
    now_ms = server.node.clock.now_ms()
    time = [now_ms]
    ends_ms = TimestampMs(now_ms + 1)
    token = Shown(source, "oidc:x#ann", ("producer",), ends_ms, lambda: time[0])
    shown = Shown(source, "billing", None, ends_ms, lambda: time[0])
    assert token.for_later.may(Action.PUB, Kind.TOPIC, "t")
    assert shown.may(Action.SUB, Kind.TOPIC, "t")
    time[0] = ends_ms
    assert not token.for_later.may(Action.PUB, Kind.TOPIC, "t")
    assert not shown.may(Action.SUB, Kind.TOPIC, "t")
    assert shown.for_later.may(Action.SUB, Kind.TOPIC, "t")


async def test_a_policy_can_deny_a_subject(server: Served, place: TlsPlace) -> None:
    admin = token_of(server, roles="platform", sub="boss")
    url = f"https://127.0.0.1:{server.port}"
    policy = {
        "subject": f"principal:oidc:{ISSUER}#eve",
        "effect": "DENY",
        "actions": ["GET"],
        "resources": ["topic:*"],
    }
    async with httpx.AsyncClient(
        base_url=url, verify=place.client(), headers={"authorization": f"Bearer {admin}"}
    ) as client:
        made = await client.put("/v1/policies/no-eve", json=policy)
        assert made.status_code in {200, 201}, made.text
    eve = token_of(server, roles="platform", sub="eve")
    assert (await asked(server, place, "/v1/topics/orders", token=eve)).status_code == 403
    assert (await asked(server, place, "/v1/topics/orders", token=admin)).status_code == 200


async def test_a_certificate_is_the_principal_that_its_exact_name_is_mapped_to(
    server: Served, place: TlsPlace
) -> None:
    said = (await asked(server, place, "/v1/whoami", "billing.example")).json()
    assert (said["principal"], said["roles"]) == ("billing", ["consumer"])
    for names in ((), ("x.billing.example",), ("BILLING.example.org",), ("other.example",)):
        assert (await asked(server, place, "/v1/whoami", *names)).status_code == 401
    two = await asked(server, place, "/v1/whoami", "billing.example", "second.example")
    assert two.status_code == 401, "which of both?"
    same = await asked(server, place, "/v1/whoami", "billing.example", "both.example")
    assert same.status_code == 200


async def test_a_certificate_is_kept_to_the_namespace_of_its_principal(
    server: Served, place: TlsPlace
) -> None:
    for path, status in (("/v1/topics/orders", 404), ("/v1/topics/orders?namespace=other", 403)):
        answer = await asked(server, place, path, "team.example")
        assert answer.status_code == status, answer.text


async def test_the_scheme_is_read_in_any_case_and_for_a_long_token(
    server: Served, place: TlsPlace
) -> None:
    headers = {"authorization": f"bearer {token_of(server, roles=['readers'], more='x' * 2_000)}"}
    url = f"https://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url, verify=place.client(), headers=headers) as client:
        assert (await client.get("/v1/limits")).status_code == 200


async def test_a_bad_header_is_never_replaced_by_a_certificate(
    server: Served, place: TlsPlace
) -> None:
    answer = await asked(server, place, "/v1/whoami", "billing.example", token="wrong")
    assert answer.status_code == 401
    good = token_of(server, roles=["readers"])
    said = (await asked(server, place, "/v1/whoami", "billing.example", token=good)).json()
    assert said["principal"] == f"oidc:{ISSUER}#ann"


async def test_a_certificate_of_another_authority_does_not_connect(
    server: Served, place: TlsPlace, tmp_path: Path
) -> None:
    stranger = TlsPlace(tmp_path / "stranger")
    context = place.client()
    stranger.authority.issue_cert("billing.example").configure_cert(context)
    url = f"https://127.0.0.1:{server.port}"
    with pytest.raises(httpx.HTTPError):
        async with httpx.AsyncClient(base_url=url, verify=context) as client:
            await client.get("/v1/whoami")


async def test_a_header_names_no_certificate(server: Served, place: TlsPlace) -> None:
    url = f"https://127.0.0.1:{server.port}"
    headers = {
        "x-forwarded-client-cert": "URI=spiffe://x",
        "x-ssl-client-san-dns": "billing.example",
    }
    async with httpx.AsyncClient(base_url=url, verify=place.client(), headers=headers) as client:
        assert (await client.get("/v1/whoami")).status_code == 401


async def test_the_keys_of_the_issuer_are_read_again(server: Served, place: TlsPlace) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    before = (place.directory / "jwks.json").read_text()
    admin = token_of(server, roles="platform")
    waiting = [
        asyncio.ensure_future(asked(server, place, path, token=admin, method=method))
        for method, path in (
            ("GET", "/v1/topics/orders/stream?duration=50s"),
            ("POST", "/v1/topics/orders/groups/g/messages:receive?wait=50s"),
        )
    ]
    await until(lambda: server.node.broker.long_polls.count == len(waiting))
    written(place.directory / "jwks.json", document_of("b", "ES256", other))
    await server.node.housekeeping.refresh_files()
    assert (await asked(server, place, "/v1/limits", token=token_of(server))).status_code == 401
    assert [(await each).status_code for each in waiting] == [200, 401]
    assert '"reason":"access_ended"' in (await waiting[0]).text
    (place.directory / "jwks.json").write_text(before)
    await server.node.housekeeping.refresh_files()
    assert json.loads(before)
    assert (await asked(server, place, "/v1/limits", token=token_of(server))).status_code == 200

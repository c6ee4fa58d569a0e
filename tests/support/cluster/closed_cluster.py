"""Three nodes of three shards that ask for keys, with three teams, for who attacks them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from app.domain.access.accounts import PrincipalSettings
from app.domain.access.policies import read_pattern
from app.runtime.secure.cluster_secret import ClusterSecret
from tests.support.clients.tls import TlsPlace
from tests.support.clients.wire import RawConnection
from tests.support.cluster.three_nodes import SECRET, ServedNode, start_node, three_nodes
from tests.support.metadata.migrated_file import migrate_by_copy
from tests.unit.runtime.secure.test_tokens import document_of, written

ISSUER: Final = "https://id.example.org"
SIGNS: Final = ec.generate_private_key(ec.SECP256R1())
"""The issuer's key of tokens, `a` in the file."""
TEAMS: Final = ("alpha", "beta", "gamma")
_ROLES: Final = ("producer", "consumer", "operator")
"""Of each team, kept to its names: everything but administration."""
_NUMBER: Final = "0" * 32
"""What a node says first that attacks another one."""


@dataclass
class ClosedCluster:
    """Its nodes, and the keys of all by name: `root` is an administrator."""

    nodes: list[ServedNode]
    place: TlsPlace
    keys: dict[str, str]

    async def ask(
        self,
        node: int,
        who: str | None,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> httpx.Response:
        """What a node answers to the holder of a key or token; None: without any."""
        shown = {} if who is None else {"authorization": f"Bearer {self.keys.get(who, who)}"}
        http = self.nodes[node].client
        return await http.request(method, path, headers={**shown, **(headers or {})}, **more)

    def claims(self, **changed: Any) -> dict[str, Any]:
        """What a good token says, but for what is changed."""
        now_s = self.nodes[0].node.clock.now_ms() / 1_000
        claims = {"iss": ISSUER, "aud": "curlew", "sub": "ann", "exp": now_s + 300, **changed}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, **changed: Any) -> str:
        """Signed by the issuer."""
        return jwt.encode(self.claims(**changed), SIGNS, "ES256", {"kid": "a"})

    @contextlib.asynccontextmanager
    async def raw(self, node: int) -> AsyncIterator[RawConnection]:
        """A connection to the public port of a node."""
        port = self.nodes[node].node.config.port
        async with _connected(port, ssl=self.place.client()) as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def to_cluster_port(self, node: int) -> AsyncIterator[RawConnection]:
        """A connection to the port for nodes, on which nothing was said."""
        port = int(self.nodes[node].node.config.cluster_listen.rpartition(":")[2])
        async with _connected(port) as connection:
            yield connection

    async def refresh(self) -> None:
        """All know what was changed."""
        for each in self.nodes:
            await each.node.metadata.refresh()
            await each.node.metadata.principals.refresh()

    async def stored(self, topic: str) -> int:
        """How many messages are in all queues of a topic."""
        answer = await self.ask(0, "root", "GET", f"/v1/topics/{topic}/stats")
        assert answer.status_code == 200, answer.text
        return int(answer.json()["depth"])


@contextlib.asynccontextmanager
async def _connected(port: int, **more: Any) -> AsyncIterator[RawConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **more)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def shake_hands(connection: RawConnection, secret: bytes = SECRET) -> bytes:
    """As another node does; the proof that was given."""
    await connection.say(f"curlew-cluster 1 {_NUMBER}\n".encode())
    line = (await connection.until(b"\n")).decode()
    proof = ClusterSecret(secret or b"-").proof("asks", _NUMBER, line.split()[0])
    given = f"{proof}\n".encode()
    await connection.say(given)
    return given


def in_envelope(method: str, path: str, **envelope: str) -> bytes:
    """A request as nodes carry it, without a body."""
    given = {"versions": "0 0", **envelope}
    lines = [f"{method} {path} HTTP/1.1", "host: cluster", "content-length: 0"]
    lines += [f"curlew-{name.replace('_', '-')}: {text}" for name, text in given.items()]
    return "\r\n".join([*lines, "", ""]).encode()


@contextlib.asynccontextmanager
async def closed_cluster(
    directory: Path, url: str, **settings: Any
) -> AsyncIterator[ClosedCluster]:
    """Closed, with TLS at its public ports; tokens of an issuer and certificates of clients count.

    Each team has a topic of three queues, `alpha-in`, and a group, `alpha-g`.
    """
    place = TlsPlace(directory / "tls")
    given = {**_settings(directory, place), **settings}
    async with three_nodes(directory, url, trusts=place.client(), **given) as nodes:
        yield await _with_teams(nodes, place)


@contextlib.asynccontextmanager
async def closed_node(directory: Path, **settings: Any) -> AsyncIterator[ClosedCluster]:
    """As `closed_cluster`, of a lone node that has its database in its directory."""
    place = TlsPlace(directory / "tls")
    given = {**_settings(directory, place), "shard": "", "cluster_listen": "", **settings}
    given["cluster_secret_file"] = None
    (directory / "a").mkdir(mode=0o700)
    url = f"sqlite:///{directory}/a/metadata.db"
    migrate_by_copy(url)
    node = await start_node(directory, url, "a", None, place.client(), **given)
    try:
        yield await _with_teams([node], place)
    finally:
        await node.stop()


def _settings(directory: Path, place: TlsPlace) -> dict[str, Any]:
    return {
        **place.settings,
        "tls_client_ca_file": place.authority_file,
        "tls_client_principals": (("DNS:beta.example", "beta"),),
        "oidc_issuer": ISSUER,
        "oidc_audience": "curlew",
        "oidc_jwks_file": written(directory / "jwks.json", document_of("a", "ES256", SIGNS)),
        "oidc_roles": (("readers", "viewer"), ("platform", "admin")),
    }


async def _with_teams(nodes: list[ServedNode], place: TlsPlace) -> ClosedCluster:
    principals = nodes[0].node.metadata.principals
    made = ClosedCluster(nodes, place, {"root": (await principals.make_first()).text})
    for team in TEAMS:
        kinds = ("topic", "group", "producer")
        patterns = tuple(read_pattern(f"{kind}:{team}-*") for kind in kinds)
        found = await principals.create(team, PrincipalSettings(_ROLES, patterns), None)
        made.keys[team] = found.text
    await made.refresh()
    for team in TEAMS:
        for path, body in ((f"topics/{team}-in", {"queues": 3}), (f"groups/{team}-g", {})):
            answer = await made.ask(0, team, "PUT", f"/v1/{path}", json=body)
            assert answer.status_code == 201, answer.text
    await made.refresh()
    return made

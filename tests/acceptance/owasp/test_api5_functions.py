"""API5, broken function level authorization: what takes more than a team has is refused, by
whichever method, spelling of the path or header it is asked."""

import pytest

from app.api.control.operation_list import OPERATIONS
from tests.support.cluster.closed_cluster import ClosedCluster
from tests.support.nodes.access_matrix import BODIES, QUERIES, path_of

pytestmark = pytest.mark.anyio

OF_THE_CLUSTER = [each for each in OPERATIONS if "cluster" in each.needs and not each.is_open]


async def test_no_operation_of_the_cluster_is_a_teams(target: ClosedCluster) -> None:
    asked = 0
    for number, operation in enumerate(OF_THE_CLUSTER):
        path = path_of(operation, "alpha", "alpha")
        query = QUERIES.get(operation.operation_id, "")
        node = number % len(target.nodes)
        answer = await target.ask(
            *(node, "alpha", operation.method, f"{path}?{query}"),
            json=BODIES.get(operation.operation_id, {}),
        )
        assert answer.status_code == 403, f"{operation.operation_id}: {answer.text}"
        if operation.method != "HEAD":
            assert answer.json()["code"] == "FORBIDDEN"
        asked += 1
    assert asked > 20


SPELLINGS = (
    *("/v1/principals/", "//v1/principals", "/v1//principals", "/V1/principals", "/v1/Principals"),
    *("/v1/./principals", "/v1/topics/../principals", "/v1/topics/%2e%2e/principals"),
    *("/v1/principals%00", "/v1/principals;a=b", "/v1/principals?a=b#c", "/v1%2fprincipals"),
    *("/v1/principals%20", "/v1/%70rincipals", "/ui/../v1/principals", "/healthz/../v1/principals"),
    *(
        "/v1/principals.json",
        "/v1/principals/alpha/../root",
        "/v1/topics/alpha-in%2f..%2f..%2fprincipals",
    ),
)
OVERRIDES = {
    "x-http-method-override": "PUT",
    "x-method-override": "DELETE",
    "x-original-url": "/v1/principals",
    "x-rewrite-url": "/v1/principals",
    "x-forwarded-prefix": "/v1/principals",
    "mq-principal": "root",
    "mq-roles": "admin",
}


async def test_no_spelling_of_a_path_reaches_more(target: ClosedCluster) -> None:
    bearer = f"authorization: Bearer {target.keys['alpha']}"
    for node in range(len(target.nodes)):
        for path in SPELLINGS:
            async with target.raw(node) as connection:
                head = (f"GET {path} HTTP/1.1", "host: x", "connection: close", bearer, "", "")
                await connection.say("\r\n".join(head).encode())
                said = await connection.rest()
            status = int(said.split()[1])
            assert status in (400, 401, 403, 404, 405), f"{path}: {said!r}"
            assert b"root" not in said.replace(b"/root", b""), path


async def test_no_header_makes_another_request_of_one(target: ClosedCluster) -> None:
    for node in range(len(target.nodes)):
        for name, value in OVERRIDES.items():
            answer = await target.ask(node, "alpha", "GET", "/v1/whoami", headers={name: value})
            assert answer.status_code in (200, 400), answer.text
            if answer.status_code == 200:
                assert answer.json()["principal"] == "alpha"
        for method in ("TRACE", "CONNECT", "PROPFIND", "OPTIONS", "PATCH"):
            answer = await target.ask(node, "alpha", method, "/v1/principals")
            assert answer.status_code in (400, 403, 404, 405, 501), f"{method}: {answer.text}"
    kept = await target.ask(0, "root", "GET", "/v1/principals/alpha")
    assert kept.status_code == 200


async def test_no_team_gives_itself_more(target: ClosedCluster) -> None:
    """Nor another one, nor asks what others may."""
    policy = {"subject": "principal:alpha", "effect": "ALLOW", "actions": ["ADMIN"]}
    for node in range(len(target.nodes)):
        for method, path, body in (
            ("PUT", "principals/alpha", {"roles": ["admin"]}),
            ("PUT", "principals/new", {"roles": ["admin"]}),
            ("POST", "principals/root/keys", {}),
            ("POST", "principals/alpha/keys", {}),
            ("DELETE", "principals/beta", None),
            ("PUT", "policies/mine", {**policy, "resources": ["cluster"]}),
            ("DELETE", "policies/any", None),
            ("GET", "audit", None),
            ("GET", "whoami?principal=root&action=ADMIN", None),
            ("PATCH", "config", {"access_log": True}),
        ):
            answer = await target.ask(node, "alpha", method, f"/v1/{path}", json=body)
            assert answer.status_code == 403, f"{path}: {answer.text}"
    who = (await target.ask(0, "alpha", "GET", "/v1/whoami?action=ADMIN")).json()
    assert who["allowed"] is False

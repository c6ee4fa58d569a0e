"""API9, improper inventory management: what is served is what the document has, and nothing else is
answered to anybody, with a key or without."""

import pytest

from tests.support.cluster.closed_cluster import ClosedCluster
from tests.unit.api.access.test_foreign_names import in_path, operations, plain

pytestmark = pytest.mark.anyio

OPEN = {"get_health", "get_readiness"}
ELSEWHERE = (
    *("/v0/topics", "/v2/topics", "/api/v1/topics", "/beta/topics", "/v1beta/topics", "/internal"),
    *("/debug", "/debug/pprof", "/admin", "/actuator", "/actuator/env", "/console", "/status"),
    *(
        "/swagger.json",
        "/swagger-ui",
        "/redoc",
        "/graphql",
        "/.git/config",
        "/.env",
        "/server-status",
    ),
    *("/v1/debug", "/v1/internal", "/v1/test", "/v1/shutdown", "/v1/nodes/a/exec", "/v1/backup"),
)


async def test_all_that_is_documented_asks_for_a_key(target: ClosedCluster) -> None:
    count = 0
    for method, path, operation in operations():
        asked = plain(method, path, operation)
        url = in_path(asked.path, "").replace("{own}", "alpha")
        for served in target.nodes:
            answer = await served.client.request(method, url, params=asked.query)
            if asked.operation_id in OPEN:
                assert answer.status_code in (200, 503)
                continue
            assert answer.status_code == 401, f"{asked.operation_id}: {answer.text}"
            count += 1
    assert count > 100


async def test_nothing_else_is_there(target: ClosedCluster) -> None:
    for served in target.nodes:
        for path in ELSEWHERE:
            assert (await served.client.get(path)).status_code == 401, path
    for node in range(len(target.nodes)):
        for path in ELSEWHERE:
            answer = await target.ask(node, "root", "GET", path)
            assert answer.status_code in (404, 405), f"{path}: {answer.text}"


async def test_every_node_serves_the_same_document(target: ClosedCluster) -> None:
    texts = set()
    for node in range(len(target.nodes)):
        answer = await target.ask(node, "alpha", "GET", "/openapi.json")
        assert answer.status_code == 200
        texts.add(answer.text)
    assert len(texts) == 1


async def test_what_is_served_is_in_the_document(target: ClosedCluster) -> None:
    """A method that the document does not have of a path that it has is no operation."""
    known: dict[str, set[str]] = {}
    for method, path, operation in operations():
        asked = plain(method, path, operation)
        url = in_path(asked.path, "").replace("{own}", "alpha")
        known.setdefault(url, set()).add(method)
    for number, (url, methods) in enumerate(known.items()):
        for method in {"GET", "PUT", "POST", "PATCH", "DELETE"} - methods:
            answer = await target.ask(number % len(target.nodes), "root", method, url, json={})
            is_illegal_name = answer.status_code == 400 and ":" in url.rpartition("/")[2]
            assert answer.status_code in (404, 405) or is_illegal_name, f"{method} {url}"

"""A replicated shard that nobody leads is not drained, and no other for its sake: once it is led
again, it is."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cluster.three_processes import NAMES, three_processes
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.postgres


def test_a_shard_is_drained_once_it_has_a_leader(
    tmp_path: Path, postgres_databases: PostgresDatabases
) -> None:
    with (
        three_processes(tmp_path, postgres_databases.migrated()) as shard,
        shard.lone_shard("spare") as spare,
    ):

        def ask(method: str, path: str, body: object = None) -> httpx.Response:
            return httpx.request(method, f"{spare.url}{path}", json=body, timeout=60)

        def drain(name: str) -> dict[str, Any]:
            found: dict[str, Any] = ask("POST", f"/v1/shards/{name}/drain", {}).json()
            return found

        def takes() -> dict[str, str]:
            shards = ask("GET", "/v1/cluster").json()["shards"]
            return {each["name"]: each["takes"] for each in shards}

        leader = shard.leader()
        killed = [leader, next(each for each in NAMES if each != leader)]
        for name in killed:
            shard.kill(name)
        # The lease of who was killed has to end; a drain of the other shard is tried and not done.
        wait_until(
            lambda: ask("POST", "/v1/shards/spare/drain", {"dry_run": True}).status_code == 409
        )
        refused = drain("spare")
        assert (refused["code"], refused["reason"]) == ("DRAIN_REFUSED", "others_away")
        assert "'spare'" in refused["detail"]
        away = drain("orders")
        assert (away["code"], away["retryable"]) == ("SHARD_UNAVAILABLE", True), away
        assert "orders" in away["detail"]
        assert takes() == {"orders": "all", "spare": "all"}

        shard.start(killed[0])
        wait_until(lambda: drain("orders").get("takes") == "keyed")
        wait_until(lambda: takes() == {"orders": "keyed", "spare": "all"})
        made = ask("PUT", "/v1/topics/parcels", {"queues": 4})
        assert made.status_code == 201, made.text
        queues = ask("GET", "/v1/topics/parcels/route").json()["queues"]
        assert {each["leader"] for each in queues} == {spare.url}

"""What the last node of a shard tells, and its pages show, while nobody leads."""

from pathlib import Path

import pytest

from tests.support.cluster.three_replicas import SHARD, TOPIC, others, send, three_replicas

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


async def test_the_last_replica_says_so_and_shows_it(tmp_path: Path, url: str) -> None:
    async with three_replicas(tmp_path, url) as replicas:
        leader = await replicas.led()
        await leader.client.put(TOPIC, json={"queues": 1})
        await send(leader, "one")
        last = others(replicas, leader)[0]
        alone = await last.client.get("/v1/cluster", headers={"MQ-Forward": "no"})
        assert [each["answers"] for each in alone.json()["shards"]] == [True], alone.text
        for name in [each for each in replicas.nodes if each != last.name]:
            await replicas.kill(name)
        while (ready := (await last.client.get("/readyz")).json())["status"] == "ready":
            """Until the lease is over."""
        assert [each["code"] for each in ready["reasons"]] == ["NO_LEADER"], ready
        (shard,) = (await last.client.get("/v1/cluster")).json()["shards"]
        assert (shard["name"], shard["answers"]) == (SHARD, False)
        who = await last.client.get("/v1/whoami?action=ADMIN")
        assert who.status_code == 200, who.text
        for path in ("principals", "policies", "roles", "audit"):
            told = await last.client.get(f"/v1/{path}")
            assert told.status_code == 200, told.text
        key = await last.client.post("/v1/principals/nobody/keys", json={})
        assert (key.status_code, key.json()["code"]) == (404, "PRINCIPAL_NOT_FOUND"), key.text
        gone = await last.client.delete("/v1/policies/nobody")
        assert gone.status_code == 404, gone.text
        page = await last.client.get("/ui/nodes")
        assert page.status_code == 200
        assert "Replicas of orders" in page.text

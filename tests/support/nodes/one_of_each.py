"""A node with one of everything that an operation needs, and a way to look at all that it holds."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
from sqlalchemy import select

from app.cluster.metadata.schema.tables import metadata as tables
from app.domain.access.accounts import PrincipalSettings
from app.domain.limits import Limits
from app.domain.names import dead_letter_topic
from tests.support.clients.wire import Served
from tests.support.nodes.waiting import until

UNHURRIED = Limits(transaction_check_after_ms=3_600_000)
"""No producer is asked for a decision, which would be written down."""


@dataclass
class World:
    """A node with one of everything, and a way to look at all of it."""

    http: httpx.AsyncClient
    served: Served
    seen: dict[str, str] = field(default_factory=dict)
    """Ids and handles."""

    async def call(self, method: str, path: str, body: object = None, **params: str) -> Any:
        answer = await self.http.request(method, path, json=body, params=params or None)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    async def entries(self) -> list[dict[str, Any]]:
        """The audit."""
        return list((await self.call("GET", "/v1/audit", page_size="500"))["entries"])

    async def close_to_strangers(self) -> None:
        """Make two administrators; the second is no longer needed. It has one key."""
        principals = self.served.node.metadata.principals
        key = await principals.make_first()
        await principals.create("second", PrincipalSettings(roles=("admin",)), None)
        await principals.refresh()
        self.http.headers["Authorization"] = f"Bearer {key.text}"
        account = await self.call("GET", "/v1/principals/second")
        self.seen["key"] = account["keys"][0]["id"]

    async def state(self) -> dict[str, Any]:
        """What SQL, the store and the node's memory hold."""
        broker = self.served.node.broker
        await broker.offset_cache.write()
        await broker.transactions.checks.turn()
        self.served.node.store.floor_journal.turn()  # what is trimmed, as the next checkpoint does
        await until(lambda: broker.store.status().pending_bytes == 0)
        store = broker.store.status()
        lists = ("/v1/transactions", "/v1/topics/orders/scheduled", "/v1/groups/inorder/parked")
        return {
            "sql": await self._rows(),
            "log": store.written_end,
            "queues": [
                broker.store.bounds(topic, queue_id)
                for topic in ("orders", "made", dead_letter_topic("billing"))
                for queue_id in range(2)
            ],
            "producers": list(broker.dedup_journal.table.dump()),
            "members": {
                group: broker.members.last(group)
                for group in self.served.node.metadata.snapshot.groups
            },
            "progress": list(broker.consumer_journal._state.dump()),
            "lists": [await self._listed(path) for path in lists],
            "operations": [
                (each.operation_id, each.is_cancelled) for each in broker.jobs.newest_first()
            ],
            "leases": {
                group: broker.groups.facts(group) for group in ("billing", "inorder", "readers")
            },
        }

    async def _listed(self, path: str) -> Any:
        answer = await self.http.get(path)
        return answer.json() if answer.is_success else answer.status_code

    async def _rows(self) -> dict[str, list[str]]:
        async with self.served.node.metadata._database.reading() as connection:
            return {
                table.name: sorted(
                    [str(tuple(row)) for row in await connection.execute(select(table))]
                )
                for table in tables.sorted_tables
                if table.name != "nodes"  # signs of life
            }


async def fill(world: World) -> None:
    """One of everything that an operation needs. Nothing is traced: the log rests then."""
    await world.call("PATCH", "/v1/topics/orders", {"trace": False})
    send = "/v1/topics/orders/messages"
    for number in range(8):
        await world.http.post(send, content=b"%d" % number)
    for name in ("cancel", "move", "deliver"):
        later = await world.http.post(send, content=b"later", headers={"MQ-Delay": "2h"})
        world.seen[name] = later.json()["recall_handle"]
    for producer in ("loader:1", "loader:2", "gone"):
        numbered = {"MQ-Producer-Id": producer, "MQ-Producer-Epoch": "1", "MQ-Producer-Seq": "0"}
        (await world.http.post(send, content=b"n", headers=numbered)).raise_for_status()
    for name in ("commit", "rollback"):
        half = await world.http.post(
            send, content=b"half", headers={"MQ-Transaction": "prepare", "MQ-Producer-Group": "p"}
        )
        world.seen[name] = half.json()["transaction_id"]
    await world.call("PUT", "/v1/groups/inorder", {"order": "fifo", "on_exhausted": "park"})
    await world.call("PATCH", "/v1/groups/inorder", {"max_attempts": 1})
    for group, action, count in (("billing", "dead_letters", 6), ("inorder", "nacks", 1)):
        base = f"/v1/topics/orders/groups/{group}/messages"
        received = (await world.call("POST", f"{base}:receive", {"max_messages": count}))[
            "messages"
        ]
        handles = [{"receipt_handle": each["receipt_handle"]} for each in received]
        await world.call("POST", f"{base}:settle", {action: handles})
    beat = {"subscriptions": [{"topic": "orders"}], "generation": 0}
    await world.call("PUT", "/v1/groups/readers/members/m", beat)
    for group in ("done", "done2"):
        offsets = {"offsets": [{"queue_id": 0, "offset": 3}]}
        await world.call("PUT", f"/v1/groups/{group}/offsets/orders", offsets)
    await world.call("PUT", "/v1/groups/done/snapshots/first")
    await world.call("PUT", "/v1/schedules/nightly", SCHEDULE)
    selection = {"offsets": [0, 1], "rate_per_s": 0.001}
    running = await world.call("POST", "/v1/groups/billing/dlq/messages:redrive", selection)
    world.seen["operation"] = running["operation_id"]
    operation = world.served.node.broker.jobs.find(running["operation_id"])
    await until(lambda: operation.done == 1)
    [parked] = (await world.call("GET", "/v1/groups/inorder/parked"))["parked"]
    world.seen["parked"] = json.dumps(
        {name: parked[name] for name in ("topic", "queue_id", "queue_offset")}
    )


SCHEDULE = {"cron": "0 3 * * *", "topic": "orders", "message": {"text": "x"}}

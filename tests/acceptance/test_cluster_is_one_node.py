"""A cluster of three shards answers as a lone node does, through a node chosen at random for each
request: a random program of requests is run against both, and the answers are compared.

`CURLEW_PROGRAM_SEEDS=5` or `=1-30,41` chooses the seeds, each of `PROGRAMS` programs of some 15 s;
`make test-one-node SEEDS=1-30` does the same. Without it two seeds are run that found defects. What
a seed does depends on the steps here: after a change it is another program.
"""

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.cluster.in_step import (
    KEYS,
    QUEUES,
    Program,
    Side,
    by_text,
    rows,
    texts,
    unplaced,
    until_same,
)
from tests.support.cluster.three_nodes import ServedNode, start_node, three_nodes
from tests.support.metadata.databases import PostgresDatabases

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

PROGRAMS: Final = 2
"""Of each seed."""
STEPS: Final = 90

TOPIC: Final = "/v1/topics/orders"
GROUP: Final = "/v1/groups/billing"
READERS: Final = "/v1/groups/readers"
LEASES: Final = f"{TOPIC}/groups/billing/messages"
PLAIN: Final = {"Content-Type": "text/plain"}
WRONG: Final[list[tuple[str, str, dict[str, Any]]]] = [
    ("GET", "/v1/topics/nowhere", {}),
    ("GET", "/v1/groups/nobody", {}),
    ("DELETE", "/v1/topics/nowhere", {}),
    ("POST", "/v1/topics/orders/messages?queue_id=99", {"content": "x"}),
    ("GET", f"{TOPIC}/queues/99/messages?offset=0", {}),
    ("GET", f"{TOPIC}/queues/1/messages?offset=100000", {}),
    ("GET", f"{TOPIC}/messages/no-such-id", {}),
    ("GET", f"{TOPIC}/messages?key=no-such-key", {}),
    ("DELETE", "/v1/receipts/no-such-handle", {}),
    ("DELETE", f"{TOPIC}/scheduled/no-such-handle", {}),
    ("POST", "/v1/transactions/no-such-id:commit", {}),
    ("POST", f"{READERS}/offsets/orders:reset", {"json": {"to": "nowhere"}}),
    ("POST", f"{READERS}/offsets/nowhere:reset", {"json": {"to": "latest"}}),
    ("PUT", f"{READERS}/offsets/orders", {"json": {"offsets": [{"queue_id": 99, "offset": 0}]}}),
    ("GET", f"{READERS}/snapshots/none", {}),
    ("POST", f"{LEASES}:receive?max_messages=0", {}),
    ("POST", f"{LEASES}:settle", {"json": {"acks": ["x"], "what": 1}}),
    ("POST", f"{TOPIC}/messages:batch", {"json": {"messages": []}}),
    ("GET", f"{GROUP}/dlq/messages?page_size=0", {}),
    ("GET", "/v1/operations/none", {}),
]


def _without_subscriptions(document: Any) -> Any:
    groups = document.get("groups", [document])
    return [{k: v for k, v in each.items() if k != "subscriptions"} for each in groups]


def _has_all(given: dict[str, Any], expected: set[str], _: object) -> bool:
    return expected <= given.keys()


EXCEPTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    # How a group consumes a topic is told as the asked node knows it.
    "/v1/groups": _without_subscriptions,
    GROUP: _without_subscriptions,
}
"""What of an answer is compared where a cluster tells something else than a lone node."""


class Shop(Program):
    """The program: a topic with keys, one without, a group that leases and one that commits."""

    ready: set[str]
    """Texts that `billing` has yet to be given."""
    stored: set[str]
    """Texts that are in the topic."""
    nodes: Sequence[ServedNode]
    """Of the cluster."""

    def key(self) -> str:
        return self.chooses.choice(KEYS)

    async def make(self) -> None:
        self.ready, self.stored = set(), set()
        self.attempts: dict[str, int] = {}
        """The last delivery of each message."""
        await self.both("PUT", TOPIC, json={"queues": QUEUES})
        await self.both("PUT", "/v1/topics/loose", json={"queues": QUEUES})
        await self.make_group()
        await self.both("PUT", READERS)
        await self.learn()

    async def make_group(self) -> None:
        """One whose leases do not end while the program runs, however slow the machine is."""
        self.max_attempts = 3
        settings = {"max_attempts": self.max_attempts, "invisible": "1h"}
        await self.both("PUT", GROUP, json=settings)

    async def learn(self) -> None:
        """What is changed through one node is known to the others within a second: now."""
        for each in self.nodes:
            await each.node.metadata.refresh()

    def note(self, *names: str) -> None:
        self.ready.update(names)
        self.stored.update(names)

    # --- sending

    async def send(self) -> None:
        key, text = self.key(), self.text()
        tag = self.chooses.choice(("red", "blue"))
        headers = {**PLAIN, "MQ-Sharding-Key": key, "MQ-Keys": key, "MQ-Tag": tag}
        await self.both("POST", f"{TOPIC}/messages", content=text, headers=headers)
        self.note(text)

    async def send_to_queue(self) -> None:
        text = self.text()
        path = f"{TOPIC}/messages?queue_id={self.chooses.randrange(QUEUES)}"
        await self.both("POST", path, content=text, headers=PLAIN)
        self.note(text)

    async def send_batch(self) -> None:
        found = [self.text() for _ in range(self.chooses.randrange(1, 8))]
        batch = [{"text": each, "sharding_key": self.key(), "keys": [self.key()]} for each in found]
        await self.both("POST", f"{TOPIC}/messages:batch", json={"messages": batch})
        self.note(*found)

    async def send_loose(self) -> None:
        headers = {**PLAIN, "MQ-Keys": self.key()}
        path = "/v1/topics/loose/messages"
        await self.both("POST", path, unplaced, content=self.text(), headers=headers)
        batch = {"messages": [{"text": self.text()} for _ in range(3)]}
        await self.both("POST", f"{path}:batch", unplaced, json=batch)

    async def send_once(self) -> None:
        text, key = self.text(), self.key()
        name = f'"{text}"'
        headers = {**PLAIN, "MQ-Sharding-Key": key, "Idempotency-Key": name}
        for _ in range(2):
            await self.both("POST", f"{TOPIC}/messages", unplaced, content=text, headers=headers)
        self.note(text)

    # --- later

    async def send_later(self) -> None:
        text = self.text()
        headers = {**PLAIN, "MQ-Sharding-Key": self.key(), "MQ-Delay": "2h"}
        answers = await self.both("POST", f"{TOPIC}/messages", content=text, headers=headers)
        for side, answer in zip(self.sides, answers, strict=True):
            side.handles[text] = answer.json()["recall_handle"]
        self.open.setdefault("delayed", []).append(text)
        await self.both("GET", f"{TOPIC}/scheduled", rows("messages", "queue_id", "tag"))

    async def recall(self) -> None:
        text = self.take("delayed")
        if text is not None:
            await self.both("DELETE", lambda side: f"{TOPIC}/scheduled/{side.handles[text]}")
            await self.both("GET", lambda side: f"{TOPIC}/scheduled/{side.handles[text]}")

    async def deliver_now(self) -> None:
        text = self.take("delayed")
        if text is not None:
            path = f"{TOPIC}/scheduled/"
            await self.both("POST", lambda side: f"{path}{side.handles[text]}:deliver")
            self.note(text)

    # --- transactions

    async def prepare(self) -> None:
        text = self.text()
        headers = {
            **PLAIN,
            "MQ-Sharding-Key": self.key(),
            "MQ-Transaction": "prepare; group=shop; check-after=1h",
        }
        answers = await self.both("POST", f"{TOPIC}/messages", content=text, headers=headers)
        for side, answer in zip(self.sides, answers, strict=True):
            side.handles[text] = answer.json()["transaction_id"]
        self.open.setdefault("prepared", []).append(text)
        path = "/v1/transactions?state=PREPARED&producer_group=shop"
        await self.both("GET", path, rows("transactions", "topic", "producer_group", "checks"))

    def decision(self, text: str, what: str) -> Callable[[Side], str]:
        return lambda side: f"/v1/transactions/{side.handles[text]}:{what}"

    async def decide(self) -> None:
        text = self.take("prepared")
        if text is None:
            return
        what = self.chooses.choice(("commit", "rollback"))
        for each in (what, what, "commit"):
            await self.both("POST", self.decision(text, each))
        if what == "commit":
            self.note(text)

    # --- leases

    async def receive_all(self) -> None:
        expected = set(self.ready)
        found = []
        for side in self.sides:
            given: dict[str, dict[str, Any]] = {}

            async def look(side: Side = side, given: dict[str, Any] = given) -> int:
                wait = 1 if expected - given.keys() else 0
                answer = await side.ask("POST", f"{LEASES}:receive?max_messages=32&wait={wait}")
                document = answer.json()
                assert answer.is_success, document
                for each in document["messages"]:
                    assert each["text"] not in given, each
                    given[each["text"]] = each
                    side.handles[each["text"]] = each["receipt_handle"]
                return len(document["messages"])

            if expected:
                await until_same(look, partial(_has_all, given, expected))
            assert expected <= given.keys(), f"never received: {sorted(expected - given.keys())}"
            self.attempts |= {text: each["delivery_attempt"] for text, each in given.items()}
            rest = await side.ask("POST", f"{LEASES}:receive")
            names = ("text", "queue_id", "queue_offset", "delivery_attempt", "tag", "keys")
            found.append((rows("messages", *names)({"messages": given.values()}), rest.json()))
        self.compare("receive until empty", found)
        self.open.setdefault("held", []).extend(sorted(self.ready))
        self.ready.clear()

    def is_last_attempt(self, text: str) -> bool:
        """Whether it goes to the dead letters when it is handed back as failed."""
        return self.attempts[text] >= self.max_attempts

    async def settle_one(self) -> None:
        text = self.take("held")
        if text is None:
            return
        action = self.chooses.choice(("", "?action=nack&delay=0s", "?action=release"))
        method = "PATCH" if action else "DELETE"
        await self.both(method, lambda side: f"/v1/receipts/{side.handles[text]}{action}")
        if action and not ("nack" in action and self.is_last_attempt(text)):
            self.ready.add(text)
        await self.both("DELETE", lambda side: f"/v1/receipts/{side.handles[text]}")

    async def settle_many(self) -> None:
        held = [each for _ in range(9) if (each := self.take("held")) is not None]
        parts = held[:4], held[4:6], held[6:8], held[8:]

        def body(side: Side) -> dict[str, Any]:
            acks, nacks, dead, given = [[side.handles[each] for each in part] for part in parts]
            return {
                "acks": acks,
                "nacks": [{"receipt_handle": each, "delay": "0s"} for each in nacks],
                "dead_letters": [{"receipt_handle": each, "reason": "bad"} for each in dead],
                "releases": given,
            }

        if held:
            await self.both("POST", f"{LEASES}:settle", json=body)
            self.ready.update(each for each in parts[1] if not self.is_last_attempt(each))
            self.ready.update(parts[3])

    async def dead_letters(self) -> None:
        await self.both("GET", f"{GROUP}/dlq")
        listed = await self.both("GET", f"{GROUP}/dlq/messages", rows("messages", "text", "reason"))
        dead = sorted(by_text(listed, "messages")[0])
        if not dead:
            return
        if self.chooses.random() < 0.3:
            await self.both("POST", f"{GROUP}/dlq/messages:purge", json={"all": True})
            return
        begun = await self.both("POST", f"{GROUP}/dlq/messages:redrive", json={"all": True})
        ended = []
        for side, answer in zip(self.sides, begun, strict=True):
            path = f"/v1/operations/{answer.json()['operation_id']}"

            async def operation(side: Side = side, path: str = path) -> dict[str, Any]:
                found: dict[str, Any] = (await side.ask("GET", path)).json()
                return found

            found = await until_same(operation, lambda now: now["state"] != "running")
            ended.append([found[name] for name in ("state", "total", "done", "skipped")])
        self.compare("redriven", ended)
        # Letters of a topic that was deleted since stay where they are.
        self.ready.update(self.stored.intersection(dead))

    async def pause(self) -> None:
        await self.both("POST", f"{GROUP}:pause")
        await self.learn()
        await self.both("POST", f"{LEASES}:receive", lambda found: found["messages"])
        await self.both("POST", f"{GROUP}:resume")
        await self.learn()

    # --- reading

    async def pull(self) -> None:
        queue_id, offset = self.chooses.randrange(QUEUES), self.chooses.randrange(6)
        path = f"{TOPIC}/queues/{queue_id}/messages?offset={offset}&max_messages=5"
        await self.both("GET", path)
        await self.both("GET", f"{path}&filter=red")

    async def browse(self) -> None:
        found = []
        for side in self.sides:
            listed: list[str] = []
            cursor = ""
            while True:
                path = f"{TOPIC}/messages?page_size=7{cursor}"
                document = (await side.ask("GET", path)).json()
                listed += [each["text"] for each in document["messages"]]
                if not document.get("next_cursor"):
                    break
                cursor = f"&cursor={document['next_cursor']}"
            found.append((len(listed), sorted(listed)))
        self.compare("browse", found)

    async def search(self) -> None:
        for topic in ("orders", "loose"):
            path = f"/v1/topics/{topic}/messages?key={self.key()}&page_size=100"
            await self.both("GET", path, texts("messages"))

    async def look(self) -> None:
        path = self.chooses.choice(
            (
                *(TOPIC, GROUP, f"{TOPIC}/offsets?at=earliest", f"{TOPIC}/offsets?at=latest"),
                *(f"{READERS}/offsets", f"{READERS}/offsets/orders", f"{READERS}/lag"),
                *(f"{READERS}/snapshots", f"{GROUP}/subscriptions", f"{GROUP}/parked"),
                *("/v1/topics:offsets?topics=orders,loose&at=earliest", "/v1/topics", "/v1/groups"),
            )
        )
        await self.both("GET", path, EXCEPTIONS.get(path, lambda document: document))

    async def lag_of_leases(self) -> None:
        await self.both("GET", f"{GROUP}/lag")

    # --- positions

    async def commit(self) -> None:
        queues = self.chooses.sample(range(QUEUES), self.chooses.randrange(1, QUEUES))
        places = [{"queue_id": each, "offset": self.chooses.randrange(3)} for each in queues]
        body = {"offsets": places, "force": self.chooses.random() < 0.5}
        named = {each["queue_id"] for each in places}

        def committed(document: Any) -> list[Any]:
            return [each for each in document["offsets"] if each["queue_id"] in named]

        query = self.chooses.choice(("", "?dry_run=true"))
        await self.both("PUT", f"{READERS}/offsets/orders{query}", committed, json=body)

    async def reset(self) -> None:
        targets: list[dict[str, object]] = [{"to": "earliest"}, {"to": "latest"}]
        targets.append({"to": "shift", "shift": 1})
        to = self.chooses.choice(targets)
        query = self.chooses.choice(("", "?dry_run=true"))
        path = self.chooses.choice((f"{READERS}/offsets/orders:reset", f"{READERS}/offsets:reset"))
        await self.both("POST", f"{path}{query}", json=to)

    async def forget(self) -> None:
        query = self.chooses.choice(("", "?dry_run=true"))
        await self.both("DELETE", f"{READERS}/offsets/orders{query}")

    async def snapshots(self) -> None:
        name = self.text()
        await self.both("PUT", f"{READERS}/snapshots/{name}")
        await self.both("GET", f"{READERS}/snapshots/{name}")
        await self.commit()
        await self.both("POST", f"{READERS}/snapshots/{name}:restore")
        await self.both("DELETE", f"{READERS}/snapshots/{name}")

    # --- topics and groups

    async def change(self) -> None:
        hours = self.chooses.randrange(1, 9)
        await self.both("PATCH", TOPIC, json={"retention": f"{hours}h"})
        self.max_attempts = hours + 2
        await self.both("PATCH", GROUP, json={"max_attempts": self.max_attempts})
        await self.learn()

    async def make_group_again(self) -> None:
        await self.both("DELETE", GROUP)
        await self.learn()
        await self.make_group()
        await self.learn()
        self.ready = set(self.stored)
        self.open["stale"] = self.open.pop("held", [])
        await self.settle_stale()

    async def settle_stale(self) -> None:
        text = self.take("stale")
        if text is not None:
            await self.both("DELETE", lambda side: f"/v1/receipts/{side.handles[text]}")

    async def make_topic_again(self) -> None:
        await self.both("DELETE", TOPIC)
        await self.learn()
        await self.both("GET", TOPIC)
        await self.both("PUT", TOPIC, json={"queues": QUEUES})
        await self.learn()
        self.open["stale"] = self.open.pop("held", [])
        await self.settle_stale()
        await self.recall()
        await self.decide()
        self.open.clear()
        self.ready, self.stored = set(), set()

    async def wrong(self) -> None:
        method, path, more = self.chooses.choice(WRONG)
        await self.both(method, path, **more)


Step = Callable[[Shop], Awaitable[None]]
OFTEN: Final[list[Step]] = [
    *(Shop.send, Shop.send_batch, Shop.receive_all, Shop.settle_one, Shop.settle_many),
    *(Shop.commit, Shop.pull, Shop.look),
]
SELDOM: Final[list[Step]] = [
    *(Shop.send_to_queue, Shop.send_loose, Shop.send_once, Shop.send_later, Shop.recall),
    *(Shop.deliver_now, Shop.prepare, Shop.decide, Shop.dead_letters, Shop.pause, Shop.browse),
    *(Shop.search, Shop.lag_of_leases, Shop.reset, Shop.forget, Shop.snapshots),
    *(Shop.change, Shop.make_group_again, Shop.make_topic_again, Shop.wrong, Shop.wrong),
]


@pytest.fixture
async def sides(
    tmp_path: Path, postgres_databases: PostgresDatabases
) -> AsyncIterator[tuple[list[ServedNode], list[ServedNode]]]:
    async with AsyncExitStack() as stack:
        alone = await start_node(tmp_path, postgres_databases.migrated(), "alone")
        stack.push_async_callback(alone.stop)
        url = postgres_databases.migrated()
        nodes = await stack.enter_async_context(three_nodes(tmp_path, url))
        yield [alone], nodes


def _seeds() -> Sequence[int]:
    """Those that are asked for: numbers and ranges, with commas between them."""
    found: list[int] = []
    for each in os.environ.get("CURLEW_PROGRAM_SEEDS", "11-12").split(","):
        first, _, last = each.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


@pytest.mark.parametrize("seed", _seeds())
@pytest.mark.parametrize("number", range(PROGRAMS))
async def test_a_cluster_answers_as_a_lone_node(
    seed: int, number: int, sides: tuple[list[ServedNode], list[ServedNode]]
) -> None:
    chooses = random.Random(f"{seed} {number}")
    nodes = random.Random(f"{seed} {number} nodes")
    shop = Shop([Side([each.client for each in side], nodes) for side in sides], chooses)
    shop.nodes = sides[1]
    await sides[1][0].client.delete(TOPIC)  # of two less queues
    await shop.make()
    for _ in range(STEPS):
        step = chooses.choice(OFTEN if chooses.random() < 0.6 else SELDOM)
        await step(shop)
        assert not shop.differences, "\n".join([*shop.done[-25:], *shop.differences])

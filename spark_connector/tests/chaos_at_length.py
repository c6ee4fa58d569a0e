"""Copies by Spark through many kills, counted for docs/promises.md; no part of `make test`.

    python -m spark_connector.tests.chaos_at_length --seed 1 --seconds 240 [--replicas]

Two producers send to `orders` over plain HTTP: JSON batches under an `Idempotency-Key`, with keys
and properties or without, some delivered later; and transactions that are committed or rolled back.
A driver with three queries (`support/copier.py`) copies it with other keys and tags, once
idempotently and once not (the control), and to Parquet. Chosen by the seed, the node is killed and
stays away for up to 6 s, or the driver is, and starts with other options and often with more queues
everywhere. `--replicas`: the shard has three nodes, and its leader is killed. In the end all is
read over plain HTTP and by pyarrow, and compared; status 1 where anything is lost, double or
invented.
"""

import argparse
import http.client
import itertools
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pyarrow.parquet as pq

from spark_connector.tests import conftest  # the connector's path, for drivers and their workers
from spark_connector.tests.test_chaos import Driver, Nodes, driver
from tests.support.cluster.three_processes import three_processes
from tests.support.metadata.databases import PostgresDatabases
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.waiting import wait_until

assert conftest
DEADLINE_S = 300
KEYS = 17
QUEUES, QUEUES_MAX = 3, 6
TOPICS = ("orders", "copy", "twice")
PAUSE_S = 0.22
"""Of a producer, behind each request."""
Message = tuple[str, str | None, str | None, tuple[tuple[str, str], ...]]
"""Body, tag, key, properties."""


class Service(Protocol):
    """What is killed; its addresses stay."""

    urls: list[str]

    def kill(self) -> None: ...
    def start_again(self) -> None: ...


class LoneNode(Nodes):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.urls = [self.node.url]


class Replicas:
    """A shard of three, whose leader is killed."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        server = PostgresServer.create()
        stack.callback(server.destroy)
        url = PostgresDatabases(server).migrated()
        self._shard = stack.enter_context(three_processes(folder, url))
        self._killed = ""
        self.urls = self._shard.urls()

    def kill(self) -> None:
        self._killed = self._shard.leader()
        self._shard.kill(self._killed)

    def start_again(self) -> None:
        self._shard.start(self._killed)
        self._shard.in_sync(DEADLINE_S)


def ask(
    urls: list[str],
    method: str,
    path: str,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The document of the answer, once there is one: what may pass is asked again."""
    for attempt in itertools.count():
        with suppress(OSError, http.client.HTTPException):
            netloc = urlsplit(urls[attempt % len(urls)]).netloc
            connection = http.client.HTTPConnection(netloc, timeout=30)
            try:
                connection.request(method, path, body, dict(headers or {}))
                answer = connection.getresponse()
                document: dict[str, Any] = json.loads(answer.read())
            finally:
                connection.close()
            if answer.status < 300 or document["code"] == "ALREADY_STORED":
                return document
            assert answer.status >= 500 or document["retryable"], document
        time.sleep(0.1)
    raise AssertionError


class Producer:
    """Sends until it is told to stop."""

    def __init__(self, name: int, seed: int, urls: list[str]) -> None:
        self.acknowledged: list[str] = []
        self.rolled_back: list[str] = []
        self.error: BaseException | None = None
        self._random = random.Random(f"{seed}-{name}")
        self._numbers = itertools.count(name, 2)
        self._name, self._urls = f"{seed}-{name}", urls
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        if self.error:
            raise self.error

    def _run(self) -> None:
        try:
            for count in itertools.count():
                if self._is_over.wait(PAUSE_S):
                    return
                if self._random.random() < 0.15:
                    self._transaction()
                else:
                    self._batch(f"{self._name}-{count}")
        except BaseException as error:  # noqa: BLE001 - told by `stop`
            self.error = error

    def _batch(self, key: str) -> None:
        bodies = [str(next(self._numbers)) for _ in range(self._random.randint(2, 300))]
        is_later = self._random.random() < 0.1
        document = {"messages": [self._message(body, is_later=is_later) for body in bodies]}
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        ask(self._urls, "POST", "/v1/topics/orders/messages:batch", json.dumps(document), headers)
        self.acknowledged += bodies

    def _message(self, body: str, *, is_later: bool) -> dict[str, object]:
        kind = self._random.random()
        message: dict[str, object] = {"text": body, "tag": self._random.choice(["new", "paid"])}
        if kind < 0.6:
            message["sharding_key"] = f"k{self._random.randrange(KEYS)}"
        if kind < 0.4:
            message["properties"] = {"n": body}
        if is_later:
            message["delay"] = f"{self._random.randint(200, 8000)}ms"
        return message

    def _transaction(self) -> None:
        body = str(next(self._numbers))
        verb = self._random.choice(["commit", "rollback"])
        headers = {"MQ-Transaction": "prepare; group=shop; check-after=1h"}
        prepared = ask(self._urls, "POST", "/v1/topics/orders/messages", body, headers)
        ask(self._urls, "POST", f"/v1/transactions/{prepared['transaction_id']}:{verb}")
        (self.acknowledged if verb == "commit" else self.rolled_back).append(body)


class Chaos:
    """The kills and what they left behind."""

    def __init__(self, service: Service, folder: Path, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._service, self._folder = service, folder
        self._random = random.Random(seed)
        self.queues = QUEUES
        self._make_topics()

    def go_on(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            with self._driver("always") as process:
                self._wait_for_more(process)
                for _ in range(self._random.randint(1, 3)):
                    time.sleep(self._random.uniform(0, 4))
                    self._kill_the_node()
                    self._wait_for_more(process)
                time.sleep(self._random.uniform(0, 2))
                has_ended = process.poll() is not None
            self.counts["drivers that ended by themselves" if has_ended else "driver kills"] += 1
            print(dict(self.counts), self.copied(), flush=True)
            if self.queues < QUEUES_MAX and self._random.random() < 0.5:
                self.queues += 1
                self._make_topics()

    def catch_up(self) -> None:
        """Copy what is there."""
        with self._driver("once") as process:
            assert process.wait(DEADLINE_S) == 0, (self._folder / "driver.log").read_text()[-3000:]

    def copied(self, topic: str = "copy") -> int:
        """How many messages the topic has."""
        path = f"/v1/topics:positions?topics={topic}"
        (found,) = ask(self._service.urls, "GET", path)["topics"]
        return sum(queue["max_offset"] for queue in found["queues"])

    def messages(self, topic: str) -> Iterator[Message]:
        for queue in range(self.queues):
            offset = 0
            while True:
                path = f"/v1/topics/{topic}/queues/{queue}/messages"
                found = ask(self._service.urls, "GET", f"{path}?offset={offset}&max_messages=5000")
                if not found["messages"]:
                    break
                offset = found["next_offset"]
                for each in found["messages"]:
                    properties = tuple(sorted(each["properties"].items()))
                    yield each["text"], each.get("tag"), each.get("sharding_key"), properties

    def files(self) -> Iterator[str]:
        """The bodies in the Parquet files of the query's log; other files are of killed tasks."""
        names: set[str] = set()
        for log in (self._folder / "files" / "_spark_metadata").iterdir():
            if not log.name.startswith("."):
                names |= {json.loads(line)["path"] for line in log.read_text().split("\n")[1:]}
        for name in names:
            for value in pq.read_table(urlsplit(name).path, columns=["value"])["value"].to_pylist():
                yield value.decode()

    def _make_topics(self) -> None:
        document = json.dumps({"queues": self.queues})
        for name in TOPICS:
            headers = {"Content-Type": "application/json"}
            ask(self._service.urls, "PUT", f"/v1/topics/{name}", document, headers)

    def _driver(self, trigger: str) -> AbstractContextManager[Driver]:
        source = {
            "maxOffsetsPerTrigger": str(self._random.choice([1000, 5000, 20_000])),
            "minPartitions": str(self._random.choice([1, 5, 7])),
        }
        sink = {"sendMaxMessages": str(self._random.choice([50, 500, 5000]))}
        endpoints = ",".join(self._service.urls)
        options = json.dumps(source), json.dumps(sink), "files"
        return driver(endpoints, self._folder, trigger, *options)

    def _kill_the_node(self) -> None:
        self._service.kill()
        self.counts["node kills"] += 1
        time.sleep(self._random.uniform(0, 6))
        self._service.start_again()

    def _wait_for_more(self, process: Driver) -> None:
        before = self.copied()
        wait_until(lambda: self.copied() > before or process.poll() is not None, DEADLINE_S)


def copy_of(message: Message) -> Message:
    body, _, key, properties = message
    return body, "copied", None if key is None else f"x-{key}", properties


def run(service: Service, folder: Path, seed: int, seconds: float) -> bool:
    """Whether all is as it should be."""
    chaos = Chaos(service, folder, seed)
    producers = [Producer(name, seed, service.urls) for name in (0, 1)]
    try:
        chaos.go_on(time.monotonic() + seconds)
    finally:
        for each in producers:
            each.stop()
    acknowledged = Counter(body for each in producers for body in each.acknowledged)
    wait_until(lambda: chaos.copied("orders") >= len(acknowledged), DEADLINE_S)
    chaos.catch_up()
    sent = Counter(chaos.messages("orders"))
    wait_until(lambda: chaos.copied() >= sent.total(), DEADLINE_S)
    bodies = Counter({message[0]: count for message, count in sent.items()})
    expected = Counter(map(copy_of, sent.elements()))
    rolled_back = {body for each in producers for body in each.rolled_back}
    found = {
        "acknowledged": differences(acknowledged, bodies),
        "copy": differences(expected, Counter(chaos.messages("copy"))),
        "files": differences(bodies, Counter(chaos.files())),
        "rolled back and visible": (0, len(rolled_back & set(bodies))),
    }
    control = differences(expected, Counter(chaos.messages("twice")))
    is_good = all(pair == (0, 0) for pair in found.values())
    print(f"seed {seed}: {sent.total()} messages, {dict(chaos.counts)}, queues {chaos.queues}")
    print(f"missing and too many: {found}; of the control {control}; {is_good=}", flush=True)
    return is_good


def differences(expected: Counter[Any], found: Counter[Any]) -> tuple[int, int]:
    """What is missing, and what is there that should not be."""
    return (expected - found).total(), (found - expected).total()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--replicas", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="curlew-chaos-"))
    with ExitStack() as stack:
        if options.replicas:
            service: Service = Replicas(stack, folder)
        else:
            service = LoneNode(folder)
            stack.callback(service.kill)
        is_good = run(service, folder, options.seed, options.seconds)
    if is_good:
        shutil.rmtree(folder)
    else:
        print(f"all is kept in {folder}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

"""A driver and a node that are killed while a stream is copied: the copy has each message once.

Both are killed in the middle of a batch, while the answer to one of its requests is held back.
After the kill of the driver the options of source and sink are others, and all topics have more
queues, but the batch goes on as it began. Each row is given another key and tag, and some are
delivered later. Control: without idempotence the same kills leave messages twice.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_connector.tests.support.proxy import Asked, Given, Holding, run_proxy
from spark_connector.tests.support.real_node import RealNode
from spark_connector.tests.support.stored import rows_at
from tests.support.nodes.node import RunningNode, start_node
from tests.support.nodes.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MESSAGES = 4_000
QUEUES = 4
KEYS = 16
MORE_QUEUES = 2
"""After the kill of the driver."""
SENDS_OF_A_BATCH = 80
"""The copier's batches have 1,600 messages and its requests 20."""
DEADLINE_S = 300
CHANGED = ('{"minPartitions": "7"}', '{"sendMaxMessages": "13"}')
"""Options that cut batches into other tasks and portions."""
COPIER = "spark_connector.tests.support.copier"
ROOT = Path(__file__).resolve().parents[2]


class Nodes:
    """A node that is killed and started again, on one port."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self.node: RunningNode = start_node(self._data)
        self._port = ("--port", str(self.node.port))

    def kill(self) -> None:
        self.node.kill()
        assert self.node.process.stdout is not None
        self.node.process.stdout.close()

    def start_again(self) -> None:
        self.node = start_node(self._data, *self._port)


Driver = subprocess.Popen[bytes]


@contextmanager
def driver(endpoint: str, folder: Path, trigger: str, *more: str) -> Iterator[Driver]:
    """A driver with all its workers in a process group of its own; killed in the end.

    `more`: as in the copier, from the options of the source on.
    """
    arguments = [endpoint, str(folder), trigger, *more]
    with (folder / "driver.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", COPIER, *arguments],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_held(rules: Iterable[Holding], process: Driver) -> None:
    """Until both queries are in the middle of a batch."""

    def are_held() -> bool:
        assert process.poll() is None, "the driver ended"
        return all(rule.held.is_set() for rule in rules)

    wait_until(are_held, within_s=DEADLINE_S)


Copy = tuple[str, str, str, str]
"""Body, tag, key, and the property `n`."""


def copies_of(endpoint: str, topic: str) -> Counter[Copy]:
    """Each message of a copy, and how often it is there."""
    rows = rows_at(endpoint, topic, {"includeProperties": "true"})
    return Counter(
        (row["value"].decode(), row["tag"], row["key"].decode(), dict(row["properties"])["n"])
        for row in rows
    )


EXPECTED = Counter((f"{n}", "copied", f"x-k{n % KEYS}", f"{n}") for n in range(MESSAGES))


def send_all(service: RealNode) -> None:
    """All messages, each key in one queue."""
    for queue in range(QUEUES):
        numbers = range(queue, MESSAGES, QUEUES)
        more = [{"sharding_key": f"k{n % KEYS}", "properties": {"n": f"{n}"}} for n in numbers]
        service.send("orders", queue, *[b"%d" % n for n in numbers], more=more)


def test_each_message_is_copied_once_through_kills(tmp_path: Path) -> None:
    """Of the node, and of driver and node at once, with other keys and tags."""
    nodes = Nodes(tmp_path)
    rules = {name: Holding(f"/{name}/") for name in ("copy", "twice")}

    def rule(asked: Asked, pass_on: Callable[[], Given]) -> Given | None:
        return rules["twice" if "/twice/" in asked.path else "copy"](asked, pass_on)

    def hold_after(sends: int) -> None:
        for each in rules.values():
            each.let_go()
            each.hold_after(sends)

    def kill_the_node_held() -> None:
        wait_until_held(rules.values(), process)
        nodes.kill()

    try:
        service = RealNode(nodes.node.url)
        for name in ("orders", *rules):
            service.add_topic(name, QUEUES)
        send_all(service)
        with run_proxy(nodes.node.url, rule) as endpoint:
            hold_after(SENDS_OF_A_BATCH // 3)
            with driver(endpoint, tmp_path, "always", "{}", "{}") as process:
                kill_the_node_held()
                nodes.start_again()
                hold_after(SENDS_OF_A_BATCH)
                kill_the_node_held()
            for each in rules.values():
                each.let_go()
            nodes.start_again()
            for name in ("orders", *rules):
                service.add_topic(name, QUEUES + MORE_QUEUES)
            with driver(endpoint, tmp_path, "once", *CHANGED) as process:
                assert process.wait(DEADLINE_S) == 0, (tmp_path / "driver.log").read_text()[-3000:]
        url = nodes.node.url
        wait_until(lambda: not EXPECTED - copies_of(url, "copy"), within_s=DEADLINE_S)
        assert copies_of(url, "copy") == EXPECTED
        wait_until(lambda: not EXPECTED - copies_of(url, "twice"), within_s=DEADLINE_S)
        found = copies_of(url, "twice")
    finally:
        nodes.kill()
    assert (found - EXPECTED).total() > 0, "the control"

"""A driver and a node that are killed while a stream is copied: the copy has each message once.

Both are killed in the middle of a batch, while the answer to one of its requests is held back.
After the kill of the driver the options of source and sink are others, but the batch goes on as it
began. Control: without idempotence the same kills leave messages twice.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from spark_connector.tests.support.proxy import Asked, Given, Holding, run_proxy
from spark_connector.tests.support.real_node import RealNode
from tests.support.nodes.node import RunningNode, start_node
from tests.support.nodes.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MESSAGES = 4_000
QUEUES = 4
EXPECTED = Counter(str(number) for number in range(MESSAGES))
SENDS_OF_A_BATCH = 80
"""The copier's batches have 1,600 messages and its requests 20."""
DEADLINE_S = 300
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
def driver(endpoint: str, folder: Path, trigger: str, *, changed: bool = False) -> Iterator[Driver]:
    """A driver with all its workers in a process group of its own; killed in the end.

    `changed`: with options that cut its batches into other tasks and portions.
    """
    others = [{"minPartitions": "7"}, {"sendMaxMessages": "13"}] if changed else [{}, {}]
    arguments = [endpoint, str(folder), trigger, *map(json.dumps, others)]
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


def values(endpoint: str, topic: str) -> Counter[str]:
    """Each message of a copy, and how often it is there."""
    pool = urllib3.PoolManager()
    found: Counter[str] = Counter()
    for queue in range(QUEUES):
        offset, up_to_date = 0, False
        while not up_to_date:
            path = f"/v1/topics/{topic}/queues/{queue}/messages?offset={offset}&max_messages=10000"
            answer = pool.request("GET", endpoint + path).json()
            found.update(message["text"] for message in answer["messages"])
            offset, up_to_date = answer["next_offset"], answer["up_to_date"]
    return found


def test_each_message_is_copied_once_through_kills(tmp_path: Path) -> None:
    """Of the node, and of driver and node at once."""
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
        for queue in range(QUEUES):
            service.send("orders", queue, *[b"%d" % n for n in range(queue, MESSAGES, QUEUES)])
        with run_proxy(nodes.node.url, rule) as endpoint:
            hold_after(SENDS_OF_A_BATCH // 3)
            with driver(endpoint, tmp_path, "always") as process:
                kill_the_node_held()
                nodes.start_again()
                hold_after(SENDS_OF_A_BATCH)
                kill_the_node_held()
            for each in rules.values():
                each.let_go()
            nodes.start_again()
            with driver(endpoint, tmp_path, "once", changed=True) as process:
                assert process.wait(DEADLINE_S) == 0, (tmp_path / "driver.log").read_text()[-3000:]
        assert values(nodes.node.url, "copy") == EXPECTED
        found = values(nodes.node.url, "twice")
    finally:
        nodes.kill()
    assert EXPECTED - found == Counter(), "at least once"
    assert (found - EXPECTED).total() > 0, "the control"

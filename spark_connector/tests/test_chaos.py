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
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from spark_connector.tests.support.proxy import Holding, run_proxy
from spark_connector.tests.support.real_node import RealNode
from tests.support.nodes.node import RunningNode, start_node

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MESSAGES = 4_000
QUEUES = 4
EXPECTED = Counter(str(number) for number in range(MESSAGES))
SENDS_OF_A_BATCH = 80
"""The copier's batches have 1,600 messages and its requests 20."""
DEADLINE_S = 180
COPIER = Path(__file__).parent / "support" / "copier.py"


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
def driver(
    endpoint: str, folder: Path, trigger: str, idempotence: str, *, changed: bool = False
) -> Iterator[Driver]:
    """A driver with all its workers in a process group of its own; killed in the end.

    `changed`: with options that cut its batches into other tasks and portions.
    """
    arguments = [endpoint, "orders", "copy", str(folder), trigger, idempotence]
    others = [{"minPartitions": "7"}, {"sendMaxMessages": "13"}] if changed else [{}, {}]
    arguments += [json.dumps(each) for each in others]
    with (folder / "driver.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, str(COPIER), *arguments],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
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


def wait_until_held(rule: Holding, process: Driver) -> None:
    """Until the query is in the middle of a batch."""
    give_up = time.monotonic() + DEADLINE_S
    while not rule.held.wait(0.1):
        assert process.poll() is None, "the driver ended"
        assert time.monotonic() < give_up


def values(endpoint: str) -> Counter[str]:
    """Each message of the copy, and how often it is there."""
    pool = urllib3.PoolManager()
    found: Counter[str] = Counter()
    for queue in range(QUEUES):
        offset, up_to_date = 0, False
        while not up_to_date:
            path = f"/v1/topics/copy/queues/{queue}/messages?offset={offset}&max_messages=10000"
            answer = pool.request("GET", endpoint + path).json()
            found.update(message["text"] for message in answer["messages"])
            offset, up_to_date = answer["next_offset"], answer["up_to_date"]
    return found


def copied_through_kills(folder: Path, idempotence: str) -> Counter[str]:
    """What the copy holds after kills of the node, and of driver and node at once."""
    nodes = Nodes(folder)
    rule = Holding("/copy/")
    try:
        service = RealNode(nodes.node.url)
        service.add_topic("orders", QUEUES)
        service.add_topic("copy", QUEUES)
        for queue in range(QUEUES):
            service.send("orders", queue, *[b"%d" % n for n in range(queue, MESSAGES, QUEUES)])
        with run_proxy(nodes.node.url, rule) as endpoint:
            rule.hold_after(SENDS_OF_A_BATCH // 3)
            with driver(endpoint, folder, "always", idempotence) as process:
                wait_until_held(rule, process)
                nodes.kill()
                nodes.start_again()
                rule.let_go()
                rule.hold_after(SENDS_OF_A_BATCH)
                wait_until_held(rule, process)
                nodes.kill()
            rule.let_go()
            nodes.start_again()
            with driver(endpoint, folder, "once", idempotence, changed=True) as process:
                assert process.wait(DEADLINE_S) == 0, (folder / "driver.log").read_text()[-3000:]
        return values(nodes.node.url)
    finally:
        nodes.kill()


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    """By `idempotence`; both are made at the same time, each with a node of its own, for half of it
    is waiting."""
    kinds = ["true", "false"]
    folders = [tmp_path_factory.mktemp(f"idempotence-{kind}") for kind in kinds]
    with ThreadPoolExecutor(len(kinds)) as pool:
        return dict(zip(kinds, pool.map(copied_through_kills, folders, kinds), strict=True))


def test_each_message_is_copied_once(copies: dict[str, Counter[str]]) -> None:
    assert copies["true"] == EXPECTED


def test_without_idempotence_the_same_kills_leave_messages_twice(
    copies: dict[str, Counter[str]],
) -> None:
    found = copies["false"]
    assert EXPECTED - found == Counter(), "at least once"
    assert (found - EXPECTED).total() > 0

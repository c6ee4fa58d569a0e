"""Celery itself over a node: its workers are processes, which are stopped and killed."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import kombu.pools
import pytest
from curlew_client import Client
from curlew_client.testing import TestNode, running_node

from tests.support.nodes.waiting import wait_until

HERE = Path(__file__).parent
QUEUE = "celery"


@pytest.fixture(scope="module")
def node() -> Iterator[TestNode]:
    with running_node("--segment-mib", "32") as running:
        yield running


class Shop:
    """The program, and what its workers have done."""

    def __init__(self, node: TestNode, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done_file = root / "done"
        self.done_file.touch()
        monkeypatch.setenv("SHOP_DONE", str(self.done_file))
        monkeypatch.setenv("SHOP_BROKER", f"curlew://{urlsplit(node.url).netloc}")
        self._root = root
        self.tasks = _loaded()

    def done(self, what: str) -> list[list[str]]:
        words = [line.split() for line in self.done_file.read_text().splitlines()]
        return [each[1:] for each in words if each[0] == what]

    @contextmanager
    def worker(self, pool: str = "prefork") -> Iterator["subprocess.Popen[bytes]"]:
        command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-P", pool, "-c", "2"]
        environment = os.environ | {"PYTHONPATH": str(HERE), "C_FORCE_ROOT": "1"}
        log = self._root / "worker.log"
        with (
            log.open("wb") as out,
            subprocess.Popen(
                [*command, "-l", "INFO", "--without-mingle"],
                cwd=HERE,
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            ) as process,
        ):
            try:
                wait_until(lambda: b" ready." in log.read_bytes() or process.poll() is not None)
                assert process.poll() is None, log.read_text()[-4_000:]
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()
                    try:
                        process.wait(30)
                    finally:
                        with suppress(ProcessLookupError):
                            os.killpg(process.pid, signal.SIGKILL)


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shop", HERE / "shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shop(node: TestNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    found = Shop(node, tmp_path, monkeypatch)
    yield found
    found.tasks.app.close()
    kombu.pools.reset()


def lag(curlew: Client) -> dict[str, Any]:
    shown = curlew.admin.get_lag(QUEUE)
    return {key: shown[key] for key in ("ready", "in_flight", "retrying", "delayed")}


NOTHING = {"ready": 0, "in_flight": 0, "retrying": 0, "delayed": 0}


def kill_the_child_at_work(shop: Shop) -> None:
    """Its task is handed back, and done by another one."""
    shop.tasks.ship.delay(1, 0.5)
    wait_until(lambda: len(shop.done("begin")) == 1)
    ((_, child),) = shop.done("begin")
    os.kill(int(child), signal.SIGKILL)
    wait_until(lambda: len(shop.done("ship")) == 1)


def test_tasks_are_done_once_and_again_when_they_ask_for_it(shop: Shop, node: TestNode) -> None:
    tasks = shop.tasks
    with shop.worker(), Client(node.url) as curlew:
        for number in range(50):
            tasks.bill.delay(number)
        tasks.flaky.delay(7)
        tasks.bill.apply_async((100,), countdown=1)
        (tasks.bill.si(200) | tasks.bill.si(201)).apply_async()
        wait_until(lambda: len(shop.done("bill")) == 53 and len(shop.done("flaky")) == 3)
        wait_until(lambda: lag(curlew) == NOTHING)
        (answer,) = tasks.app.control.inspect(timeout=10).ping().values()
        assert answer == {"ok": "pong"}
        kill_the_child_at_work(shop)
        wait_until(lambda: lag(curlew) == NOTHING)
    assert shop.done("ship") == [["1"]]
    assert sorted(int(number) for (number,) in shop.done("bill")) == [
        *range(50),
        100,
        200,
        201,
    ]
    assert shop.done("flaky") == [["7", "0"], ["7", "1"], ["7", "2"]]


def test_what_a_killed_worker_had_is_done_by_the_next(shop: Shop, node: TestNode) -> None:
    for number in range(6):
        shop.tasks.ship.delay(number, 0.5)
    with shop.worker() as killed:
        wait_until(lambda: len(shop.done("begin")) >= 2)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(30)
    with shop.worker(), Client(node.url) as curlew:
        wait_until(lambda: lag(curlew) == NOTHING)
    assert {int(number) for (number,) in shop.done("ship")} == set(range(6))


def test_a_worker_that_stops_well_finishes_what_it_began_and_gives_back_the_rest(
    shop: Shop, node: TestNode
) -> None:
    for number in range(8):
        shop.tasks.ship.delay(number, 0.5)
    with shop.worker() as stopped:
        wait_until(lambda: len(shop.done("begin")) >= 2)
        stopped.terminate()
        stopped.wait(30)
    begun = {number for number, _ in shop.done("begin")}
    assert {number for (number,) in shop.done("ship")} == begun
    with shop.worker("threads"), Client(node.url) as curlew:
        wait_until(lambda: lag(curlew) == NOTHING)
    assert sorted(int(number) for (number,) in shop.done("ship")) == list(range(8))


def test_a_task_that_fails_without_an_ack_is_a_dead_letter(shop: Shop, node: TestNode) -> None:
    with Client(node.url) as curlew:
        before = curlew.admin.get_lag(QUEUE)["dead"]
        shop.tasks.bad.delay()
        with shop.worker("solo"):
            wait_until(lambda: curlew.admin.get_lag(QUEUE)["dead"] == before + 1)
    assert shop.done("bad") == [[]]

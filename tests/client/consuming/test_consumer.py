"""Consumers against a node: blocks, batches, workers, and how they end."""

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from curlew_client import AsyncClient, Client, DeadLetter, Received, Retry, Worker
from curlew_client.errors import ReceiptHandleExpired, Unauthorized

from tests.support.clients.scripted_node import answered, broken, hung, refused, scripted
from tests.support.nodes.node import ROOT, RunningNode, run_node
from tests.support.nodes.waiting import until, wait_until

TOPIC = "orders"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with run_node(tmp_path_factory.mktemp("consumer") / "node") as running:
        httpx.put(f"{running.url}/v1/topics/{TOPIC}", json={"queues": 1})
        yield running


def group(node: RunningNode, request: pytest.FixtureRequest, **settings: Any) -> str:
    """A topic of the test's own with 20 messages, and a group of the same name."""
    name = re.sub(r"[^a-z_]+", "-", request.node.name.removeprefix("test_"))[:60]
    retries = {"retry_policy": {"customized": ["0s"]}, "max_attempts": 3}
    httpx.put(f"{node.url}/v1/topics/{name}", json={"queues": 2, "flush": "async"})
    httpx.put(f"{node.url}/v1/groups/{name}", json={**retries, **settings}).raise_for_status()
    with Client(node.url) as curlew:
        for queue_id in range(2):
            curlew.send_batch(name, [f"m{n}" for n in range(10)], queue_id=queue_id)
    return name


def lag(node: RunningNode, name: str) -> dict[str, int]:
    shown = httpx.get(f"{node.url}/v1/groups/{name}/lag").json()
    found = {key: shown[key] for key in ("ready", "in_flight", "retrying", "delayed", "dead")}
    return {key: value for key, value in found.items() if value}


def test_a_block_acks_what_it_was_left_well_with(
    node: RunningNode, request: pytest.FixtureRequest
) -> None:
    name = group(node, request)
    with Client(node.url) as curlew:
        with curlew.receive(name, group=name, limit=5) as received:
            seen = [message.text for message in received]
        assert (len(seen), lag(node, name)) == (5, {"ready": 15})
        with curlew.receive(name, group=name) as received:
            for message in received:
                assert message.attempt == 1
                break
        assert lag(node, name) == {"ready": 14}, "one is acked, what was fetched is released"
        with curlew.receive(name, group=name, idle="0s") as received:
            attempts = [message.attempt for message in received]
        assert (attempts, lag(node, name)) == ([1] * 14, {})


def test_a_block_hands_back_what_failed(node: RunningNode, request: pytest.FixtureRequest) -> None:
    name = group(node, request)
    with Client(node.url) as curlew:
        with pytest.raises(OSError, match="bank closed"):
            fail(curlew, name, OSError("bank closed"))
        with curlew.receive(name, group=name, idle="1s", limit=20) as received:
            attempts = sorted(message.attempt for message in received)
        assert attempts == [1] * 19 + [2]
        curlew.send(name, b"one more")
        with pytest.raises(DeadLetter):
            fail(curlew, name, DeadLetter("no account"))
    letters = httpx.get(f"{node.url}/v1/groups/{name}/dlq/messages").json()["messages"]
    assert [each["reason"] for each in letters] == ["no account"]


def fail(curlew: Client, name: str, error: Exception) -> None:
    with curlew.receive(name, group=name, limit=1) as received:
        for _ in received:
            raise error


def test_a_plain_loop_is_refused(node: RunningNode) -> None:
    with Client(node.url) as curlew, pytest.raises(TypeError, match="with client"):
        iter(curlew.receive(TOPIC, group="nobody"))

    async def loop() -> None:
        async with AsyncClient(node.url) as curlew:
            with pytest.raises(TypeError, match="async with client"):
                aiter(curlew.receive(TOPIC, group="nobody"))

    asyncio.run(loop())


def test_a_block_with_asyncio(node: RunningNode, request: pytest.FixtureRequest) -> None:
    name = group(node, request)

    async def consume() -> list[str]:
        async with AsyncClient(node.url) as curlew:
            async with curlew.receive(name, group=name, limit=3) as received:
                seen = [message.text async for message in received]
            batch = await curlew.receive_batch(name, group=name, max_messages=4)
            await batch[0].ack()
            await batch[1].release()
            await batch[2].dead_letter("no")
            await batch[3].nack(delay="1h", reason="later")
            return seen

    assert len(asyncio.run(consume())) == 3
    left = lag(node, name)
    assert (left["delayed"], left["dead"]) == (1, 1)


def test_a_batch_is_settled_by_hand(node: RunningNode, request: pytest.FixtureRequest) -> None:
    name = group(node, request)
    with Client(node.url) as curlew:
        messages = curlew.receive_batch(name, group=name, max_messages=20, wait="5s")
        for message in messages[1:]:
            message.ack()
        curlew.receive_batch(name, group=name, max_messages=1)
        httpx.post(f"{node.url}/v1/groups/{name}/offsets/{name}:reset", json={"to": "latest"})
        with pytest.raises(ReceiptHandleExpired):
            messages[0].ack()


def test_leases_are_extended_while_a_handler_works(
    node: RunningNode, request: pytest.FixtureRequest
) -> None:
    name = group(node, request)
    with (
        Client(node.url) as curlew,
        curlew.receive(name, group=name, invisible="1s", limit=1) as received,
    ):
        (message,) = [message for message in received if hold(node, name, message)]
    assert (message.attempt, lag(node, name)) == (1, {"ready": lag(node, name)["ready"]})


def hold(node: RunningNode, name: str, message: Received[None]) -> bool:
    """Keep a message until its first lease would have been over for long."""
    first = message.receipt_handle
    wait_until(lambda: message.receipt_handle != first)
    second = message.receipt_handle
    wait_until(lambda: message.receipt_handle != second)
    third = message.receipt_handle
    wait_until(lambda: message.receipt_handle != third)
    return lag(node, name)["in_flight"] >= 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_worker_settles_as_its_handler_ends(
    node: RunningNode, request: pytest.FixtureRequest, is_async: bool
) -> None:
    name = group(node, request)
    seen: list[tuple[str, int]] = []
    worker = Worker(node.url)

    def bill(message: Received[Any]) -> object:
        seen.append((message.text, message.attempt))
        if message.text == "m1":
            raise OSError("bank closed")
        if message.text == "m2":
            raise DeadLetter("no account")
        if message.text == "m3" and message.attempt == 1:
            return Retry(delay="0s")
        return None

    async def bill_async(message: Received[Any]) -> object:
        return bill(message)

    worker.consumer(name, group=name, concurrency=4)(bill_async if is_async else bill)
    with worker:
        wait_until(lambda: lag(node, name) == {"dead": 4})
    attempts = {text: [a for t, a in seen if t == text] for text, _ in seen}
    assert sorted(attempts["m1"]) == [1, 1, 2, 2, 3, 3]
    assert sorted(attempts["m3"]) == [1, 1, 2, 2]
    assert sorted(attempts["m0"]) == [1, 1]


def test_a_worker_takes_batches(node: RunningNode, request: pytest.FixtureRequest) -> None:
    name = group(node, request)
    sizes: list[int] = []
    worker = Worker(node.url)

    @worker.consumer(name, group=name, batch=4, concurrency=1)
    def bill(batch: list[Received[None]]) -> int | None:
        sizes.append(len(batch))
        return 0 if len(sizes) == 1 else None

    with worker:
        wait_until(lambda: lag(node, name) == {} and sum(sizes) > 20)
    assert max(sizes) == 4


def test_a_message_that_a_handler_settles_itself_is_let_be(
    node: RunningNode, request: pytest.FixtureRequest
) -> None:
    name = group(node, request)
    worker = Worker(node.url)

    @worker.consumer(name, group=name)
    def bill(message: Received[None]) -> None:
        message.dead_letter("by hand")

    with worker:
        wait_until(lambda: set(lag(node, name)) == {"dead"})


def test_a_key_of_an_ordered_group_goes_one_by_one(
    node: RunningNode, request: pytest.FixtureRequest
) -> None:
    name = group(node, request, order="fifo")
    httpx.put(f"{node.url}/v1/topics/steps", json={"queues": 2, "flush": "async"})
    with Client(node.url) as curlew:
        for number in range(30):
            curlew.send("steps", f"{number}", sharding_key=f"k{number % 2}")
    seen: list[int] = []
    at_work: set[int] = set()
    worker = Worker(node.url)

    @worker.consumer("steps", group=name, concurrency=8)
    def bill(message: Received[None]) -> None:
        key = int(message.text) % 2
        assert key not in at_work
        at_work.add(key)
        seen.append(int(message.text))
        at_work.discard(key)

    with worker:
        wait_until(lambda: len(seen) == 30)
    assert [n for n in seen if n % 2] == list(range(1, 30, 2))
    assert [n for n in seen if not n % 2] == list(range(0, 30, 2))


def test_a_stop_waits_for_handlers_and_releases_the_rest(
    node: RunningNode, request: pytest.FixtureRequest
) -> None:
    name = group(node, request)
    begun, go_on = threading.Event(), threading.Event()
    worker = Worker(node.url)

    @worker.consumer(name, group=name, concurrency=1)
    def bill(message: Received[None]) -> None:
        begun.set()
        assert go_on.wait(60)

    worker.start()
    assert begun.wait(60)
    before = sum(lag(node, name).values())
    stopper = threading.Thread(target=worker.stop)
    stopper.start()
    wait_until(lambda: lag(node, name) == {"ready": before - 1, "in_flight": 1})
    go_on.set()
    stopper.join()
    assert lag(node, name) == {"ready": before - 1}
    with Client(node.url) as curlew:
        taken = curlew.receive_batch(name, group=name, max_messages=100)
        assert {message.attempt for message in taken} == {1}, "a release burns no attempt"


def test_a_handler_that_hangs_does_not_keep_a_stop(
    node: RunningNode, request: pytest.FixtureRequest
) -> None:
    name = group(node, request)
    begun, never = threading.Event(), threading.Event()
    worker = Worker(node.url, drain="0.1s")

    @worker.consumer(name, group=name, concurrency=1, invisible="1s")
    def bill(message: Received[None]) -> None:
        begun.set()
        never.wait(60)

    worker.start()
    assert begun.wait(60)
    worker.stop()
    never.set()
    wait_until(lambda: "in_flight" not in lag(node, name))


def test_sigterm_drains_a_worker(
    node: RunningNode, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = group(node, request)
    program = tmp_path / "worker.py"
    program.write_text(
        "import sys, time\n"
        "from curlew_client import Worker\n"
        "worker = Worker(sys.argv[1])\n"
        "@worker.consumer(sys.argv[2], group=sys.argv[2], concurrency=1)\n"
        "def bill(message):\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(0.3)\n"
        "    print('done', flush=True)\n"
        "worker.run()\n"
        "print('drained', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(program), node.url, name], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    with process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip()]
        process.send_signal(signal.SIGTERM)
        lines += [line.strip() for line in process.stdout]
    assert process.returncode == 0
    assert lines[-1] == "drained"
    assert lines.count("begun") == lines.count("done")
    assert set(lag(node, name)) == {"ready"}


def test_an_application_starts_and_stops_a_worker(
    node: RunningNode, request: pytest.FixtureRequest
) -> None:
    name = group(node, request)

    async def application() -> int:
        seen: list[str] = []
        async with AsyncClient(node.url) as curlew:
            worker = Worker(curlew)

            @worker.consumer(name, group=name)
            async def bill(message: Received[Any]) -> None:
                seen.append(message.text)

            async with worker:
                await until(lambda: len(seen) == 20)
        return len(seen)

    assert asyncio.run(application()) >= 20


def test_clashes_and_misuse_are_said(node: RunningNode) -> None:
    with Client(node.url) as curlew:
        worker = Worker(curlew)
        with pytest.raises(ValueError, match="no consumer"):
            worker.start()
        worker.consumer(TOPIC, group="twice")(print)
        with pytest.raises(ValueError, match="'twice' in 'orders' already"):
            worker.consumer(TOPIC, group="twice")
        with pytest.raises(ValueError, match="concurrency is 0"):
            worker.consumer(TOPIC, group="g", concurrency=0)
        with pytest.raises(TypeError, match="key and options"):
            Worker(curlew, key="x")
        other = Worker(curlew)
        other.consumer(TOPIC, group="twice")(print)
        with worker, pytest.raises(ValueError, match="this client has a consumer"):
            other.start()
        errors: list[BaseException] = []

        def elsewhere() -> None:
            try:
                worker.run()
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert "main thread" in str(errors[0])


# --- faults

MESSAGE = {
    "message_id": "A1",
    "topic": TOPIC,
    "queue_id": 0,
    "queue_offset": 0,
    "born_time_ms": 1,
    "store_time_ms": 1,
    "keys": [],
    "properties": {},
    "body_base64": "eA==",
    "receipt_handle": "h1",
    "delivery_attempt": 1,
    "max_attempts": 16,
    "invisible_until_ms": 1,
}
ONE = answered(200, {"messages": [MESSAGE], "backlog": 0})
NONE = answered(200, {"messages": [], "backlog": 0})
ACKED = answered(
    200, {"results": [{"receipt_handle": "h1", "action": "ack", "status": 200}], "succeeded": 1}
)


def test_a_receive_whose_answer_is_lost_asks_for_the_same_messages() -> None:
    with scripted(broken, ONE, ACKED) as node, Client(node.url) as curlew:
        with curlew.receive(TOPIC, group="g", limit=1) as received:
            assert [message.text for message in received] == ["x"]
        first, again, *_ = node.sends
    assert first.body == again.body
    assert b"attempt_id" in first.body


@pytest.mark.parametrize(("status", "code"), [(503, "SYSTEM_BUSY"), (507, "DISK_FULL")])
def test_an_ack_that_fails_is_said_again(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str
) -> None:
    monkeypatch.setattr("curlew_client.consuming.working.RETRY_S", 0.01)
    busy = refused(status, code, "Retry-After: 0", retryable=True)
    settles: list[bytes] = []
    with scripted(ONE) as node:
        node.otherwise = lambda connection: _answer(node, settles, connection, busy)
        worker = Worker(node.url, retries=0)
        worker.consumer(TOPIC, group="g")(lambda message: None)
        with worker:
            wait_until(lambda: len(settles) >= 3)
    assert len(set(settles[:3])) == 1


def _answer(node: Any, settles: list[bytes], connection: Any, busy: Any) -> None:
    asked = node.asked[-1]
    if "settle" not in asked.line:
        NONE(connection)
        return
    settles.append(asked.body)
    (busy if len(settles) < 3 else ACKED)(connection)


def test_a_receive_that_hangs_in_a_proxy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curlew_client.consuming.running.WAIT_S", 0)
    monkeypatch.setattr("curlew_client.consuming.running.FAILURE_PAUSE_S", 0)
    seen: list[str] = []
    with scripted(hung, ONE) as node:
        node.otherwise = lambda connection: _answer(node, [], connection, ACKED)
        worker = Worker(node.url, timeout=0.2, retries=0)
        worker.consumer(TOPIC, group="g")(lambda message: seen.append(message.text))
        with worker:
            wait_until(lambda: bool(seen))
    assert seen == ["x"]


def test_a_handler_that_blocks_the_loop_loses_its_leases_and_no_message(
    node: RunningNode, request: pytest.FixtureRequest
) -> None:
    name = group(node, request)
    blocked: list[str] = []
    done: set[str] = set()
    worker = Worker(node.url)

    @worker.consumer(name, group=name, invisible="1s")
    async def bill(message: Received[Any]) -> None:
        if not blocked:
            blocked.append(message.message_id)
            wait_until(lambda: "in_flight" not in lag(node, name))
        done.add(message.message_id)

    with worker:
        wait_until(lambda: bool(blocked) and lag(node, name) == {})
    assert len(done) == 20


def test_a_step_of_the_clock_changes_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted() as node, Client(node.url) as curlew:
        curlew.send(TOPIC, b"a")
        now_ns = time.time_ns()
        monkeypatch.setattr("time.time_ns", lambda: now_ns - 3_600 * 10**9)
        curlew.send(TOPIC, b"b")
        first, second = node.sends
    names = "mq-producer-id", "mq-producer-epoch"
    assert [first.headers[name] for name in names] == [second.headers[name] for name in names]
    assert [first.number[1], second.number[1]] == ["0", "1"]


def test_a_wrong_key_ends_a_worker_and_the_log_says_so_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong = refused(401, "UNAUTHORIZED", retryable=False)
    with scripted(*[wrong] * 10) as node:
        worker = Worker(node.url, key="curlew_x")
        worker.consumer(TOPIC, group="g")(print)
        worker.start()
        wait_until(lambda: worker.failure is not None)
        assert isinstance(worker.failure, Unauthorized)
        wait_until(lambda: "the consumer of group 'g' has ended: " in caplog.text)
        with pytest.raises(Unauthorized):
            worker.stop()
        assert worker.failure is None

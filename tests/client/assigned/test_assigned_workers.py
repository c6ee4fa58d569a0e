"""Consumers of queues of their own, against a node: concurrent, in order, broadcast."""

import asyncio
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from curlew_client import Client, DeadLetter, Received, Retry, Worker
from curlew_client.assigned.options import Rebalance
from curlew_client.errors import ClientClosed, OffsetExpired, Unauthorized

from tests.support.clients.scripted_node import answered, broken, hung, refused, scripted
from tests.support.nodes.node import RunningNode, run_node
from tests.support.nodes.waiting import wait_until

MESSAGES = 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with run_node(tmp_path_factory.mktemp("assigned") / "node") as running:
        yield running


@pytest.fixture
def name(node: RunningNode, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own with 20 messages in two queues, and a group of the same name."""
    found = re.sub(r"[^a-z_0-9]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    retries = {"retry_policy": {"customized": ["0s"]}, "max_attempts": 3}
    httpx.put(f"{node.url}/v1/topics/{found}", json={"queues": 2, "flush": "async"})
    httpx.put(f"{node.url}/v1/groups/{found}", json=retries).raise_for_status()
    fill(node, found)
    return found


def fill(node: RunningNode, topic: str, start: int = 0) -> None:
    with Client(node.url) as curlew:
        for queue_id in range(2):
            bodies = [f"{queue_id}.{n}" for n in range(start, start + MESSAGES // 2)]
            curlew.send_batch(topic, bodies, queue_id=queue_id)


def committed(node: RunningNode, name: str) -> int:
    shown = httpx.get(f"{node.url}/v1/groups/{name}/offsets/{name}").json()
    return sum(each["offset"] for each in shown.get("offsets", ()))


def lag(node: RunningNode, name: str) -> dict[str, int]:
    shown = httpx.get(f"{node.url}/v1/groups/{name}/lag").json()
    found = {key: shown[key] for key in ("ready", "in_flight", "retrying", "delayed", "dead")}
    return {key: value for key, value in found.items() if value}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_commit_passes_what_is_handed_back(node: RunningNode, name: str, is_async: bool) -> None:
    seen: list[tuple[str, int]] = []
    worker = Worker(node.url)

    def bill(message: Received[Any]) -> object:
        seen.append((message.text, message.attempt))
        if message.text == "0.1":
            raise OSError("bank closed")
        if message.text == "0.2":
            raise DeadLetter("no account")
        if message.text == "0.3" and message.attempt == 1:
            return Retry(delay="0s")
        return message.dead_letter("by hand") if message.text == "0.4" else None

    async def bill_async(message: Received[Any]) -> None:
        returned = bill(message)
        if asyncio.iscoroutine(returned):
            await returned
        elif isinstance(returned, Retry):
            raise returned

    worker.assigned_consumer(name, group=name)(bill_async if is_async else bill)
    with worker:
        wait_until(lambda: lag(node, name) == {"dead": 3} and committed(node, name) == MESSAGES)
    assert [a for text, a in seen if text == "0.1"] == [1, 2, 3]
    assert [a for text, a in seen if text == "0.3"] == [1, 2]
    assert len(seen) == MESSAGES + 3
    letters = httpx.get(f"{node.url}/v1/groups/{name}/dlq/messages").json()["messages"]
    assert {each["text"]: each["reason"] for each in letters}["0.4"] == "by hand"


def test_a_batch_is_done_up_to_its_index(node: RunningNode, name: str) -> None:
    seen: list[list[tuple[str, int]]] = []
    worker = Worker(node.url)

    @worker.assigned_consumer(name, group=name, batch=4, concurrency=1)
    def bill(batch: list[Received[Any]]) -> int | None:
        seen.append([(message.text, message.attempt) for message in batch])
        return 1 if len(seen) == 1 else None

    with worker:
        wait_until(lambda: lag(node, name) == {} and committed(node, name) == MESSAGES)
    first = seen[0]
    again = Counter(text for batch in seen for text, _ in batch)
    assert [again[text] for text, _ in first] == [1, 1, 2, 2]
    assert len(first) == 4


def test_a_queue_in_order_waits_for_what_fails(node: RunningNode, name: str) -> None:
    seen: list[tuple[str, int]] = []
    at_work: Counter[int] = Counter()
    worker = Worker(node.url)

    @worker.assigned_consumer(
        name, group=name, in_order=True, suspend="10ms", max_attempts=3, concurrency=4
    )
    def bill(message: Received[Any]) -> None:
        at_work[message.queue_id] += 1
        assert at_work[message.queue_id] == 1
        seen.append((message.text, message.attempt))
        at_work[message.queue_id] -= 1
        if message.text == "0.2" or (message.text == "1.3" and message.attempt < 2):
            raise OSError("bank closed")

    with worker:
        wait_until(lambda: committed(node, name) == MESSAGES and len(seen) == MESSAGES + 3)
    of_first = [each for each in seen if each[0].startswith("0.")]
    tries = [("0.2", 1), ("0.2", 2), ("0.2", 3)]
    assert of_first == [("0.0", 1), ("0.1", 1), *tries, *((f"0.{n}", 1) for n in range(3, 10))]
    assert [text for text, _ in seen if text.startswith("1.")][3:5] == ["1.3", "1.3"]
    assert lag(node, name) == {"dead": 1}, "after its last try"


def test_members_share_queues_and_nothing_comes_twice(node: RunningNode, name: str) -> None:
    seen: list[tuple[str, str]] = []
    told: dict[str, list[Rebalance]] = {"a": [], "b": []}

    def worker(which: str) -> Worker:
        made = Worker(node.url, client_id=f"{name[:40]}-{which}")

        async def tell(rebalance: Rebalance) -> None:
            told[which].append(rebalance)

        @made.assigned_consumer(
            name, group=name, on_rebalance=tell if which == "a" else told[which].append
        )
        def bill(message: Received[Any]) -> None:
            seen.append((which, message.text))

        return made

    with worker("a"):
        wait_until(lambda: len(seen) == MESSAGES)
        with worker("b"):
            wait_until(lambda: any(each.assigned for each in told["b"]))
            fill(node, name, 10)
            wait_until(lambda: len(seen) == 2 * MESSAGES)
            assert len(told["a"][-1].lost) == len(told["b"][-1].gained) == 1
        wait_until(lambda: len(told["a"][-1].assigned) == 2)
        fill(node, name, 20)
        wait_until(lambda: len(seen) == 3 * MESSAGES)
    assert {which for which, _ in seen} == {"a", "b"}
    assert max(Counter(text for _, text in seen).values()) == 1
    assert committed(node, name) == 3 * MESSAGES


def test_a_stop_commits_what_is_done_and_leaves(node: RunningNode, name: str) -> None:
    begun, go_on = threading.Event(), threading.Event()
    worker = Worker(node.url)

    @worker.assigned_consumer(name, group=name, concurrency=1)
    def bill(message: Received[Any]) -> None:
        begun.set()
        assert go_on.wait(60)

    worker.start()
    assert begun.wait(60)
    at_work: Any = worker._at_work
    ((_, consumer),) = at_work._by_group
    stopper = threading.Thread(target=worker.stop)
    stopper.start()
    wait_until(
        lambda: consumer._handlers._line.qsize() == 1
    )  # all is taken back that has not begun
    go_on.set()
    stopper.join()
    done = committed(node, name)
    assert 1 <= done < MESSAGES
    assert httpx.get(f"{node.url}/v1/groups/{name}/members").json()["members"] == []
    rest: list[int] = []
    worker = Worker(node.url)
    worker.assigned_consumer(name, group=name)(lambda message: rest.append(message.attempt))
    with worker:
        wait_until(lambda: len(rest) == MESSAGES - done)
    assert set(rest) == {1}, "a stop burns no attempt"


def test_a_pause_reads_nothing_more(node: RunningNode, name: str) -> None:
    seen: list[str] = []
    worker = Worker(node.url)
    worker.assigned_consumer(name, group=name)(lambda message: seen.append(message.text))
    with pytest.raises(RuntimeError, match="not started"):
        worker.pause(name)
    with worker:
        wait_until(lambda: len(seen) == MESSAGES)
        worker.pause(name)
        with pytest.raises(ValueError, match="no consumer of group 'other'"):
            worker.pause("other")
        fill(node, name, 10)
        wait_until(lambda: lag(node, name).get("ready") == MESSAGES)
        assert len(seen) == MESSAGES
        worker.resume(name)
        wait_until(lambda: len(seen) == 2 * MESSAGES)


def test_a_new_group_begins_where_it_is_told(node: RunningNode, name: str) -> None:
    seen: list[str] = []
    worker = Worker(node.url)
    worker.assigned_consumer(name, group=f"{name}-new", start="last")(
        lambda message: seen.append(message.text)
    )
    with worker:
        begins = f"{node.url}/v1/groups/{name}-new/offsets/{name}"
        wait_until(lambda: len(httpx.get(begins).json().get("offsets", ())) == 2)
        fill(node, name, 10)
        wait_until(lambda: len(seen) == MESSAGES)
    assert all(int(text.partition(".")[2]) >= 10 for text in seen)


def test_a_broadcast_consumer_goes_on_where_its_file_says(
    node: RunningNode, name: str, tmp_path: Path
) -> None:
    group, file = f"{name}-all", tmp_path / "offsets.json"

    def consumed(until: int) -> list[str]:
        seen: list[str] = []
        worker = Worker(node.url)

        @worker.assigned_consumer(
            name, group=group, broadcast=True, offset_file=file, start="first"
        )
        def show(message: Received[Any]) -> None:
            seen.append(message.text)
            if message.text == "0.2":
                raise OSError("left out: nobody else has it to do")

        with worker:
            wait_until(lambda: len(seen) >= until)
        return seen

    assert len(consumed(MESSAGES)) == MESSAGES
    fill(node, name, 10)
    assert sorted(consumed(MESSAGES)) == sorted(f"{q}.{n}" for q in (0, 1) for n in range(10, 20))
    file.unlink()
    assert len(consumed(2 * MESSAGES)) == 2 * MESSAGES


def test_the_mode_of_a_group_ends_a_worker(node: RunningNode, name: str) -> None:
    worker = Worker(node.url)
    worker.assigned_consumer(name, group=name, broadcast=True)(print)
    worker.start()
    wait_until(lambda: bool(failures(worker)))
    with pytest.raises(ValueError, match="mode 'clustering'"):
        worker.stop()


def failures(worker: Worker) -> list[Any]:
    at_work: Any = worker._at_work
    return [each for each in at_work.failures if each.done()]


def test_clashes_are_said(node: RunningNode, name: str, tmp_path: Path) -> None:
    with Client(node.url) as curlew:
        worker = Worker(curlew)
        worker.assigned_consumer(name, group=name)(lambda message: None)
        for register in (worker.consumer, worker.assigned_consumer):
            with pytest.raises(ValueError, match="consumer of group"):
                register(name, group=name)
        other = Worker(curlew)
        other.consumer(name, group=name)(print)
        with worker, pytest.raises(ValueError, match="this client has a consumer of group"):
            other.start()
        again = Worker(curlew)
        again.assigned_consumer(name, group=name)(lambda message: None)
        with again:
            pass
    one, two = Worker(node.url), Worker(node.url)
    for each in (one, two):
        each.assigned_consumer(name, group="b", broadcast=True, offset_file=tmp_path / "f")(print)
    with one, pytest.raises(ValueError, match="another consumer keeps its offsets"):
        two.start()
    with two:
        pass


def test_a_forked_child_is_refused(node: RunningNode, name: str) -> None:
    worker = Worker(node.url)
    worker.assigned_consumer(name, group=name)(print)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            worker.start()
        except ClientClosed as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"after a fork" in os.read(reading, 1_000)
    os.close(reading)
    os.close(writing)


# --- faults


def test_a_handler_that_hangs_gives_its_message_to_others(node: RunningNode, name: str) -> None:
    seen: list[tuple[str, int]] = []
    never = threading.Event()
    worker = Worker(node.url, drain="0.1s")

    @worker.assigned_consumer(name, group=name, concurrency=2, consume_timeout="0.2s")
    def bill(message: Received[Any]) -> None:
        seen.append((message.text, message.attempt))
        if message.text == "0.0" and message.attempt == 1:
            never.wait(60)

    with worker:
        wait_until(lambda: ("0.0", 2) in seen and committed(node, name) == MESSAGES)
    never.set()
    assert lag(node, name) == {}


def test_a_place_that_is_gone_can_end_a_worker(node: RunningNode, name: str) -> None:
    told = httpx.post(
        f"{node.url}/v1/groups/{name}/members:poll",
        json={"client_id": "w1", "subscriptions": [{"topic": name}], "generation": 0},
    ).json()
    gone = told["queues"][0] | {"status": "OFFSET_EXPIRED", "next_offset": 5, "min_offset": 5}
    document = told | {"queues": [gone], "messages": [], "retries": []}
    with scripted() as false_node:
        false_node.otherwise = multipart(document)
        worker = Worker(false_node.url)
        worker.assigned_consumer(name, group=name, offset_reset="fail")(lambda message: None)
        worker.start()
        wait_until(lambda: bool(failures(worker)))
        with pytest.raises(OffsetExpired, match="cannot be read"):
            worker.stop()


def multipart(document: Any) -> Any:
    text = json.dumps(document).encode()
    head = f"--b\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    body = head.encode() + text + b"\r\n--b--\r\n"
    lines = "HTTP/1.1 200 OK\r\nMQ-Request-Id: r\r\nMQ-Store-Id: 01020304\r\n"
    kind = f"Content-Type: multipart/mixed; boundary=b\r\nContent-Length: {len(body)}\r\n\r\n"
    return lambda connection: connection.sendall((lines + kind).encode() + body)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (refused(401, "UNAUTHORIZED", retryable=False), Unauthorized),
        (answered(200, {"messages": []}), Exception),
    ],
)
def test_what_can_never_succeed_ends_a_worker(step: Any, kind: type[Exception]) -> None:
    with scripted() as node:
        node.otherwise = step
        worker = Worker(node.url)
        worker.assigned_consumer("orders", group="g")(print)
        worker.start()
        wait_until(lambda: bool(failures(worker)))
        with pytest.raises(kind):
            worker.stop()


def test_a_member_that_was_replaced_joins_again(node: RunningNode, name: str) -> None:
    seen: list[str] = []
    told: list[Rebalance] = []
    worker = Worker(node.url, client_id=f"{name[:40]}-1")
    worker.assigned_consumer(name, group=name, on_rebalance=told.append)(
        lambda message: seen.append(message.text)
    )
    with worker:
        wait_until(lambda: committed(node, name) == MESSAGES)
        members = f"{node.url}/v1/groups/{name}/members/{name[:40]}-1"
        httpx.delete(members).raise_for_status()
        wait_until(lambda: len(told) == 3)
        fill(node, name, 10)
        wait_until(lambda: len(seen) == 2 * MESSAGES)
    assert [len(each.assigned) for each in told] == [2, 0, 2]


def test_a_node_that_hangs_does_not_keep_a_stop() -> None:
    with scripted() as node:
        node.otherwise = hung
        worker = Worker(node.url, timeout="0.2s", connect_timeout="0.2s", drain="0.1s")
        worker.assigned_consumer("orders", group="g")(print)
        with worker:
            wait_until(lambda: len(node.sends) > 0)
        assert {each.line.partition("?")[0] for each in node.sends} == {
            "POST /v1/groups/g/members:poll"
        }


def test_a_poll_whose_answer_is_lost_says_the_same_again() -> None:
    assigned = {"topic": "orders", "queue_id": 0, "since_generation": 1, "offset": 0}
    told = {
        "mode": "clustering",
        "generation": 1,
        "assignment_id": "a",
        "assigned": [assigned],
        "revoked": [],
        "queues": [],
        "committed": [],
        "refused": [],
        "conflicts": [],
        "retries": [],
        "lease_ms": 30_000,
        "poll_again_ms": 0,
    }
    with scripted(multipart(told), broken, broken) as node:
        node.otherwise = multipart(told)
        worker = Worker(node.url, retries=0)
        worker.assigned_consumer("orders", group="g")(print)
        with worker:
            wait_until(lambda: len(node.sends) >= 4)
        first, second, third, *_ = node.sends
    assert json.loads(first.body)["generation"] == 0
    assert second.body == third.body
    assert json.loads(second.body)["generation"] == 1

"""Hooks around sends and handlers, and the selector of queues."""

import asyncio
import logging
import threading
from typing import Any

import pytest
from curlew_client import AsyncClient, Client, Handling, Hook, Message, Sending, Worker
from curlew_client.errors import CurlewError, TopicNotFound
from curlew_client.hooks import Hooks
from curlew_client.testing import TestNode
from typing_extensions import override


class Heard(Hook):
    """Writes down what it hears, and marks what is sent."""

    def __init__(self, name: str = "hook", log: "list[str] | None" = None) -> None:
        self.name = name
        self.log: list[str] = [] if log is None else log
        self.sent: list[Sending] = []
        self.handled: list[Handling] = []

    @override
    def before_send(self, sending: Sending) -> None:
        self.log.append(f"{self.name} before {sending.topic}")
        for message in sending.messages:
            message.properties = {**(message.properties or {}), "marked": self.name}

    @override
    def after_send(self, sending: Sending) -> None:
        self.log.append(f"{self.name} after {sending.topic}")
        self.sent.append(sending)

    @override
    def before_handle(self, handling: Handling) -> None:
        self.log.append(f"{self.name} handles {handling.group}")

    @override
    def after_handle(self, handling: Handling) -> None:
        self.handled.append(handling)


class Forbids(Hook):
    @override
    def before_send(self, sending: Sending) -> None:
        raise PermissionError(f"{sending.topic} is not ours")

    @override
    def before_handle(self, handling: Handling) -> None:
        raise PermissionError(f"{handling.group} is not ours")


class Fails(Hook):
    @override
    def after_send(self, sending: Sending) -> None:
        raise RuntimeError("a hook that fails")


def test_hooks_are_around_every_kind_of_send(curlew_node: TestNode) -> None:
    hook = Heard()
    with Client(curlew_node.url, hooks=[hook]) as curlew:
        curlew.admin.put_topic("hooked", queues=1)
        curlew.send("hooked", "one")
        curlew.send_batch("hooked", ["two", Message("three")])
        later = curlew.send_async("hooked", "four").result(10)
        curlew.send_oneway("hooked", "five")
        curlew.admin.put_topic("hooked-tx", queues=1, type="transaction")
        with curlew.transaction("hooked-tx", group="hooked") as tx:
            half = tx.send("six")
        stored = curlew.admin.browse_messages("hooked")["messages"]
    assert {each["properties"]["marked"] for each in stored[:4]} == {"hook"}
    of_topic = [each for each in hook.sent if each.topic == "hooked"]
    counts = {
        len(each.messages): [one.queue_offset for one in each.results or []] for each in of_topic
    }
    assert counts[2] == [1, 2]
    assert later.queue_offset in [
        one.queue_offset for each in of_topic for one in each.results or []
    ]
    assert hook.sent[-1].results == [half]
    assert len(hook.sent) == hook.log.count("hook before hooked") + 1


def test_hooks_hear_of_a_refused_send(curlew_node: TestNode) -> None:
    hook = Heard()
    with Client(curlew_node.url, hooks=[hook], idempotent=False) as curlew:
        with pytest.raises(CurlewError) as refused:
            curlew.send("hooked-refused", "one", queue_id=1_000_000)
        assert hook.sent[-1].error is refused.value
        assert hook.sent[-1].results is None


def test_a_hook_forbids_a_send_and_those_before_hear_it(curlew_node: TestNode) -> None:
    log: list[str] = []
    first, last = Heard("first", log), Heard("last", log)
    with Client(curlew_node.url, hooks=[first, Forbids(), last]) as curlew:
        for send in (curlew.send, curlew.send_async, curlew.send_oneway):
            with pytest.raises(PermissionError, match="forbidden is not ours"):
                send("forbidden", "one")
        with pytest.raises(TopicNotFound):
            curlew.admin.get_topic("forbidden")
    assert log == ["first before forbidden", "first after forbidden"] * 3
    assert isinstance(first.sent[0].error, PermissionError)


def test_a_failing_hook_is_logged_and_changes_nothing(
    curlew_node: TestNode, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), Client(curlew_node.url, hooks=[Fails()]) as curlew:
        curlew.admin.put_topic("hook-fails", queues=1)
        assert curlew.send("hook-fails", "one").queue_offset == 0
    assert "a hook that fails" in caplog.text


def test_hooks_are_around_the_handlers_of_a_worker(curlew_node: TestNode) -> None:
    hook = Heard()
    with Client(curlew_node.url, hooks=[hook]) as curlew:
        curlew.admin.put_topic("hook-work", queues=1)
        curlew.admin.put_group("hook-work", retry_policy={"customized": ["1ms"]})
        curlew.send("hook-work", "one")
        seen, done = [], threading.Event()
        worker = Worker(curlew)

        @worker.consumer("hook-work", group="hook-work")
        def handle(message: Any) -> None:
            seen.append(message.attempt)
            if message.attempt == 1:
                raise ValueError("the first time")
            done.set()

        worker.start()
        assert done.wait(20)
        worker.stop()
    assert seen == [1, 2]
    assert [str(each.error) for each in hook.handled] == ["the first time", "None"]


def test_a_hook_of_asyncio_handlers_forbids_them() -> None:
    called = []

    async def handle(message: object) -> None:
        called.append(message)

    first = Heard()
    around = Hooks([first, Forbids()]).around(handle, "billing", is_async=True)
    with pytest.raises(PermissionError):
        asyncio.run(around("message"))
    assert not called
    assert isinstance(first.handled[0].error, PermissionError)


def test_what_is_no_hook_is_refused() -> None:
    for wrong in (object(), [object()], "hook", [Hook]):
        with pytest.raises(TypeError, match="hooks is a list of"):
            Client(hooks=wrong)


def test_a_selector_chooses_the_queue(curlew_node: TestNode) -> None:
    given: list[list[int]] = []

    def last(queues: Any, message: Message) -> int:
        given.append(list(queues))
        return int(queues[-1])

    with Client(curlew_node.url) as curlew:
        curlew.admin.put_topic("selected", queues=4, write_queues=3)
        assert curlew.send("selected", "one", queue_selector=last).queue_id == 2
        assert curlew.send_async("selected", "two", queue_selector=last).result(10).queue_id == 2
        with pytest.raises(ValueError, match="chose 7"):
            curlew.send("selected", "three", queue_selector=lambda _queues, _message: 7)
        with pytest.raises(ValueError, match="each chooses the queue"):
            curlew.send("selected", "three", queue_selector=last, sharding_key="a")
        with pytest.raises(TypeError, match="queue_selector is a function"):
            curlew.send("selected", "three", queue_selector=2)  # type: ignore[arg-type]
    assert given == [[0, 1, 2], [0, 1, 2]]


def test_a_selector_with_asyncio(curlew_node: TestNode) -> None:
    async def work() -> tuple[int | None, int | None]:
        async with AsyncClient(curlew_node.url, hooks=[Heard()]) as curlew:
            await curlew.admin.put_topic("selected-async", queues=2)
            one = await curlew.send(
                "selected-async", "a", queue_selector=lambda queues, _: queues[1]
            )
            two = await curlew.send_async(
                "selected-async", "b", queue_selector=lambda queues, _: queues[1]
            )
            return one.queue_id, (await two).queue_id

    assert asyncio.run(work()) == (1, 1)

"""Hooks hear once of each send that they were asked about, whatever becomes of it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from curlew_client import AsyncClient, Client, Hook, Message, Sending
from curlew_client.errors import ClientClosed, CurlewError, TooMuchUnderWay
from curlew_client.testing import TestNode
from typing_extensions import override


class Counts(Hook):
    """Notes what begins and what ends; `changes` is made to each message."""

    def __init__(self, changes: dict[str, Any] | None = None) -> None:
        self.changes = changes or {}
        self.begun: list[Sending] = []
        self.ended: list[Sending] = []

    @override
    def before_send(self, sending: Sending) -> None:
        self.begun.append(sending)
        for message in sending.messages:
            for name, value in self.changes.items():
                setattr(message, name, value)

    @override
    def after_send(self, sending: Sending) -> None:
        self.ended.append(sending)

    def errors(self) -> list[type | None]:
        assert sorted(map(id, self.begun)) == sorted(map(id, self.ended))
        return [None if each.error is None else type(each.error) for each in self.ended]


def any_queue(queues: Any, message: Message) -> int:
    del message
    return int(queues[0])


SENDS: list[Callable[[Any], Any]] = [
    lambda client: client.send("heard", "one"),
    lambda client: client.send("heard", "one", queue_selector=any_queue),
    lambda client: client.send_batch("heard", ["one", "two"]),
    lambda client: client.send_async("heard", "one"),
    lambda client: client.send_async("heard", "one", queue_selector=any_queue),
    lambda client: client.send_oneway("heard", "one"),
]


def test_of_sends_of_a_closed_client() -> None:
    hook = Counts()
    client = Client("http://127.0.0.1:9", hooks=[hook])
    client.close()
    for send in SENDS:
        with pytest.raises(ClientClosed):
            send(client)
    assert hook.errors() == [ClientClosed] * len(SENDS)


def test_of_sends_of_a_closed_client_for_asyncio() -> None:
    hook = Counts()

    async def work() -> None:
        client = AsyncClient("http://127.0.0.1:9", hooks=[hook])
        await client.close()
        for send in SENDS:
            with pytest.raises(ClientClosed):
                await send(client)

    asyncio.run(work())
    assert hook.errors() == [ClientClosed] * len(SENDS)


def test_of_sends_that_cannot_be_made_ready() -> None:
    hook = Counts({"keys": [5]})
    client = Client("http://127.0.0.1:9", hooks=[hook])
    selectors: tuple[Any, ...] = (5, any_queue)
    for wrong in selectors:
        for send in (client.send, client.send_async):
            with pytest.raises((TypeError, ValueError)):
                send("heard", "one", queue_selector=wrong, sharding_key="a")
    with pytest.raises(AttributeError):
        client.send("heard", "one")
    with pytest.raises(TypeError):
        client.send_batch("heard", ["one"])
    with pytest.raises(TypeError, match="callback is a function"):
        _ = client.send_async("heard", "one", callback=5)  # type: ignore[arg-type]
    with pytest.raises(CurlewError, match="cannot be sent"):
        client.send_async("heard", "one").result(10)
    assert len(hook.errors()) == 7
    assert None not in hook.errors()
    client.close()


def test_of_sends_for_which_there_is_no_room() -> None:
    hook = Counts()
    client = Client(
        "http://127.0.0.1:9",
        hooks=[hook],
        timeout=0.2,
        linger=60,
        under_way_messages=1,
        batch_messages=2,
    )
    held = client.send_async("heard", "one")
    for send in (client.send_async, client.send_oneway):
        with pytest.raises(TooMuchUnderWay):
            send("heard", "two")
    assert [type(each.error) for each in hook.ended] == [TooMuchUnderWay] * 2
    client.close()
    assert held.exception(10) is not None
    assert len(hook.ended) == 3


def test_of_sends_that_are_cancelled() -> None:
    hook = Counts()

    async def work() -> None:
        client = AsyncClient(
            "http://127.0.0.1:9", hooks=[hook], linger=60, under_way_messages=1, timeout=0.2
        )
        _ = await client.send_async("heard", "one")
        for send in (client.send_async, client.send_oneway):
            waits = asyncio.ensure_future(send("heard", "two"))
            await asyncio.sleep(0)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
        assert [type(each.error) for each in hook.ended] == [asyncio.CancelledError] * 2
        await client.close()

    asyncio.run(work())
    assert len(hook.errors()) == 3


def test_a_callback_that_fails_keeps_nothing_from_the_others(curlew_node: TestNode) -> None:
    hook, told = Counts(), threading.Event()

    def fails(result: object, error: object) -> None:
        del result, error
        raise RuntimeError("a callback that fails")

    with Client(curlew_node.url, hooks=[hook], linger=0.05, batch_messages=2) as client:
        client.admin.put_topic("called-back", queues=1)
        sent = [
            client.send_async("called-back", f"{n}", sharding_key="a", callback=fails)
            for n in range(5)
        ]
        sent.append(
            client.send_async(
                "called-back", "last", sharding_key="a", callback=lambda *_: told.set()
            )
        )
        assert [each.result(10).queue_offset for each in sent] == list(range(6))
        assert told.wait(10)
    assert hook.errors() == [None] * 6

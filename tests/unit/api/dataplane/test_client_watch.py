"""Waiting for messages, and for the client that leaves meanwhile."""

import asyncio
from collections.abc import Callable

import pytest

from app.api.dataplane.client_watch import ClientWatch, unless_gone
from app.api.http.request_context import ClientGone, Event
from app.domain.access.standing import Standing
from app.domain.errors import TopicNotFound
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

DISCONNECT: Event = {"type": "http.disconnect"}


class Connection:
    """A connection that the test closes when it likes."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.is_watched = asyncio.Event()

    async def receive(self) -> Event:
        self.is_watched.set()
        await self.closed.wait()
        return DISCONNECT


def nothing_to_discard(_: object) -> None:
    raise AssertionError("there was nothing to discard")


async def test_the_result_comes_when_the_client_stays() -> None:
    async def work(_: Callable[[], bool]) -> str:
        await asyncio.sleep(0)
        return "messages"

    assert (
        await unless_gone(Connection().receive, Standing(), work, nothing_to_discard) == "messages"
    )


async def test_a_failure_of_the_work_comes_through_unwrapped() -> None:
    async def work(_: Callable[[], bool]) -> str:
        raise TopicNotFound("gone meanwhile")

    with pytest.raises(TopicNotFound):
        await unless_gone(Connection().receive, Standing(), work, nothing_to_discard)


async def test_a_client_that_leaves_ends_the_work() -> None:
    connection = Connection()
    seen: list[str] = []

    async def work(gone: Callable[[], bool]) -> str:
        assert not gone()
        await connection.is_watched.wait()
        connection.closed.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended, gone" if gone() else "ended")
        return "never"

    with pytest.raises(ClientGone):
        await unless_gone(connection.receive, Standing(), work, nothing_to_discard)
    assert seen == ["ended, gone"]


async def test_a_result_that_comes_too_late_is_discarded() -> None:
    connection = Connection()
    discarded: list[str] = []

    async def work(_: Callable[[], bool]) -> str:
        await connection.is_watched.wait()
        connection.closed.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "too late"
        return "never"

    with pytest.raises(ClientGone):
        await unless_gone(connection.receive, Standing(), work, discarded.append)
    assert discarded == ["too late"]


async def test_being_cancelled_cancels_the_work() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def work(_: Callable[[], bool]) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            unless_gone(Connection().receive, Standing(), work, nothing_to_discard)
        )
        await started.wait()
        task.cancel()
    assert task.cancelled()
    assert ended.is_set()


async def test_a_request_that_does_not_wait_does_not_watch() -> None:
    connection = Connection()
    with ClientWatch(connection.receive, Standing()) as client:
        await asyncio.sleep(0)
    assert not connection.is_watched.is_set()
    assert not client.gone()


async def test_a_client_that_leaves_ends_the_wait_and_those_that_follow() -> None:
    connection = Connection()
    waits = [asyncio.Event() for _ in range(3)]

    async def work() -> None:
        with ClientWatch(connection.receive, Standing()) as client:
            client.watch(waits[0].set)
            client.watch(waits[1].set)
            connection.closed.set()
            await waits[1].wait()
            assert client.gone()
            client.watch(waits[2].set)

    with pytest.raises(ClientGone):
        await work()
    assert [wait.is_set() for wait in waits] == [False, True, True]


async def test_nothing_watches_after_the_request() -> None:
    connection = Connection()
    before = asyncio.all_tasks()
    with ClientWatch(connection.receive, Standing()) as client:
        client.watch(asyncio.Event().set)
        await connection.is_watched.wait()
    await until(lambda: asyncio.all_tasks() == before)


async def test_a_failure_outweighs_that_the_client_has_left() -> None:
    connection, left = Connection(), asyncio.Event()
    connection.closed.set()

    async def work() -> None:
        with ClientWatch(connection.receive, Standing()) as client:
            client.watch(left.set)
            await left.wait()
            raise TopicNotFound("gone meanwhile")

    with pytest.raises(TopicNotFound):
        await work()

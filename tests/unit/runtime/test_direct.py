"""A coroutine that begins without a task, and becomes one when it must."""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context, ContextVar

import pytest
from typing_extensions import override

from app.runtime.direct import DirectRun, Resumable, Run, has_task, in_task
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

_OF_WHOM: ContextVar[str] = ContextVar("of_whom", default="nobody")


class Bell(Resumable):
    """Rings when it is told to."""

    def __init__(self) -> None:
        self.ring: Callable[[], None] | None = None

    @override
    def then(self, go_on: Callable[[], None]) -> None:
        self.ring = go_on

    def __await__(self) -> Generator[Resumable, None, None]:
        yield self


class Started:
    """Runs coroutines from a callback of the loop, as a protocol does; keeps their tasks."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, run: Run) -> None:
        loop = asyncio.get_running_loop()

        def start_task(rest: Run, context: Context) -> None:
            self.tasks.append(loop.create_task(rest, context=context))

        loop.call_soon(DirectRun(run, start_task).go_on)


async def test_it_needs_no_task_for_what_calls_back() -> None:
    started, bell, seen = Started(), Bell(), list[object]()

    async def run() -> None:
        seen.append(has_task())
        await bell
        seen.append(has_task())

    started.start(run())
    await until(lambda: bell.ring is not None)
    assert seen == [False]
    assert bell.ring is not None
    asyncio.get_running_loop().call_soon(bell.ring)
    await until(lambda: len(seen) == 2)
    assert seen == [False, False]
    assert not started.tasks


async def test_it_goes_on_as_a_task_from_its_first_other_wait_on() -> None:
    started, seen = Started(), list[object]()
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        seen.append(await future)
        async with asyncio.timeout(10):  # needs a task
            await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    started.start(run())
    await until(lambda: bool(started.tasks))
    future.set_result("here")
    await until(lambda: len(seen) == 2)
    assert seen == ["here", started.tasks[0]]


async def test_a_failure_that_is_waited_for_reaches_the_coroutine() -> None:
    started, seen = Started(), list[object]()
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            await future
        except ZeroDivisionError:
            seen.append("failed")
        await asyncio.sleep(0)
        seen.append("over")

    started.start(run())
    await until(lambda: bool(started.tasks))
    future.set_exception(ZeroDivisionError())
    await started.tasks[0]
    assert seen == ["failed", "over"]


async def test_a_cancellation_reaches_the_coroutine_and_what_it_waits_for() -> None:
    started, seen = Started(), list[object]()
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            await future
        finally:
            seen.append("cleaned up")

    started.start(run())
    await until(lambda: bool(started.tasks))
    await asyncio.sleep(0)
    started.tasks[0].cancel()
    await asyncio.wait(started.tasks)
    assert started.tasks[0].cancelled()
    assert future.cancelled()
    assert seen == ["cleaned up"]


async def test_who_needs_a_task_gets_one() -> None:
    started, seen = Started(), list[object]()

    async def run() -> None:
        await in_task()
        seen.append(asyncio.current_task())
        await in_task()
        seen.append(asyncio.current_task())

    started.start(run())
    await until(lambda: len(seen) == 2)
    assert seen == [started.tasks[0]] * 2


async def test_what_resumes_it_leaves_nothing_of_its_context() -> None:
    """Neither the first step, nor one behind a wait, nor the task that is left of it."""
    started, bell, seen = Started(), Bell(), list[str]()

    async def run() -> None:
        seen.append(_OF_WHOM.get())
        await bell
        seen.append(_OF_WHOM.get())
        _OF_WHOM.set("own")
        await asyncio.sleep(0)
        seen.append(_OF_WHOM.get())

    _OF_WHOM.set("another")
    started.start(run())
    await until(lambda: len(seen) == 1)
    assert bell.ring is not None
    bell.ring()
    await until(lambda: len(seen) == 3)
    assert seen == ["nobody", "nobody", "own"]
    assert _OF_WHOM.get() == "another"


async def test_what_it_raises_is_raised_to_whoever_goes_on() -> None:
    async def run() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        DirectRun(run(), lambda _, __: None).go_on()

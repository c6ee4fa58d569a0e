"""A term whose broker begins while too few replicas are in sync: from when on nothing is taken."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.cluster.replication.terms import Term
from app.domain.message import Message
from app.replica.leadership import LeaderHooks, Leadership
from app.replica.ports import WarmState
from app.store import MessageStore, StepPart

pytestmark = pytest.mark.anyio

TOO_FEW = "1 more would have to answer"


class NoStore:
    """Of which only the term's own topic is trimmed."""

    def trim(self, *_: object) -> None: ...

    def bounds(self, *_: object) -> Any:
        return type("Bounds", (), {"max_offset": 1})


def leading(on_serve: Callable[[], object]) -> Leadership:
    async def serve(_term: Term, _store: MessageStore, _warm: WarmState) -> None:
        await asyncio.sleep(0)
        on_serve()

    async def step_down(_reason: str) -> None: ...

    block = StepPart("rmq_sys_terms", 0, [Message(b"")])
    made = Leadership(Term(3, 7), LeaderHooks(serve, step_down), block, 10, _ignore, _ignore)
    made.store = NoStore()  # type: ignore[assignment]
    return made


def _ignore(*_: object) -> None: ...


async def test_the_broker_begins_and_nothing_is_taken_from_when_it_is_there() -> None:
    seen: list[str | None] = []

    def on_serve() -> None:
        seen.append(made.gate.too_few)
        asyncio.get_running_loop().call_soon(lambda: seen.append(made.gate.too_few))

    made = leading(on_serve)
    made.refuse_while(TOO_FEW)
    made.serve()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [None, TOO_FEW], "a request of the next turn is refused"
    made.refuse_while(None)
    assert made.gate.too_few is None
    made.refuse_while(TOO_FEW)
    assert made.gate.too_few == TOO_FEW


async def test_messages_are_refused_while_replicas_that_are_needed_are_full() -> None:
    said: list[str | None] = []
    made = leading(lambda: None)
    made.store.refuse_for_replicas = said.append  # type: ignore[assignment, method-assign]
    made.take_no_messages_while_full(("b", "c"))
    made.take_no_messages_while_full(())
    assert said == ["the disk of b, c is full", None]

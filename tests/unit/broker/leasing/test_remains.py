"""What closed tables held is let go over many turns, and is nobody's from the first one on."""

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from app.broker.leasing.holders import Holder, InFlight
from app.broker.leasing.lease_table import LeaseTable
from app.broker.leasing.remains import Remains
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def full_table(in_flight: InFlight, holder: Holder, count: int) -> LeaseTable:
    table = LeaseTable(in_flight)
    for lease in table.grant(range(count), 1, 10.0):
        lease.holder, lease.size = holder, 1
    holder.take(count, count)
    return table


async def test_what_is_much_is_let_go_over_many_turns() -> None:
    in_flight = InFlight()
    holder, told = Holder(in_flight), asyncio.Event()
    table = full_table(in_flight, holder, 100_000)
    Remains().take(table.detach(), told.set)
    assert table.is_empty
    assert in_flight.count == 0
    assert table.get(7, 8, 1.0) is None
    assert 0 < holder.count < 100_000
    seen = {holder.count}
    while not told.is_set():
        await asyncio.sleep(0)
        seen.add(holder.count)
    assert len(seen) > 10
    assert (holder.count, holder.bytes, in_flight.bytes) == (0, 0, 0)


async def test_what_is_little_is_let_go_at_once() -> None:
    in_flight = InFlight()
    holder, told = Holder(in_flight), asyncio.Event()
    Remains().take(full_table(in_flight, holder, 300).detach(), told.set)
    assert holder.count == 0
    assert told.is_set()


async def test_many_that_are_little_have_one_turn_between_them() -> None:
    remains, in_flight = Remains(), InFlight()
    holders = [Holder(in_flight) for _ in range(50)]
    for holder in holders:
        remains.take(full_table(in_flight, holder, 3_000).detach())
    assert sum(holder.count for holder in holders) > 140_000
    await until(lambda: not any(holder.count for holder in holders))


async def test_all_that_was_taken_is_let_go_also_after_a_failure() -> None:
    remains, in_flight = Remains(), InFlight()
    holders = [Holder(in_flight) for _ in range(3)]
    told: list[int] = []

    def broken() -> Iterator[None]:
        yield
        raise ValueError("not this one")

    loop, failures = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
    for number, holder in enumerate(holders):
        table = full_table(in_flight, holder, 10_000)
        remains.take(table.detach(), partial(told.append, number))
        remains.take(broken())
    await until(lambda: not remains._left)
    assert [holder.count for holder in holders] == [0, 0, 0]
    assert told == [0, 1, 2]
    assert len(failures) == 3

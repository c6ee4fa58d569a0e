"""Who is listed, for how long, and how many at most."""

import pytest

from app.broker.figures.clients import Caller, ClientTable
from app.domain.limits import CLIENT_SHOWN_MS, CLIENT_TOPICS_SHOWN_MAX, CLIENTS_LISTED_MAX
from app.domain.settings import GroupSettings
from tests.support.nodes.brokers import GROUP, running
from tests.support.stores.clock import FakeClock


def see(table: ClientTable, scope: str, name: str, count: int = 1) -> None:
    table.see(scope, (name, "receive"), "receive", Caller("10.0.0.1", "curl/8"), count)


def names(table: ClientTable, scope: str) -> list[str]:
    return [key[0] for key in table.rows(scope)]


def test_a_client_goes_when_it_was_silent_for_long() -> None:
    clock = FakeClock()
    table = ClientTable(clock, 10)
    see(table, "g", "old")
    see(table, "g", "busy")
    clock.advance(ms=CLIENT_SHOWN_MS - 1)
    see(table, "g", "busy")
    assert names(table, "g") == ["old", "busy"]
    clock.advance(ms=1)
    assert names(table, "g") == ["busy"]
    clock.advance(ms=CLIENT_SHOWN_MS)
    table.expire()
    assert (table.count, table.all()) == (0, {})


def test_of_too_many_the_one_that_was_silent_for_longest_gives_way() -> None:
    table = ClientTable(FakeClock(), 100_000)
    for number in range(CLIENTS_LISTED_MAX):
        see(table, "g", f"c{number}")
    see(table, "g", "c0")
    see(table, "g", "new")
    found = names(table, "g")
    assert len(found) == table.count == CLIENTS_LISTED_MAX
    assert "c1" not in found
    assert {"c0", "new"} <= set(found)


def test_all_groups_together_have_a_bound_and_a_new_one_takes_no_row_of_another() -> None:
    table = ClientTable(FakeClock(), 3)
    for name in ("a", "b", "c", "d"):
        see(table, "g", name)
    see(table, "h", "e")
    assert names(table, "g") == ["b", "c", "d"]
    assert names(table, "h") == []
    assert table.count == 3
    table.forget("g")
    see(table, "h", "e")
    assert (names(table, "h"), table.count) == (["e"], 1)


def test_a_rate_is_that_of_late() -> None:
    clock = FakeClock()
    table = ClientTable(clock, 3)
    see(table, "g", "a", 600)
    clock.advance(s=10)
    see(table, "g", "a", 0)
    row = table.rows("g")["a", "receive"]
    assert row.rate_per_s(clock.now_ms()) == 60
    clock.advance(s=100)
    see(table, "g", "a", 300)
    clock.advance(s=50)
    assert row.rate_per_s(clock.now_ms()) == 2


@pytest.mark.anyio
async def test_topics_of_a_client_are_the_last_and_a_deleted_group_has_no_clients() -> None:
    async with running() as world:
        clients = world.broker.clients
        caller = Caller("10.0.0.1", "curl/8")
        clients.consumes(GROUP, {"orders": None}, "receive", "w", caller)
        assert clients.consumers.rows(GROUP) == {}, "there is no such group"
        await world.group(GroupSettings())
        for number in range(CLIENT_TOPICS_SHOWN_MAX + 1):
            clients.consumes(GROUP, {f"t{number}": None}, "receive", "w", caller)
        (row,) = clients.consumers.rows(GROUP).values()
        assert len(row.topics) == CLIENT_TOPICS_SHOWN_MAX
        assert "t0" not in row.topics
        await world.broker.settings_changes.delete_group(GROUP)
        assert clients.consumers.rows(GROUP) == {}


def test_who_asks_often_is_read_anew_once_a_turn_and_for_each_topic() -> None:
    clock = FakeClock()
    table = ClientTable(clock, 3)
    key = ("a", "receive")
    assert not table.touch("g", key, 1, "orders")
    see(table, "g", "a")
    row = table.rows("g")[key]
    assert not table.touch("g", key, 1, "orders"), "not seen for this topic"
    row.topics["orders"] = None
    assert table.touch("g", key, 4, "orders")
    assert row.count == 5
    table.expire()
    assert not table.touch("g", key, 1, "orders")
    clock.advance(s=5)
    see(table, "g", "a")
    assert table.touch("g", key, 1, "orders")
    assert (row.count, row.last_seen_ms) == (7, clock.now_ms())

"""One principal's bodies leave others room."""

import pytest

from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import RequestContext
from app.domain.access.caller import Known
from app.domain.errors import SystemBusy
from app.domain.limits import Limits

MOST = 1_000
BUDGET = Limits(batch_bytes_max=300, body_bytes_max=300, bodies_in_flight_bytes_max=MOST)


def held_for(name: str | None, budget: MemoryBudget) -> RequestContext:
    async def nothing(*_: object) -> None: ...

    scope = {"type": "http", "method": "POST", "path": "/", "raw_path": b"/", "headers": []}
    found = RequestContext(scope, nothing, nothing, b"id", budget)  # type: ignore[arg-type]
    if name is not None:
        found.caller = Known(None, name)  # type: ignore[arg-type]
    return found


def test_a_principal_holds_three_quarters_at_most() -> None:
    budget = MemoryBudget(BUDGET)
    loud = held_for("red", budget)
    loud.hold(700)
    with pytest.raises(SystemBusy, match="700 bytes of request bodies of principal 'red'"):
        held_for("red", budget).hold(51)
    quiet = held_for("blue", budget)
    quiet.hold(250)
    with pytest.raises(SystemBusy, match="950 bytes of request bodies are in flight"):
        held_for("green", budget).hold(51)
    assert budget.refused_count == 2
    loud.let_go()
    quiet.let_go()
    assert budget.body_bytes == 0
    held_for("red", budget).hold(750)


def test_a_packed_batch_has_room_where_bodies_have_the_least() -> None:
    """It is there twice while it is unpacked."""
    limits = Limits(batch_bytes_max=500, body_bytes_max=500, bodies_in_flight_bytes_max=MOST)
    budget = MemoryBudget(limits)
    batch = held_for("red", budget)
    batch.hold(500)
    batch.hold(500)
    with pytest.raises(SystemBusy):
        held_for("red", budget).hold(1)


def test_who_has_no_name_may_have_all() -> None:
    budget = MemoryBudget(BUDGET)
    held_for(None, budget).hold(MOST)
    with pytest.raises(SystemBusy):
        held_for(None, budget).hold(1)

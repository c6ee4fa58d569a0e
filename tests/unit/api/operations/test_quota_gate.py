"""Each operation of the data plane that may be asked to wait counts in the quota of those that do;
those of the control plane count by their query. What the look into a body holds is given back. The
rest is tested over HTTP."""

import gzip

import pytest

from app.api.control.operation_list import OPERATIONS
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import WHOLE_BODY, Event, RequestContext
from app.api.operations.quota_gate import QuotaGate
from app.api.quotas.quotas import Quotas, QuotaSettings
from app.api.telemetry.request_metrics import RequestMetrics
from app.domain.access.caller import Caller
from app.domain.errors import SystemBusy
from app.domain.limits import Limits
from tests.support.clients.asgi import events_of, http_scope
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio


class _Ann(Caller):
    name = "ann"


PACKED = gzip.compress(b'{"wait":20,"attempt_id":"' + b"a" * 100_000 + b'"}')


def gate_and_request(limits: Limits) -> tuple[QuotaGate, RequestContext, RequestMetrics]:
    """A gate, and a receive that waits, whose body is packed and was let in."""
    traffic = RequestMetrics()
    quotas = Quotas(QuotaSettings(parked_polls=1), FakeClock().monotonic_s)

    async def send(_: Event) -> None:
        raise AssertionError

    headers = [(b"content-encoding", b"gzip")]
    scope = http_scope("POST", "/v1/topics/orders/groups/g/messages:receive", headers, b"")
    scope[WHOLE_BODY] = PACKED
    exchange = RequestContext(scope, events_of(), send, b"1", MemoryBudget(limits))
    exchange.caller = _Ann()
    quotas.admit(exchange, "ann", None)
    return QuotaGate(quotas, limits, traffic), exchange, traffic


async def test_a_body_that_was_unpacked_for_a_look_is_not_held_for_the_wait() -> None:
    gate, exchange, traffic = gate_and_request(Limits())
    exchange.hold(7)
    await gate.park(exchange, "body")
    assert traffic.parked_polls == 1
    assert (exchange.held_bytes, exchange.pressure.body_bytes) == (7, 7)
    assert exchange.scope[WHOLE_BODY] is PACKED


async def test_without_memory_for_a_look_it_is_refused_and_not_let_in_uncounted() -> None:
    limits = Limits()
    gate, exchange, traffic = gate_and_request(limits)
    exchange.pressure.hold(limits.bodies_in_flight_bytes_max - 1_000)
    with pytest.raises(SystemBusy):
        await gate.park(exchange, "body")
    assert (traffic.parked_polls, exchange.held_bytes) == (0, 0)


def test_whatever_takes_a_wait_counts() -> None:
    takes = {each.operation_id for each in OPERATIONS if "wait" in each.query}
    counted = {each.operation_id: each.waits for each in OPERATIONS if each.waits}
    assert takes == set(counted)
    assert counted == {
        "receive_messages": "body",
        "poll_queues": "body",
        "pull_messages": "head",
        "request_reply": "always",
    }

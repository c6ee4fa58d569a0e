"""The Python client behind a proxy that stops in the middle of requests or answers, goes on later,
or is replaced: nothing lost, nothing doubled (G10, G21).

A message that its client has given up may come late, and is not taken for another one.

Control: `test_kills.py` shows that the judge sees what is lost, doubled, or stored though it was
said not to be.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.faults.hanging_proxy import Place, hanging_proxy
from tests.client.faults.load_worker import AT_ONCE
from tests.client.faults.test_kills import PRODUCERS, begin, come_to_rest_and_judge, go_on
from tests.history.events import Sent
from tests.history.load import Load, running_load
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.crash

PATIENT_CONNECTIONS = 1 + AT_ONCE + 1
"""Of `send`, `gather` and `batch`, which wait until they have their answers."""


def given_up(load: Load) -> int:
    """How many messages the one in a hurry does not know the end of."""
    sent = [event for event in load.so_far("p-hurry") if isinstance(event, Sent)]
    return sum(event.outcome == "unknown" for event in sent)


@pytest.mark.parametrize("place", ["requests", "answers"])
def test_a_hanging_proxy_loses_and_doubles_nothing(place: Place, tmp_path: Path) -> None:
    producers = (*PRODUCERS, "hurry")
    with (
        running_load(tmp_path, order="concurrent") as load,
        hanging_proxy(load.port) as proxy,
    ):
        begin(load, "work", producers=producers, port=proxy.port)
        go_on(load)
        wait_until(lambda: bool(load.so_far("p-hurry")))
        ends: list[Callable[[], None]] = [proxy.go_on, proxy.be_replaced]
        for end in ends:
            wanted = given_up(load) + 2 * AT_ONCE
            proxy.hang(place)
            wait_until(lambda: proxy.hung >= PATIENT_CONNECTIONS + 2 * AT_ONCE)
            wait_until(lambda: given_up(load) >= wanted)  # noqa: B023
            end()
            go_on(load)
        late = come_to_rest_and_judge(load, "worker", producers=producers)
    assert late, "the node had messages that their client had given up"

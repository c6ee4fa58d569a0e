"""Whom a shard is handed over to, and why not."""

from dataclasses import replace
from typing import Final

import pytest

from app.domain.errors import HandOverRefused
from app.replica.hand_over import successor
from app.replica.replica_status import NOTHING, MemberStatus, ReplicaStatus, Role

FIT: Final = MemberStatus("b", True, None, 100, 100, 0, 0, True)
AHEAD: Final = replace(FIT, node="c", written=200)
BEHIND: Final = replace(
    FIT, node="d", is_in_sync=False, why_not="40 bytes are missing", lag_bytes=40, lag_ms=900
)


def led(*members: MemberStatus, role: Role = Role.LEADER) -> ReplicaStatus:
    return replace(NOTHING, role=role, members=members)


def refused(status: ReplicaStatus, node: str | None) -> HandOverRefused:
    with pytest.raises(HandOverRefused) as raised:
        successor("orders", "a", status, node)
    assert raised.value.fields["shard"] == "orders"
    return raised.value


def test_the_named_one_or_who_has_most() -> None:
    status = led(FIT, AHEAD, BEHIND)
    assert successor("orders", "a", status, "b") == "b"
    assert successor("orders", "a", status, None) == "c"
    assert successor("orders", "a", led(FIT, replace(AHEAD, would_rest=True)), None) == "b"
    silent = replace(AHEAD, written=None)
    assert successor("orders", "a", led(FIT, silent), None) == "b"


def test_of_a_leader_whose_clock_is_off_one_whose_clock_is_too_is_taken_last() -> None:
    off = replace(AHEAD, is_clock_off=True)
    assert successor("orders", "a", led(FIT, off), None) == "b"
    status = replace(led(replace(FIT, is_clock_off=True), off), is_clock_off=True)
    assert successor("orders", "a", status, None) == "c"
    assert successor("orders", "a", status, "b") == "b"


def test_who_leads_already_changes_nothing() -> None:
    assert successor("orders", "a", led(FIT), "a") == "a"


def test_one_that_is_behind_is_refused_with_how_far() -> None:
    error = refused(led(FIT, BEHIND), "d")
    assert error.detail == (
        "the shard 'orders' is not handed over to d: the node is not in sync: 40 bytes are missing"
    )
    found = {name: error.fields[name] for name in ("node", "reason", "lag_bytes", "lag_ms")}
    assert found == {"node": "d", "reason": "not_in_sync", "lag_bytes": 40, "lag_ms": 900}


@pytest.mark.parametrize(
    ("status", "node", "reason"),
    [
        (led(), "b", "one_replica"),
        (led(FIT), "z", "not_a_member"),
        (led(replace(FIT, is_connected=False)), "b", "not_connected"),
        (led(replace(FIT, would_rest=True)), "b", "could_not_lead"),
        (led(replace(FIT, has_room=False)), "b", "no_room"),
        (led(replace(FIT, is_clock_off=True)), "b", "clock_apart"),
        (led(BEHIND, replace(FIT, is_connected=False)), None, "none_in_sync"),
        (led(FIT, role=Role.TAKING_OVER), "b", "taking_over"),
        (led(FIT, role=Role.TAKING_OVER), None, "taking_over"),
    ],
)
def test_why_not(status: ReplicaStatus, node: str | None, reason: str) -> None:
    error = refused(status, node)
    assert error.fields["reason"] == reason
    assert error.hint

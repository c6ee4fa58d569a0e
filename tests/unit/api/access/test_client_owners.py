"""Whose client ids are, and that nobody makes those of others forgotten."""

import pytest
from typing_extensions import override

from app.api.access import client_owners
from app.api.access.client_owners import ClientOwners
from app.domain.access.caller import Caller
from app.domain.access.refusals import NotPermitted
from app.domain.access.standing import Standing
from app.domain.limits import Limits
from tests.support.stores.clock import FakeClock

G = "g"


class Named(Caller):
    """Who may nothing to the group itself."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @override
    def require(self, *_: object) -> None:
        raise NotPermitted("UPDATE is needed")


def named(name: str) -> Standing:
    return Standing(Named(name))


def test_one_who_names_many_clients_loses_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_owners, "CLIENTS_OF_A_PRINCIPAL_MAX", 5)
    clock = FakeClock()
    owners = ClientOwners(clock, Limits(clients_max=8))
    owners.claim(named("ann"), G, "worker")
    for number in range(50):
        owners.claim(named("eve"), G, f"c{number}")
    assert len(owners) == 6
    with pytest.raises(NotPermitted):
        owners.claim(named("eve"), G, "worker")
    owners.claim(named("ann"), G, "worker")
    owners.claim(named("ann"), G, "c0")
    with pytest.raises(NotPermitted):
        owners.claim(named("ann"), G, "c49")


def test_where_all_are_used_the_newcomer_makes_room_by_its_own() -> None:
    clock = FakeClock()
    owners = ClientOwners(clock, Limits(clients_max=3))
    for name in ("ann", "bob", "eve"):
        owners.claim(named(name), G, name)
    for number in range(9):
        owners.claim(named("eve"), G, f"c{number}")
    for name in ("ann", "bob"):
        with pytest.raises(NotPermitted):
            owners.claim(named("eve"), G, name)
    clock.advance(ms=Limits().member_lease_ms)
    owners.claim(named("eve"), G, "more")
    owners.claim(named("eve"), G, "ann")


def test_a_client_is_anybodys_when_it_left_or_was_silent_for_a_lease() -> None:
    clock = FakeClock()
    owners = ClientOwners(clock, Limits())
    owners.claim(named("ann"), G, "one")
    owners.claim(named("ann"), G, "two")
    owners.release(G, "one")
    owners.claim(named("bob"), G, "one")
    clock.advance(ms=Limits().member_lease_ms)
    owners.claim(named("bob"), G, "two")
    owners.release(G, "two")
    owners.release(G, "one")
    owners.release(G, "one")
    assert len(owners) == 0
    assert not owners._of

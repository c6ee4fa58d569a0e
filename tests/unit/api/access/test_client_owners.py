"""Whose client ids are, and that nobody makes those of others forgotten."""

from dataclasses import replace

import pytest
from typing_extensions import override

from app.api.access import client_owners
from app.api.access.client_owners import ClientOwners
from app.domain.access.caller import Caller
from app.domain.access.refusals import NotPermitted
from app.domain.access.standing import Standing
from app.domain.consumers.membership import Member, Membership, Profile
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


def test_a_client_is_anybodys_when_it_was_silent_for_a_lease() -> None:
    clock = FakeClock()
    owners = ClientOwners(clock, Limits())
    owners.claim(named("ann"), G, "one")
    owners.claim(named("ann"), G, "two")
    clock.advance(ms=Limits().member_lease_ms - 1)
    owners.claim(named("ann"), G, "one")
    clock.advance(ms=1)
    owners.claim(named("bob"), G, "two")
    with pytest.raises(NotPermitted):
        owners.claim(named("bob"), G, "one")
    clock.advance(ms=Limits().member_lease_ms)
    owners.claim(named("bob"), G, "one")
    assert dict(owners._of) == {"bob": {(G, "two"): None, (G, "one"): None}}
    assert len(owners) == 2


class Seen:
    """A group's members, of which this node hears when it looks."""

    def __init__(self) -> None:
        self.looks = 0
        self._last = Membership(G)

    def joins(self, client_id: str, name: str) -> None:
        member = Member(client_id, Profile((), principal=name), 0, 0, 1, 0, 1)
        self._last = replace(self._last, members={client_id: member})

    def last(self, group: str) -> Membership:
        assert group == G
        return self._last

    async def catch_up(self, group: str) -> None:
        assert group == G
        self.looks += 1


@pytest.mark.anyio
async def test_who_used_a_client_id_first_is_not_the_member_that_joins_elsewhere() -> None:
    seen = Seen()
    owners = ClientOwners(FakeClock(), Limits(), lambda: seen, lambda: {G})
    for _ in range(3):
        await owners.claim_member(named("eve"), G, "worker")
    assert seen.looks == 1, "and then it is known here"
    seen.joins("worker", "ann")
    for _ in range(2):
        with pytest.raises(NotPermitted):
            await owners.claim_member(named("eve"), G, "worker")
    for _ in range(3):
        await owners.claim_member(named("ann"), G, "worker")
    assert seen.looks == 4

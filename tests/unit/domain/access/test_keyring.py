"""How old what is known of keys and policies may be."""

from app.domain.access.keyring import PolicyAge
from app.domain.limits import POLICY_FRESH_S
from tests.support.stores.clock import FakeClock


def test_without_a_bound_a_node_goes_on_and_changes_nothing() -> None:
    clock = FakeClock()
    age = PolicyAge(clock.monotonic_s)
    clock.advance(s=POLICY_FRESH_S)
    assert not age.look(is_closed=True)
    assert not age.is_stale
    clock.advance(s=1)
    age.look(is_closed=True)
    assert (age.is_stale, age.is_over) == (True, False)
    clock.advance(s=10**6)
    assert not age.look(is_closed=True)
    assert not age.is_over
    age.renew()
    assert (age.is_stale, age.seconds) == (False, 0)


def test_a_bound_ends_it_once_until_the_database_answers() -> None:
    clock = FakeClock()
    age = PolicyAge(clock.monotonic_s)
    age.max_s = 60
    clock.advance(s=61)
    assert age.look(is_closed=True)
    assert age.is_over
    assert not age.look(is_closed=True), "it is told once"
    assert "61 s" in age.refusal().detail
    age.renew()
    assert not age.is_over


def test_a_node_that_asks_for_no_keys_knows_nothing_that_could_be_old() -> None:
    clock = FakeClock()
    age = PolicyAge(clock.monotonic_s)
    age.max_s = 1
    clock.advance(s=100)
    assert not age.look(is_closed=False)
    assert (age.is_stale, age.is_over) == (False, False)

"""Sessions of browsers: they end, and there are no more than so many."""

from app.domain.limits import UI_SESSION_S, UI_SESSIONS_MAX, UI_SESSIONS_OF_A_PRINCIPAL_MAX
from app.web.serving.sessions import Sessions
from tests.support.stores.clock import FakeClock


def test_a_session_is_found_by_its_name_until_it_ends() -> None:
    clock = FakeClock()
    sessions = Sessions(clock)
    name = sessions.begin(b"key", "alice")
    found = sessions.find(name)
    assert found is not None
    assert (found.key, found.principal) == (b"key", "alice")
    assert sessions.find(name + "x") is None
    assert sessions.find(None) is None
    clock.advance(s=UI_SESSION_S)
    assert sessions.find(name) is None


def test_of_too_many_the_oldest_goes() -> None:
    sessions = Sessions(FakeClock())
    names = [sessions.begin(b"key", f"p{number}") for number in range(UI_SESSIONS_MAX + 1)]
    assert sessions.find(names[0]) is None
    assert sessions.find(names[1]) is not None
    assert sessions.find(names[-1]) is not None


def test_a_session_that_was_signed_out_is_none() -> None:
    sessions = Sessions(FakeClock())
    name = sessions.begin(b"key", "alice")
    sessions.end(name)
    sessions.end(None)
    assert sessions.find(name) is None


def test_who_signs_in_again_and_again_signs_nobody_else_out() -> None:
    sessions = Sessions(FakeClock())
    bob = sessions.begin(b"other", "bob")
    count = UI_SESSIONS_OF_A_PRINCIPAL_MAX + 1
    names = [sessions.begin(b"key", "alice") for _ in range(count)]
    assert sessions.find(names[0]) is None
    assert sessions.find(names[1]) is not None
    for _ in range(UI_SESSIONS_MAX):
        sessions.begin(b"key", "alice")
    assert sessions.find(bob) is not None

"""`Prefer` headers: what is understood of them, and what is said to have been done."""

import pytest

from app.api.formats.prefer_header import MINIMAL, STRICT, applied, preferences_of, wait_of
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import Headers, RequestContext
from app.domain.limits import Limits
from tests.support.clients.asgi import events_of, http_scope


async def nowhere(_: object) -> None:
    raise AssertionError


def asking(*prefer: bytes) -> RequestContext:
    headers = [(b"prefer", value) for value in prefer]
    scope = http_scope("GET", "/", headers, b"")
    return RequestContext(scope, events_of(), nowhere, b"1", MemoryBudget(Limits()))


def test_preferences_are_read_whatever_their_case_quotes_and_parameters() -> None:
    preferences = preferences_of(
        asking(b'Return=minimal, handling = "strict"; x=1', b"respond-async")
    )
    assert preferences == {"return=minimal", "handling=strict", "respond-async"}


def test_of_a_preference_that_is_given_twice_the_first_counts() -> None:
    assert preferences_of(asking(b"wait=1, wait=2", b"wait=3")) == {"wait=1"}


def test_only_what_was_honoured_is_said_to_be() -> None:
    preferences = preferences_of(asking(b"return=minimal, handling=lenient"))
    assert applied([], preferences, MINIMAL, STRICT) == [(b"preference-applied", b"return=minimal")]
    assert applied([], preferences_of(asking()), MINIMAL) == []


@pytest.mark.parametrize(
    ("prefer", "seconds", "said"),
    [
        (b"wait=5", 5.0, b"wait=5"),
        (b"WAIT = 0", 0.0, b"wait=0"),
        (b"wait=99999", 60.0, b"wait=60"),
        (b"wait=-1", 0.0, None),
        (b"wait=soon", 0.0, None),
        (b"wait=1111111111", 0.0, None),
        (b"wait", 0.0, None),
    ],
)
def test_a_wait_is_shortened_to_the_bound(
    prefer: bytes, seconds: float, said: bytes | None
) -> None:
    headers: Headers = [] if said is None else [(b"preference-applied", said)]
    assert wait_of(asking(prefer), None, 60) == (seconds, headers)


def test_a_wait_that_is_given_outweighs_the_preference() -> None:
    assert wait_of(asking(b"wait=5"), 0.0, 60) == (0.0, [])

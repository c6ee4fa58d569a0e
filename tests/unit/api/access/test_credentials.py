"""How a key comes in a request, and what is none."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from app.api.access.credentials import Credentials
from app.api.http.request_context import Certificate, ConnectionMemory
from app.domain.access.evaluator import Principal
from app.domain.access.keyring import Keyring, KnownKey, PolicyAge
from app.domain.access.keys import KEY_ID_BYTES, KEY_SECRET_BYTES, digest_of, make_key
from app.domain.access.refusals import PolicyTooOld, Unauthorized
from app.domain.positions import TimestampMs
from tests.support.stores.clock import FakeClock
from tests.unit.runtime.secure.test_tokens import World

KEY = make_key(bytes(KEY_ID_BYTES), bytes(KEY_SECRET_BYTES)).text.encode()
OTHER = make_key(bytes(KEY_ID_BYTES), b"\x01" * KEY_SECRET_BYTES).text.encode()


class Source:
    """Holds a keyring."""

    def __init__(self, keyring: Keyring) -> None:
        self.keyring = keyring
        self.age = PolicyAge(lambda: 0.0)
        self.waiting: set[Callable[[], object]] = set()
        self.used_keys: set[str] = set()


def credentials(clock: FakeClock, expires_ms: int | None = None) -> Credentials:
    expires = None if expires_ms is None else TimestampMs(expires_ms)
    known = {digest_of(KEY): KnownKey("ann", "1", expires)}
    return Credentials(Source(Keyring(True, known, 1)), clock)


def basic(text: bytes) -> bytes:
    return b"Basic " + base64.b64encode(text)


@pytest.mark.parametrize(
    "header",
    [
        b"Bearer " + KEY,
        b"Bearer  " + KEY + b" ",
        b"bearer  " + KEY + b" ",
        b"BEARER " + KEY,
        basic(b":" + KEY),
        basic(b"anybody:" + KEY),
        basic(KEY + b":"),
    ],
)
def test_a_key_is_found(header: bytes) -> None:
    assert credentials(FakeClock()).check(header).name == "ann"


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        KEY,
        b"Bearer " + OTHER,
        b"Bearer " + KEY[:-1],
        b"Bearer " + KEY + b"0",
        b"Bearer " + KEY + b" " + KEY,
        b"Token " + KEY,
        b"Basic ",
        b"Basic " + KEY,
        b"Basic ****",
        basic(KEY),
        basic(b":"),
        basic(KEY + b":wrong"),
        b"Bearer \xff\xfe",
        b"Bearer " + b"x" * 32_768,
    ],
)
def test_what_is_no_key_of_ours_is_refused_with_the_way_to_send_one(header: bytes) -> None:
    with pytest.raises(Unauthorized) as caught:
        credentials(FakeClock()).check(header)
    assert "Authorization: Bearer" in str(caught.value.hint)
    assert KEY.decode() not in caught.value.detail


def test_without_a_header_nobody_is_served() -> None:
    with pytest.raises(Unauthorized):
        credentials(FakeClock()).check(None)


def test_a_key_works_until_it_expires_without_a_refresh() -> None:
    clock = FakeClock()
    asked = credentials(clock, clock.now_ms() + 1_000)
    assert asked.check(b"Bearer " + KEY).is_live
    clock.advance(ms=1_000)
    with pytest.raises(Unauthorized):
        asked.check(b"Bearer " + KEY)


def test_a_connection_that_shows_its_key_again_is_compared_each_time() -> None:
    clock = FakeClock()
    asked, memory = credentials(clock, clock.now_ms() + 1_000), ConnectionMemory()
    first = asked.check(b"Bearer " + KEY, memory=memory)
    assert asked.check(b"Bearer " + KEY, memory=memory) is first
    for wrong in (b"Bearer " + OTHER, b"Bearer " + KEY[:-1]):
        with pytest.raises(Unauthorized):
            asked.check(wrong, memory=memory)
    with pytest.raises(Unauthorized):
        asked.check(None, memory=memory)
    asked.source.age.is_over = True
    with pytest.raises(PolicyTooOld):
        asked.check(b"Bearer " + KEY, memory=memory)
    asked.source.age.is_over = False
    clock.advance(ms=1_000)
    with pytest.raises(Unauthorized):
        asked.check(b"Bearer " + KEY, memory=memory)


def test_what_a_connection_remembers_ends_with_what_is_known() -> None:
    asked, memory = credentials(FakeClock()), ConnectionMemory()
    asked.check(b"Bearer " + KEY, memory=memory)
    source = asked.source
    assert isinstance(source, Source)
    source.keyring = Keyring(True, {}, 2)
    with pytest.raises(Unauthorized):
        asked.check(b"Bearer " + KEY, memory=memory)


def test_a_key_that_is_shown_again_was_used_again() -> None:
    asked, memory = credentials(FakeClock()), ConnectionMemory()
    for _ in range(2):
        asked.source.used_keys.clear()
        asked.check(b"Bearer " + KEY, memory=memory)
        assert asked.source.used_keys == {"1"}


def test_each_request_with_a_token_or_certificate_is_of_one_caller(tmp_path: Path) -> None:
    world = World(tmp_path)
    known = {"billing": Principal("billing", ("consumer",))}
    source = Source(Keyring(True, {}, 1, known))
    named = {"DNS:billing.example": "billing"}
    asked = Credentials(source, world.clock, world.verifier, named)
    header = b"Bearer " + world.token()
    shown = Certificate(("DNS:billing.example",), TimestampMs(world.clock.now_ms() + 1_000))
    first, second = asked.check(header), asked.check(None, shown)
    assert asked.check(header) is first, "what is decided is remembered with its caller"
    assert asked.check(None, shown) is second
    assert asked.check(b"Bearer " + world.token("ec")) is not first
    source.keyring = Keyring(True, {}, 2, known)
    assert asked.check(header) is not first
    assert asked.check(None, shown) is not second

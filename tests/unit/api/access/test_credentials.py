"""How a key comes in a request, and what is none."""

import base64
from collections.abc import Callable

import pytest

from app.api.access.credentials import Credentials
from app.domain.access.keyring import Keyring, KnownKey, PolicyAge
from app.domain.access.keys import KEY_ID_BYTES, KEY_SECRET_BYTES, digest_of, make_key
from app.domain.access.refusals import Unauthorized
from app.domain.positions import TimestampMs
from tests.support.stores.clock import FakeClock

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
        b"bearer  " + KEY + b" ",
        b"BEARER " + KEY,
        basic(b":" + KEY),
        basic(b"anybody:" + KEY),
        basic(KEY + b":"),
    ],
)
def test_a_key_is_found(header: bytes) -> None:
    assert credentials(FakeClock()).check({b"authorization": header}).name == "ann"


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
        credentials(FakeClock()).check({b"authorization": header})
    assert "Authorization: Bearer" in str(caught.value.hint)
    assert KEY.decode() not in caught.value.detail


def test_without_a_header_nobody_is_served() -> None:
    with pytest.raises(Unauthorized):
        credentials(FakeClock()).check({})


def test_a_key_works_until_it_expires_without_a_refresh() -> None:
    clock = FakeClock()
    asked = credentials(clock, clock.now_ms() + 1_000)
    assert asked.check({b"authorization": b"Bearer " + KEY}).is_live
    clock.advance(ms=1_000)
    with pytest.raises(Unauthorized):
        asked.check({b"authorization": b"Bearer " + KEY})

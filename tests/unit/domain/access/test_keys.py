"""API keys: their form, their check sum, and what is kept of them."""

import hashlib

import pytest

from app.domain.access.keys import (
    KEY_ID_BYTES,
    KEY_SECRET_BYTES,
    digest_of,
    key_id_of,
    make_key,
)

KEY = make_key(bytes(range(KEY_ID_BYTES)), bytes(range(KEY_SECRET_BYTES)))


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_the_least_and_the_greatest_have_the_form_of_all(byte: bytes) -> None:
    key = make_key(byte * KEY_ID_BYTES, byte * KEY_SECRET_BYTES)
    assert len(key.text) == len(KEY.text) == 70
    assert key_id_of(key.text) == key.key_id
    assert key.text.startswith(f"curlew_{key.key_id}_")


def test_other_bytes_make_another_key() -> None:
    secrets = [bytes([*bytes(KEY_SECRET_BYTES - 1), last]) for last in range(256)]
    assert len({make_key(bytes(KEY_ID_BYTES), each).text for each in secrets}) == 256


@pytest.mark.parametrize("place", range(len("curlew_"), len(KEY.text)))
def test_one_wrong_character_anywhere_is_known_without_a_look_up(place: int) -> None:
    wrong = "A" if KEY.text[place] != "A" else "B"
    assert key_id_of(KEY.text[:place] + wrong + KEY.text[place + 1 :]) is None


@pytest.mark.parametrize("text", ["", "curlew_", KEY.text[:-1], KEY.text + "0", " " + KEY.text])
def test_what_is_no_key_has_no_id(text: str) -> None:
    assert key_id_of(text) is None


def test_of_a_key_its_digest_is_kept() -> None:
    assert digest_of(KEY.text.encode()) == hashlib.sha256(KEY.text.encode()).digest()

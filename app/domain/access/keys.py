"""API keys, `curlew_<id>_<secret>`: how they are written, read, and told apart. Pure.

The secret is 32 random bytes and ends in a check sum, so that a mistyped key is known as such
without a look-up, and scanners for leaked secrets can tell keys from other text. Both parts are in
base62, in which the separator does not occur. Only `digest_of` a key is ever stored: of 256 random
bits no dictionary can be made.
"""

import hashlib
import re
import zlib
from typing import Final, NamedTuple

KEY_ID_BYTES: Final = 9
KEY_SECRET_BYTES: Final = 32

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_CHARS: Final = 13  # 62 ** 13 > 256 ** 9
_SECRET_CHARS: Final = 43  # 62 ** 43 > 256 ** 32
_SUM_CHARS: Final = 6  # 62 ** 6 > 256 ** 4
_KEY: Final = re.compile(
    rf"curlew_([0-9A-Za-z]{{{_ID_CHARS}}})_([0-9A-Za-z]{{{_SECRET_CHARS + _SUM_CHARS}}})"
)


class NewKey(NamedTuple):
    """A key as its owner gets it, once."""

    key_id: str
    text: str


def make_key(random_id: bytes, random_secret: bytes) -> NewKey:
    """The key of these random bytes, `KEY_ID_BYTES` and `KEY_SECRET_BYTES` of them."""
    assert len(random_id) == KEY_ID_BYTES, "an id has its length"
    assert len(random_secret) == KEY_SECRET_BYTES, "a secret has its length"
    key_id = _base62(int.from_bytes(random_id), _ID_CHARS)
    secret = _base62(int.from_bytes(random_secret), _SECRET_CHARS)
    return NewKey(key_id, f"curlew_{key_id}_{secret}{_check_sum(key_id, secret)}")


def key_id_of(text: str) -> str | None:
    """The id of a key; None when `text` is none, or was mistyped."""
    found = _KEY.fullmatch(text)
    if found is None:
        return None
    key_id, secret = found[1], found[2]
    right = _check_sum(key_id, secret[:_SECRET_CHARS])
    return key_id if secret[_SECRET_CHARS:] == right else None


def digest_of(key: bytes) -> bytes:
    """What is stored of a key, and what it is found by: 32 bytes. `Keyring.find` has it inline."""
    return hashlib.sha256(key).digest()


def _check_sum(key_id: str, secret: str) -> str:
    return _base62(zlib.crc32(f"{key_id}_{secret}".encode()), _SUM_CHARS)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))

"""Receipt handles: what goes in comes out, and nothing else is ever accepted."""

import string
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.errors import InvalidReceiptHandle
from app.domain.handles.receipt import (
    ATTEMPT_MAX,
    MAC_BYTES_MIN,
    ReceiptHandle,
    ReceiptSigner,
    receipt_prefix,
)

KEY = bytes(range(32))
SHARD = b"curl"
SIGNER = ReceiptSigner(KEY, SHARD)
NAMES = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=127)
HANDLES = st.builds(
    ReceiptHandle,
    topic=NAMES,
    group=NAMES,
    queue_id=st.integers(0, 2**32 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    lease_id=st.integers(0, 2**64 - 1),
    attempt=st.integers(1, ATTEMPT_MAX),
    is_first=st.booleans(),
    expires_monotonic_ms=st.integers(0, 2**47 - 1),
)
NAMES_START = 7
"""Behind the version, the lengths of the two names and the shard, in bytes."""
FIXED_BYTES = 28
"""Between the names and the signature."""
ONE = ReceiptHandle("orders", "billing", 3, 88_121, 7 << 40, 1, True, 30_000)


def issue(handle: ReceiptHandle, signer: ReceiptSigner = SIGNER) -> str:
    return signer.issue(receipt_prefix(handle.topic, handle.group, SHARD), *handle[2:])


@settings(deadline=None)
@given(HANDLES)
def test_what_goes_in_comes_out(handle: ReceiptHandle) -> None:
    text = issue(handle)
    assert SIGNER.read(text) == handle
    assert set(text) <= set(string.ascii_letters + string.digits + "_-")


@settings(deadline=None)
@given(HANDLES)
def test_the_signature_is_a_keyed_blake2b(handle: ReceiptHandle) -> None:
    raw = urlsafe_b64decode(issue(handle))
    names = handle.topic.encode() + handle.group.encode()
    end = NAMES_START + len(names) + FIXED_BYTES
    assert raw[NAMES_START:].startswith(names)
    mac = raw[end:]
    assert len(mac) >= MAC_BYTES_MIN
    assert (
        mac == blake2b(raw[:end], key=KEY, digest_size=len(mac), person=b"curlew receipt").digest()
    )


def test_handles_are_short() -> None:
    assert len(issue(ONE)) == 88
    assert len(issue(ONE._replace(topic="t" * 20, group="g" * 19))) <= 120


def test_a_high_attempt_saturates() -> None:
    assert SIGNER.read(issue(ONE._replace(attempt=70_000))).attempt == ATTEMPT_MAX


def test_an_end_that_no_clock_reaches_saturates() -> None:
    said = SIGNER.read(issue(ONE._replace(expires_monotonic_ms=2**60)))
    assert (said.expires_monotonic_ms, said.is_first) == (2**47 - 1, True)


def test_another_shard_s_handle_is_refused_by_name() -> None:
    """The key is the cluster's, so the signature alone would let it settle another message."""
    with pytest.raises(InvalidReceiptHandle, match=f"of shard {SHARD.hex()}, which is not here"):
        ReceiptSigner(KEY, b"else").read(issue(ONE))


def test_a_handle_of_the_last_version_is_of_a_lease_that_has_ended() -> None:
    names = b"\x02\x06\x07ordersbilling"
    payload = names + struct.pack(">IqQHBQ", 3, 88_121, 1_700_000_000_000 << 20, 2, 1, 30_000)
    size = MAC_BYTES_MIN + (-len(payload) - MAC_BYTES_MIN) % 3
    mac = blake2b(payload, key=KEY, digest_size=size, person=b"curlew receipt").digest()
    said = SIGNER.read(urlsafe_b64encode(payload + mac).decode())
    assert said == ReceiptHandle("orders", "billing", 3, 88_121, 0, 2, False, 0)


@settings(deadline=None)
@given(HANDLES)
def test_every_truncation_is_refused(handle: ReceiptHandle) -> None:
    text = issue(handle)
    for end in range(len(text)):
        with pytest.raises(InvalidReceiptHandle):
            SIGNER.read(text[:end])


def test_every_flipped_bit_is_refused() -> None:
    text = issue(ONE)
    raw = urlsafe_b64decode(text)
    for bit in range(8 * len(raw)):
        forged = bytearray(raw)
        forged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidReceiptHandle):
            SIGNER.read(urlsafe_b64encode(forged).rstrip(b"=").decode())


def test_every_other_character_is_refused() -> None:
    """Also those that Base64 would take for the same bytes."""
    text = issue(ONE)
    for index, char in enumerate(text):
        for other in string.ascii_letters + string.digits + "_-+/=. \n\u00e9":
            if other != char:
                with pytest.raises(InvalidReceiptHandle):
                    SIGNER.read(text[:index] + other + text[index + 1 :])


@pytest.mark.parametrize("suffix", ["=", "==", "A", "AAAA", "\n", " "])
def test_nothing_may_be_added(suffix: str) -> None:
    with pytest.raises(InvalidReceiptHandle):
        SIGNER.read(issue(ONE) + suffix)


@settings(deadline=None)
@given(st.one_of(st.text(max_size=200), st.text(string.ascii_letters, max_size=600)))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidReceiptHandle):
        SIGNER.read(text)


def test_another_cluster_s_handle_is_refused() -> None:
    with pytest.raises(InvalidReceiptHandle):
        SIGNER.read(issue(ONE, ReceiptSigner(bytes(32), SHARD)))


def test_an_unknown_version_is_refused_though_it_is_signed() -> None:
    prefix = bytearray(receipt_prefix("orders", "billing", SHARD))
    prefix[0] = 1
    with pytest.raises(InvalidReceiptHandle):
        SIGNER.read(SIGNER.issue(bytes(prefix), *ONE[2:]))

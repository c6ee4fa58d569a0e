"""Recall handles: what goes in comes out, of this shard only."""

from base64 import urlsafe_b64encode
from hmac import digest
from struct import pack

import pytest

from app.domain.errors import InvalidRecallHandle
from app.domain.handles.recall import RecallHandle, RecallSigner

KEY = bytes(range(32))
SHARD = b"curl"
SIGNER = RecallSigner(KEY, SHARD)
ONE = RecallHandle("orders", 88_121, 1_700_000_000_000, "01" + "AB" * 16)


def signed(payload: bytes) -> str:
    mac = digest(KEY, payload, "sha256")[:16]
    return urlsafe_b64encode(payload + mac).rstrip(b"=").decode()


def test_what_goes_in_comes_out() -> None:
    assert SIGNER.read(SIGNER.issue(ONE)) == ONE


def test_another_shard_s_handle_is_refused_by_name() -> None:
    """It has the same key, and names an offset of another timer topic."""
    with pytest.raises(InvalidRecallHandle, match=f"of shard {SHARD.hex()}, which is not here"):
        RecallSigner(KEY, b"else").read(SIGNER.issue(ONE))


def test_a_handle_of_the_last_version_names_no_shard_and_is_read_on() -> None:
    """Messages wait for weeks, and whoever sent them has their handles."""
    payload = pack(">BQQB", 1, ONE.offset, ONE.due_ms, 6) + b"orders" + ONE.message_id.encode()
    assert SIGNER.read(signed(payload)) == ONE


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x03" + bytes(60)])
def test_what_is_signed_and_no_handle_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidRecallHandle):
        SIGNER.read(signed(payload))


def test_a_changed_handle_is_refused() -> None:
    text = SIGNER.issue(ONE)
    for at in range(len(text)):
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        with pytest.raises(InvalidRecallHandle):
            SIGNER.read(changed)

"""State files: inversion, golden bytes, and that damage makes them as good as none."""

import google_crc32c
import pytest

from app.store.formats.files import state_file
from app.store.formats.files.state_file import (
    HEADER,
    KIND_CHECKPOINT,
    KIND_META,
    Checkpoint,
    QueueState,
    StateFileError,
    StoreMeta,
)

META = StoreMeta("a1b2c3d4", 1 << 28, 300_000, 1_700_000_000_000)
CHECKPOINT = Checkpoint(
    4096, 1_700_000_000_000, True, (QueueState("orders", 3, 10, 20, 8, b"\1\2\3\4"),)
)


def test_decoding_inverts_encoding() -> None:
    assert state_file.decode_meta(state_file.encode_state(KIND_META, META)) == META
    data = state_file.encode_state(KIND_CHECKPOINT, CHECKPOINT)
    assert state_file.decode_checkpoint(data) == CHECKPOINT


def test_golden_bytes_pin_the_format() -> None:
    data = state_file.encode_state(KIND_CHECKPOINT, CHECKPOINT)
    assert data[:12] == b"CRLK\0\0\0\1\0\0\0\x6f"
    assert data[16:] == (
        b'{"dispatched_end":4096,"store_time_ms":1700000000000,"clean":true,'
        b'"queues":[["orders",3,10,20,8,"AQIDBA==",0]]}'
    )


def test_a_checkpoint_without_sums_is_still_read() -> None:
    document = (
        b'{"dispatched_end":4096,"store_time_ms":1700000000000,"clean":true,'
        b'"queues":[["orders",3,10,20]]}'
    )
    head = HEADER.pack(KIND_CHECKPOINT, 1, len(document), google_crc32c.value(document))
    assert state_file.decode_checkpoint(head + document).queues == (
        QueueState("orders", 3, 10, 20),
    )


def test_every_flipped_bit_and_every_truncation_is_noticed() -> None:
    data = bytearray(state_file.encode_state(KIND_CHECKPOINT, CHECKPOINT))
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StateFileError):
            state_file.decode_checkpoint(bytes(data))
        data[bit // 8] ^= 1 << bit % 8
    for size in range(len(data)):
        with pytest.raises(StateFileError):
            state_file.decode_checkpoint(bytes(data[:size]))


def test_one_kind_is_not_taken_for_another() -> None:
    with pytest.raises(StateFileError, match="kind"):
        state_file.decode_checkpoint(state_file.encode_state(KIND_META, META))

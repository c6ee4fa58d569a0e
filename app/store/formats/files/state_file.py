"""Small state files (store meta, checkpoint): a checksummed JSON document.

    0   kind       4   "CRLM" store meta, "CRLK" checkpoint
    4   version    4
    8   length     4   of the document
    12  checksum   4   CRC-32C of the document
    16  document       JSON

Big-endian. Written whole and atomically by the store; a file that does not check out is as good
as none, and the reader falls back to what the log says.
"""

import struct
from typing import Final, TypeVar

import google_crc32c
import msgspec

HEADER: Final = struct.Struct(">4sIII")
VERSION: Final = 1
KIND_META: Final = b"CRLM"
KIND_CHECKPOINT: Final = b"CRLK"


class StateFileError(ValueError):
    """The bytes are not an intact state file of the kind that was asked for."""


class StoreMeta(msgspec.Struct, frozen=True):
    """What never changes in the life of a store. Sizes in bytes."""

    store_id: str
    """Eight hexadecimal digits."""
    segment_bytes: int
    queue_file_units: int
    created_ms: int
    index_slots: int = 500_000
    index_entries: int = 2_000_000
    unchecked_end: int = 0
    """Below this physical offset records may lack the whole-record checksum (RocketMQ's)."""


class QueueState(msgspec.Struct, frozen=True, array_like=True):
    """One queue at a checkpoint; bounds are queue offsets, `max_offset` is one past.

    Checkpoints of version 0.1 have no sums; then the units are not checked.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    sums_from: int = 0
    """First unit that `sums` cover; they end at `max_offset`."""
    sums: bytes = b""
    """CRC-32C of each block of 4,096 units; blocks begin anew with each file."""
    generation: int = 0
    """Of the topic; 0: not known, or a name without generations. -1: of a deleted one."""


class IndexFileState(msgspec.Struct, frozen=True, array_like=True):
    """One key index file at a checkpoint. Times in ms, offsets physical."""

    name: str
    next_entry: int
    entries_crc: int
    """CRC-32C of the entries from number 1 on."""
    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything below `dispatched_end` is in the queues, and both are on the medium."""

    dispatched_end: int
    store_time_ms: int
    clean: bool
    """True: the node stopped in order and the log ends at `dispatched_end`."""
    queues: tuple[QueueState, ...]
    indexed_end: int = 0
    """The same for the key index."""
    index_files: tuple[IndexFileState, ...] = ()
    boot_id: str = ""
    """Of the machine's start that wrote it; empty when unknown."""


_State = TypeVar("_State", bound=msgspec.Struct)


def encode_state(kind: bytes, document: StoreMeta | Checkpoint) -> bytes:
    """The bytes of a state file."""
    return encode_document(kind, document)


def encode_document(kind: bytes, document: msgspec.Struct) -> bytes:
    """The bytes of a state file of any kind."""
    payload = msgspec.json.encode(document)
    return HEADER.pack(kind, VERSION, len(payload), google_crc32c.value(payload)) + payload


def decode_meta(data: bytes) -> StoreMeta:
    """The store meta in `data`, or `StateFileError`."""
    return decode_document(KIND_META, data, StoreMeta)


def decode_checkpoint(data: bytes) -> Checkpoint:
    """The checkpoint in `data`, or `StateFileError`."""
    return decode_document(KIND_CHECKPOINT, data, Checkpoint)


def decode_document(kind: bytes, data: bytes, document: type[_State]) -> _State:
    """The document of a kind in `data`, or `StateFileError`."""
    if len(data) < HEADER.size:
        raise StateFileError(f"only {len(data)} bytes")
    found, version, length, checksum = HEADER.unpack_from(data)
    payload = data[HEADER.size :]
    if found != kind:
        raise StateFileError(f"kind {found!r} where {kind!r} was expected")
    if version != VERSION:
        raise StateFileError(f"version {version}; this program reads version {VERSION}")
    if length != len(payload) or checksum != google_crc32c.value(payload):
        raise StateFileError("the checksum does not match")
    try:
        return msgspec.json.decode(payload, type=document)
    except msgspec.DecodeError as error:
        raise StateFileError(str(error)) from error

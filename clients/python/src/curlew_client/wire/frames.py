"""Batch frames of requests: many messages of one topic in one piece. Pure.

The bytes are those of docs/reference/batch-frame.md; the frame's checksum is CRC-32 (flag 8).
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Final

CONTENT_TYPE: Final = "application/vnd.curlew.batch"

_HEADER: Final = struct.Struct(">4sBBHIIqq")
_CRC32: Final = 8
_HEAD: Final = struct.Struct(">II4xIi20xq36xI")
"""Size, magic, queue id, flag, born time, length of the body; what is left out is zero."""
_MAGIC: Final = 0xDAA320A7
_EMPTY_CHECKSUM: Final = b"__CRC32#\x010000000000\x02"
_FIXED_BYTES: Final = 88 + 1 + 2 + len(_EMPTY_CHECKSUM)
PROPERTIES_BYTES_MAX: Final = 32_767


class RecordMaker:
    """Makes the records of one topic."""

    __slots__ = ("_topic",)

    def __init__(self, topic: str) -> None:
        name = topic.encode()
        self._topic = bytes([len(name)]) + name

    def make(self, body: bytes, properties: bytes, flag: int = 0, born_ms: int = 0) -> bytes:
        """A record; `properties` as of `encode_properties`."""
        topic = self._topic
        tail_bytes = len(properties) + len(_EMPTY_CHECKSUM)
        if tail_bytes > PROPERTIES_BYTES_MAX:
            raise ValueError(f"the properties have {tail_bytes} bytes; at most 32767 fit")
        size = _FIXED_BYTES - 1 + len(body) + len(topic) + len(properties)
        head = _HEAD.pack(size, _MAGIC, 0, flag, born_ms, len(body))
        tail = tail_bytes.to_bytes(2, "big")
        return b"".join((head, body, topic, tail, properties, _EMPTY_CHECKSUM))

    def frame_of_bodies(self, bodies: Sequence[bytes]) -> bytes:
        """The frame of messages that are bodies and nothing else, made in one pass.

        The bytes are those of `encode_frame` of their records; no Python code runs per message.
        """
        lengths = list(map(len, bodies))
        tail = self._topic + len(_EMPTY_CHECKSUM).to_bytes(2, "big") + _EMPTY_CHECKSUM
        beside = _HEAD.size + len(tail)
        heads = {n: _HEAD.pack(beside + n, _MAGIC, 0, 0, 0, n) for n in set(lengths)}
        pieces = zip(map(heads.__getitem__, lengths), bodies, repeat(tail))
        return _framed(map(beside.__add__, lengths), len(lengths), chain.from_iterable(pieces))


def encode_properties(
    tag: str | None,
    keys: Sequence[str],
    properties: dict[str, str] | None,
    content_type: str | None,
    unique_id: str | None = None,
) -> bytes:
    """The properties of a message as they stand in a record."""
    pairs = []
    if tag:
        pairs.append(f"TAGS\x01{tag}\x02")
    if keys:
        pairs.append(f"KEYS\x01{' '.join(keys)}\x02")
    if unique_id:
        pairs.append(f"UNIQ_KEY\x01{unique_id}\x02")
    if content_type:
        pairs.append(f"MQ_CONTENT_TYPE\x01{content_type}\x02")
    if properties:
        pairs += [f"{name}\x01{value}\x02" for name, value in properties.items()]
    return "".join(pairs).encode()


def encode_frame(records: Sequence[bytes]) -> bytes:
    """The frame of 1 to 10,000 records."""
    return _framed(map(len, records), len(records), records)


def _framed(sizes: Iterable[int], count: int, pieces: Iterable[bytes]) -> bytes:
    rest = b"".join((struct.pack(f">{count}I", *sizes), *pieces))
    length = len(rest) - 4 * count
    header = _HEADER.pack(b"CRLW", 1, _CRC32, 0, count, zlib.crc32(rest), 0, length)
    return header + rest

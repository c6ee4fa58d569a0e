"""Small stores as RocketMQ 4.9.8 wrote them, built from their published numbers.

`store6` and `store200` give the bytes of every file by path. The builder shares no code with
`app.store`, so that a format cannot be wrong on both sides. Where the real files are at hand
(`golden`), a test holds the builder to them byte for byte.
"""

import itertools
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

GOLDEN = Path(__file__).parents[4] / "shared" / "golden"
T0 = 1_700_000_000_000
BORN_HOST = bytes((10, 1, 2, 3)) + (54321).to_bytes(4)
STORE_HOST = bytes((192, 168, 0, 9)) + (10911).to_bytes(4)
SLOTS, ENTRIES = 100, 1000


class Sent(NamedTuple):
    """A message of the golden stores."""

    offset: int
    topic: str
    queue_id: int
    queue_offset: int
    tag: str | None
    keys: str | None
    body: bytes
    time: int
    unique_key: str

    @property
    def properties(self) -> bytes:
        pairs = [("u", "v"), ("KEYS", self.keys), ("UNIQ_KEY", self.unique_key), ("TAGS", self.tag)]
        return "\x02".join(f"{n}\x01{v}" for n, v in pairs if v is not None).encode()

    @property
    def size(self) -> int:
        return 91 + len(self.body) + len(self.topic) + len(self.properties)


def unique_key(low: int) -> str:
    return f"AC1415116D1418B4AAC217FE1B4E{low:04X}"


STORE6 = [
    Sent(0, "TopicA", 0, 0, "TagA", "k1 k2", b"hello", T0, unique_key(0x6800)),
    Sent(168, "TopicA", 0, 1, "TagB", "k3", b"world!!", T0 + 1000, unique_key(0x6BE8)),
    Sent(335, "TopicA", 1, 0, None, None, "你好".encode(), T0 + 2500, unique_key(0x71C4)),
    Sent(483, "TopicB", 0, 0, "TagA", "k1", b"x" * 300, T0 + 3000, unique_key(0x73B8)),
    Sent(1024, "TopicA", 0, 2, "TagA", "Aa", b"y" * 300, T0 + 4000, unique_key(0x77A0)),
    Sent(1484, "TopicA", 0, 3, "TagA", "BB", b"last", T0 + 65000, unique_key(0x65E8)),
]
STORE6_SIZES = [168, 167, 148, 460, 460, 164]
STORE6_TAG_HASHES = [2598919, 2598920, 0, 2598919, 2598919, 2598919]
STORE6_SLOTS = {3: 12, 15: 9, 21: 7, 47: 5, 48: 3, 49: 2, 58: 8, 72: 1, 96: 11}
STORE6_ENTRIES = [
    (1851728772, 0, 0, 0),
    (1903240649, 0, 0, 0),
    (1903240648, 0, 0, 0),
    (1851718503, 168, 1, 0),
    (1903240647, 168, 1, 0),
    (1851705115, 335, 2, 0),
    (826211221, 483, 3, 0),
    (1903210858, 483, 3, 0),
    (1851699415, 1024, 4, 6),
    (1903241903, 1024, 4, 4),
    (1851730996, 1484, 65, 0),
    (1903241903, 1484, 65, 10),
]
STORE6_INDEX_HEADER = (T0, T0 + 65000, 0, 1484, 9, 13)
STORE6_RECORD_1 = bytes.fromhex(
    "000000a8daa320a73610a6860000000000000007000000000000000000000000000000000000000"
    "00000018bcfe567fb0a0102030000d4310000018bcfe56800c0a8000900002a9f00000000000000"
    "00000000000000000568656c6c6f06546f706963410042"
)


def store200_messages() -> list[Sent]:
    """200 messages, in two queues by turns, 10 ms apart."""
    sent, offset = [], 0
    for i in range(200):
        body = bytes((ord("a") + i % 26,)) * (50 + i % 40)
        key = unique_key(0x6800 + 10 * i)
        message = Sent(
            offset, "TopicA", i % 2, i // 2, f"Tag{i % 3}", f"key{i}", body, T0 + 10 * i, key
        )
        sent.append(message)
        offset += message.size
    return sent


def java_hash(text: str) -> int:
    """Java's String.hashCode, written once more."""
    value = 0
    for unit in struct.iter_unpack(">H", text.encode("utf-16-be")):
        value = (31 * value + unit[0]) % 2**32
    return value - 2**32 if value >= 2**31 else value


def record(message: Sent) -> bytes:
    head = struct.pack(
        ">IIIIIqqIq",
        message.size,
        0xDAA320A7,
        zlib.crc32(message.body) & 0x7FFFFFFF,
        message.queue_id,
        7,
        message.queue_offset,
        message.offset,
        0,
        message.time - 5,
    )
    head += BORN_HOST + struct.pack(">q", message.time) + STORE_HOST + struct.pack(">Iq", 0, 0)
    head += struct.pack(">I", len(message.body)) + message.body
    topic, properties = message.topic.encode(), message.properties
    return head + bytes((len(topic),)) + topic + struct.pack(">H", len(properties)) + properties


def build_log(messages: list[Sent], segment_bytes: int) -> dict[str, bytes]:
    segments: dict[int, bytearray] = {}
    for message in messages:
        base = message.offset - message.offset % segment_bytes
        data = segments.setdefault(base, bytearray(segment_bytes))
        at = message.offset - base
        data[at : at + message.size] = record(message)
    for message, following in itertools.pairwise(messages):
        end = message.offset + message.size
        if following.offset != end:
            blank = struct.pack(">II", following.offset - end, 0xCBD43194)
            at = end % segment_bytes
            segments[end - at][at : at + 8] = blank
    return {f"commitlog/{base:020d}": bytes(data) for base, data in segments.items()}


def build_queues(messages: list[Sent], file_bytes: int) -> dict[str, bytes]:
    """Queue files; all units of a queue must fit in its first file."""
    files: dict[str, bytearray] = {}
    for message in messages:
        path = f"consumequeue/{message.topic}/{message.queue_id}/{0:020d}"
        tag_hash = java_hash(message.tag) if message.tag else 0
        data = files.setdefault(path, bytearray(file_bytes))
        struct.pack_into(
            ">qiq", data, 20 * message.queue_offset, message.offset, message.size, tag_hash
        )
    return {path: bytes(data) for path, data in files.items()}


def build_index(messages: list[Sent]) -> bytes:
    slots: dict[int, int] = {}
    entries = [bytes(20)]
    for message in messages:
        for key in (message.unique_key, *(message.keys or "").split()):
            hashed = abs(java_hash(f"{message.topic}#{key}"))
            slot = hashed % SLOTS
            seconds = (message.time - messages[0].time) // 1000
            entries.append(
                struct.pack(">iqii", hashed, message.offset, seconds, slots.get(slot, 0))
            )
            slots[slot] = len(entries) - 1
    head = struct.pack(">qqqqii", messages[0].time, messages[-1].time, messages[0].offset,
                       messages[-1].offset, len(slots), len(entries))  # fmt: skip
    table = b"".join(struct.pack(">i", slots.get(slot, 0)) for slot in range(SLOTS))
    return (head + table + b"".join(entries)).ljust(40 + 4 * SLOTS + 20 * ENTRIES, b"\0")


def build_checkpoint(messages: list[Sent]) -> bytes:
    return struct.pack(">qqq", messages[-1].time, messages[-1].time, 0).ljust(4096, b"\0")


def store6() -> dict[str, bytes]:
    return {
        **build_log(STORE6, 1024),
        **build_queues(STORE6, 200),
        "checkpoint": build_checkpoint(STORE6),
        "index/20261121093631002": build_index(STORE6),
    }


def store200() -> dict[str, bytes]:
    messages = store200_messages()
    return {
        **build_log(messages, 65536),
        **build_queues(messages, 2000),
        "checkpoint": build_checkpoint(messages),
        "index/20261121094130570": build_index(messages),
    }


def golden(name: str) -> dict[str, bytes] | None:
    """The real files, when they are at hand."""
    root = GOLDEN / name
    if not root.is_dir():
        return None
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }

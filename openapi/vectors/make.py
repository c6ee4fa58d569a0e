"""Writes batch-frames.json: `python openapi/vectors/make.py > openapi/vectors/batch-frames.json`.

By `struct` and `zlib` alone, so that nothing of the server, the reader or the Spark connector goes
into what all three are held to. A vector is added here and never changed: that would be version 2.
"""

import base64
import json
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

TOPIC = "orders"
HOST_V4 = bytes([127, 0, 0, 1]) + struct.pack(">I", 8710)
HOST_V6 = bytes.fromhex("20010db8000000000000000000000001") + struct.pack(">I", 8710)
STORED_MS = 1_700_000_000_500
EVERY_BYTE = bytes(range(256))


def crc32c(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def java_hash(text: str) -> int:
    value = 0
    units = struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be"))
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def record(
    body: bytes,
    properties: dict[str, str],
    *,
    topic: str = TOPIC,
    born_ms: int = 0,
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    stored: bool = False,
    v6: bool = False,
    text: bytes | None = None,
) -> bytes:
    """A record as a producer makes it or, `stored`, as it stands in the log."""
    name = topic.encode()
    wide = len(name) > 127
    if text is None:
        text = "".join(f"{key}\1{value}\2" for key, value in properties.items()).encode()
    hosts = ([HOST_V6, HOST_V6] if v6 else [HOST_V4, HOST_V4]) if stored else [bytes(8), bytes(8)]
    rest = struct.pack(">H" if wide else ">B", len(name)) + name
    rest += struct.pack(">H", len(text) + 20) + text
    head = struct.pack(">I", 0xDAA320AB if wide else 0xDAA320A7)
    head += struct.pack(">I", zlib.crc32(body) & 0x7FFFFFFF if stored else 0)
    head += struct.pack(">IIqqI", queue_id, 0, queue_offset, physical_offset, 0x30 if v6 else 0)
    head += struct.pack(">q", born_ms) + hosts[0]
    head += struct.pack(">q", STORED_MS if stored else 0) + hosts[1]
    head += struct.pack(">IqI", 0, 0, len(body))
    whole = struct.pack(">I", 4 + len(head) + len(body) + len(rest) + 20) + head + body + rest
    digits = f"{zlib.crc32(whole) & 0x7FFFFFFF if stored else 0:010d}"[::-1]
    return whole + f"__CRC32#\1{digits}\2".encode()


def frame(
    records: list[bytes],
    *,
    flags: int = 0,
    first: int = 0,
    hashes: list[int] | None = None,
    times: list[int] | None = None,
    version: int = 1,
    sizes: list[int] | None = None,
) -> bytes:
    block = b"".join(records)
    rest = b"".join(struct.pack(">I", size) for size in sizes or map(len, records))
    if hashes is not None:
        flags |= 4
        rest += b"".join(struct.pack(">q", value) for value in hashes)
    if times is not None:
        flags |= 32
        rest += b"".join(struct.pack(">q", value) for value in times)
    rest += block
    checksum = (zlib.crc32 if flags & 8 else crc32c)(rest)
    head = struct.pack(">4sBBHII", b"CRLW", version, flags, 0, len(records), checksum)
    return head + struct.pack(">qq", first, len(block)) + rest


MESSAGES: list[tuple[str, bytes, dict[str, str], int]] = [
    ("text with a tag", b"hello", {"TAGS": "created"}, 1_700_000_000_000),
    ("every byte value", EVERY_BYTE, {}, 1_700_000_000_001),
    ("empty body", b"", {"KEYS": "order-17 customer-4"}, 1_700_000_000_002),
    (
        "all that has a meaning",
        b'{"id": 17}',
        {
            "KEYS": "k",
            "UNIQ_KEY": "AC1415116D1418B4AAC217FE1B4E6800",
            "TAGS": "paid",
            "__SHARDINGKEY": "customer-4",
            "MQ_CONTENT_TYPE": "application/json",
            "region": "eu",
        },
        1_700_000_000_003,
    ),
    (
        "UTF-8",
        "grüße 漢 \U0001f980".encode(),
        {"TAGS": "größe", "Ключ": "значение \U0001f980"},
        1_700_000_000_004,
    ),
]


def meaning(body: bytes, properties: dict[str, str], born_ms: int, **more: int) -> Json:
    """A record in JSON: `properties` as they stand in it, but for the checksum."""
    encoded = base64.b64encode(body).decode()
    return {
        "topic": TOPIC,
        "body_base64": encoded,
        "properties": properties,
        "born_time_ms": born_ms,
        **more,
    }


def good_requests() -> list[Json]:
    records = [record(body, props, born_ms=born) for _, body, props, born in MESSAGES]
    meanings = [meaning(body, props, born) for _, body, props, born in MESSAGES]
    hashes = [java_hash(props.get("TAGS", "")) for _, _, props, _ in MESSAGES]
    vectors = [
        ("request: " + name, frame([raw]), [each])
        for (name, *_), raw, each in zip(MESSAGES, records, meanings, strict=True)
    ]
    vectors.append(("request: five records", frame(records), meanings))
    vectors.append(("request: five records, tag hashes", frame(records, hashes=hashes), meanings))
    vectors.append(("request: five records, with CRC-32", frame(records, flags=8), meanings))
    both = frame(records, flags=8, hashes=hashes)
    vectors.append(("request: five records, tag hashes, with CRC-32", both, meanings))
    vectors += delayed_requests(records, meanings, hashes)
    return [vector("request", name, raw, 0, records) for name, raw, records in vectors]


def delayed_requests(
    records: list[bytes], meanings: list[Json], hashes: list[int]
) -> list[tuple[str, bytes, list[Json]]]:
    """With delivery times: 0 is now, a time that has passed too, negative is from now on."""
    times = [0, 1_700_000_000_000, -1, 0, 1]
    timed = [{**each, "delivery_time": time} for each, time in zip(meanings, times, strict=True)]
    with_hashes = frame(records, times=times, hashes=hashes, flags=8)
    none = [{**each, "delivery_time": 0} for each in meanings]
    return [
        ("request: five records, delivery times", frame(records, times=times), timed),
        ("request: five records, tag hashes, delivery times, with CRC-32", with_hashes, timed),
        ("request: five records, all delivered now", frame(records, times=[0] * 5), none),
    ]


def stored(index: int, offset: int, position: int, *, v6: bool = False) -> tuple[bytes, Json, int]:
    _, body, props, born = MESSAGES[index]
    place = {"queue_id": 3, "queue_offset": offset, "physical_offset": position}
    raw = record(body, props, born_ms=born, stored=True, v6=v6, **place)
    each = meaning(body, props, born, **place, store_time_ms=STORED_MS)
    return raw, each, java_hash(props.get("TAGS", ""))


def good_answers() -> list[Json]:
    position, five = 4096, []
    for index in range(5):
        five.append(stored(index, 41 + index, position))
        position += len(five[-1][0])
    chosen = {
        "answer: nothing": (88, []),
        "answer: one record": (41, five[:1]),
        "answer: five records": (41, five),
        "answer: offsets with gaps, as a filter leaves them": (41, [five[0], five[2], five[4]]),
        "answer: offsets beyond 32 bits": (2**40, [stored(0, 2**40, 2**50)]),
        "answer: IPv6 hosts": (7, [stored(3, 7, 9_000, v6=True), stored(1, 8, 9_500)]),
    }
    vectors = []
    for name, (first, records) in chosen.items():
        raws, meanings, hashes = ([each[at] for each in records] for at in range(3))
        raw = frame(raws, flags=1, first=first, hashes=hashes)
        vectors.append(vector("answer", name, raw, first, meanings))
        if name in {"answer: nothing", "answer: five records"}:
            raw = frame(raws, flags=9, first=first, hashes=hashes)
            vectors.append(vector("answer", f"{name}, with CRC-32", raw, first, meanings))
    return vectors


def vector(direction: str, name: str, raw: bytes, first: int, records: list[Json]) -> Json:
    return {
        "name": name,
        "direction": direction,
        "hex": raw.hex(),
        "first_queue_offset": first,
        "records": records,
    }


def patched(raw: bytes, at: int, new: bytes) -> bytes:
    return raw[:at] + new + raw[at + len(new) :]


def bad_frames() -> list[Json]:
    """Frames that nobody may take, in either direction; an index where one record is to blame."""
    good = record(b"hello", {"TAGS": "a"}, born_ms=1_700_000_000_000)
    whole = frame([good, good, good])
    size = len(good)

    def second(raw: bytes) -> bytes:
        return frame([good, raw, good])

    damaged = {
        "nothing": b"",
        "header cut short": whole[:31],
        "records cut short": whole[:-1],
        "a byte too many": whole + b"\0",
        "wrong magic": patched(whole, 0, b"X"),
        "version 2": frame([good], version=2),
        "whole body zstd, which version 1 leaves for later": frame([good], flags=2),
        "wrong checksum": patched(whole, 12, bytes([whole[12] ^ 1])),
        "a CRC-32C that should be a CRC-32": patched(whole, 5, b"\x09"),
        "a flipped bit in a body": patched(whole, 32 + 12 + 88, b"i"),
        "count beyond the frame": patched(whole, 8, struct.pack(">I", 2**32 - 1)),
        "negative length": patched(whole, 24, struct.pack(">q", -1)),
        "sizes that do not add up": frame([good, good], sizes=[size, size + 1]),
    }
    records = {
        "size field of a record": patched(good, 0, struct.pack(">I", size + 1)),
        "magic of a record": patched(good, 4, b"\0\0\0\0"),
        "body longer than its record": patched(good, 84, struct.pack(">I", 2**31)),
        "properties that end too early": patched(good, 88 + 5 + 7, struct.pack(">H", 9)),
        "properties that end too late": patched(good, 88 + 5 + 7, struct.pack(">H", 99)),
        "a record of 50 bytes": struct.pack(">I", 50) + good[4:50],
    }
    vectors: list[Json] = [
        {"name": f"bad: {name}", "direction": "both", "hex": raw.hex()}
        for name, raw in damaged.items()
    ]
    for name, raw in records.items():
        both = {"name": f"bad: {name}", "direction": "both", "index": 1}
        vectors.append({**both, "hex": second(raw).hex()})
    return vectors + bad_requests(good, second)


def bad_requests(good: bytes, second: Callable[[bytes], bytes]) -> list[Json]:
    """Frames that a server refuses, and a reader need not."""
    records = {
        "queue id is not 0": patched(good, 15, b"\1"),
        "queue offset is not 0": patched(good, 27, b"\1"),
        "physical offset is not 0": patched(good, 35, b"\1"),
        "system flag is not 0": patched(good, 39, b"\1"),
        "store time is not 0": patched(good, 63, b"\1"),
        "store host is not 0": patched(good, 64, b"\1"),
        "another topic": record(b"hello", {}, topic="others"),
        "no empty checksum at the end": patched(good, len(good) - 2, b"1"),
        "a property without separator": record(b"", {}, text=b"name\2"),
        "a property without value": record(b"", {}, text=b"name\1\2"),
        "a property without end": record(b"", {}, text=b"name\1value"),
        "properties that are not UTF-8": record(b"", {}, text=b"name\1\xff\2"),
        "a reserved property": record(b"", {"DELAY": "3"}),
        "a tag twice": record(b"", {}, text=b"TAGS\1a\2TAGS\1b\2"),
        "a sharding key twice": record(b"", {}, text=b"__SHARDINGKEY\1a\2p\1v\2__SHARDINGKEY\1a\2"),
        "a delivery time as a property": record(b"", {"TIMER_DELIVER_MS": "1700000000000"}),
    }
    vectors: list[Json] = [
        {"name": f"bad request: {name}", "direction": "request", "index": 1, "hex": raw.hex()}
        for name, raw in ((name, second(raw)) for name, raw in records.items())
    ]
    whole = {
        "an answer": frame([good], flags=1),
        "first queue offset is not 0": frame([good], first=1),
        "a CRC-32C that should be a CRC-32": patched(frame([good]), 5, b"\x08"),
        "an unknown flag": frame([good], flags=16),
        "delivery times that are missing": frame([good], flags=32),
    }
    return vectors + [
        {"name": f"bad request: {name}", "direction": "request", "hex": raw.hex()}
        for name, raw in whole.items()
    ]


def main() -> None:
    document = {
        "format": "application/vnd.curlew.batch",
        "version": 1,
        "description": "See docs/reference/batch-frame.md. Made by make.py.",
        "good": [*good_requests(), *good_answers()],
        "bad": bad_frames(),
    }
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

"""RocketMQ store directories on disk: the golden ones, and any others, built by hand."""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.stores import rocketmq_store
from tests.support.stores.rocketmq_store import BORN_HOST, STORE_HOST, T0

SEGMENT_BYTES = 65536


def write_files(root: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def golden_directory(root: Path, name: str) -> Path:
    """The real files of a golden store where they are at hand, else the same bytes, built."""
    built = {"store6": rocketmq_store.store6, "store200": rocketmq_store.store200}[name]()
    return write_files(root, rocketmq_store.golden(name) or built)


@dataclass
class RocketDirectory:
    """Builds a log record by record, as a broker would write it; shares no code with the store."""

    segment_bytes: int = SEGMENT_BYTES
    files: dict[str, bytes] = field(default_factory=dict)
    _log: bytearray = field(default_factory=bytearray)
    _next: dict[tuple[str, int], int] = field(default_factory=dict)

    def begin(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Let a queue begin in the middle, as after retention."""
        self._next[topic, queue_id] = queue_offset

    def add(
        self,
        topic: str,
        queue_id: int = 0,
        body: bytes = b"body",
        *,
        flag: int = 0,
        properties: str = "",
        wide_hosts: bool = False,
    ) -> int:
        """Append a record; its physical offset."""
        in_queue = flag & 0xC not in (0x4, 0xC)
        offset = self._next.get((topic, queue_id), 0) if in_queue else 0
        if in_queue:
            self._next[topic, queue_id] = offset + 1
        born, stored = BORN_HOST, STORE_HOST
        if wide_hosts:
            born, stored, flag = bytes(15) + b"\x01" + BORN_HOST[4:], bytes(20), flag | 0x30
        raw, text = topic.encode(), properties.encode()
        size = 91 + len(body) + len(raw) + len(text) + len(born) + len(stored) - 16
        self._close_segment_unless(size)
        at = len(self._log)
        self._log += struct.pack(
            ">IIIIIqqIq", size, 0xDAA320A7, zlib.crc32(body) & 0x7FFFFFFF, queue_id, 0, offset, at,
            flag, T0 + at,
        )  # fmt: skip
        self._log += born + struct.pack(">q", T0 + at) + stored + struct.pack(">Iq", 0, 0)
        self._log += struct.pack(">I", len(body)) + body
        self._log += bytes((len(raw),)) + raw + struct.pack(">H", len(text)) + text
        return at

    def _close_segment_unless(self, size: int) -> None:
        left = self.segment_bytes - len(self._log) % self.segment_bytes
        if size + 8 > left:
            self._log += struct.pack(">II", left, 0xCBD43194).ljust(left, b"\0")

    def settings(self, name: str, document: object) -> None:
        """A file below config/, with whole numbers as bare keys, as fastjson writes them."""
        text = json.dumps(document)
        for number in range(100):
            text = text.replace(f'"{number}":', f"{number}:")
        self.files[f"config/{name}"] = text.encode()

    def write(self, root: Path) -> Path:
        padded = bytes(self._log) or b"\0"
        for base in range(0, len(padded), self.segment_bytes):
            part = padded[base : base + self.segment_bytes].ljust(self.segment_bytes, b"\0")
            self.files[f"commitlog/{base:020d}"] = part
        return write_files(root, self.files)

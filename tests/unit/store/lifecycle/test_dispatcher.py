"""Records that have all in common are dispatched together, with what comes of each by itself."""

from itertools import pairwise
from typing import Any

import pytest

from app.domain.names import FLOORS_TOPIC
from app.store.formats.record.record_block import walk
from app.store.lifecycle import dispatcher as dispatcher_module
from app.store.lifecycle.dispatcher import BlockDispatcher
from app.store.log.log_scan import ScannedBlock
from tests.unit.store.formats.record.frame_records import records


class Noted:
    """In place of queues and index: what was put where."""

    def __init__(self) -> None:
        self.units: dict[tuple[str, int], list[bytes]] = {}
        self.keys: list[tuple[int, str, tuple[str, ...]]] = []
        self.max_offset = self.next_offset = -1
        self._name = ("", 0)

    def get_or_make(self, topic: str, queue_id: int, *, first_offset: int) -> "Noted":
        self._name, self.max_offset = (topic, queue_id), first_offset
        return self

    def append(self, units: bytes) -> None:
        self.units.setdefault(self._name, []).append(units)

    def add(self, position: int, _time_ms: int, topic: str, keys: list[str]) -> None:
        self.keys.append((position, topic, tuple(keys)))


def dispatched(data: bytes, base: int) -> tuple[Any, ...]:
    noted: Any = Noted()
    dispatcher = BlockDispatcher(noted, noted, indexed_end=0)
    floors: list[int] = []
    dispatcher.before_floors = lambda: floors.append(1)
    marks = walk(data, 0, len(data))
    sizes = [behind - at for at, behind in pairwise(marks)]
    dispatcher.dispatch(ScannedBlock(data, marks[:-1], sizes, base))
    units = {name: b"".join(parts) for name, parts in noted.units.items()}
    return units, noted.keys, dispatcher.store_time_ms, len(floors)


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        (b"", b"orders"),
        (b"TAGS\x01red\x02", b"orders"),
        (b"KEYS\x01k\x02", b"orders"),
        (b"UNIQ_KEY\x01u\x02", b"orders"),
        (b"x\x01y\x02", FLOORS_TOPIC.encode()),
    ],
    ids=["plain", "tag", "keys", "unique", "floors"],
)
@pytest.mark.parametrize("last", [[], [b"other"]], ids=["alike", "another one behind"])
def test_what_is_alike_is_dispatched_as_each_by_itself(
    monkeypatch: pytest.MonkeyPatch, properties: bytes, topic: bytes, last: list[bytes]
) -> None:
    base = 500
    found = records([b"same"] * 20, topic=topic, properties=properties, base=base)
    behind = base + sum(map(len, found))
    data = b"".join([*found, *records(last, base=behind, first_offset=20)])
    together = dispatched(data, base)
    monkeypatch.setattr(dispatcher_module, "_alike", lambda *_: None)
    assert together == dispatched(data, base)
    assert together[0]


def test_what_is_alike_is_not_looked_into_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(BlockDispatcher, "_walk")
    units, _, _, _ = dispatched(b"".join(records([b"same"] * 20)), 0)
    assert len(units["orders", 0]) == 20 * 20

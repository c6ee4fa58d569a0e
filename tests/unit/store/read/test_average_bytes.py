"""The average size of a queue's records: a sample over its length."""

import pytest

from app.store.formats.files.consume_queue import UNIT
from app.store.fs.file_cache import FileCache
from app.store.queues.consume_queue import ConsumeQueue
from app.store.read.lookups import average_bytes
from tests.support.stores.simulated_files import SimulatedFiles


def queue_of(*sizes: int) -> ConsumeQueue:
    queue = ConsumeQueue(FileCache(SimulatedFiles()), "orders", 0, 1_000)
    queue.begin(0, 0)
    queue.append(b"".join([UNIT.pack(0, size, 0) for size in sizes]))
    return queue


def test_an_empty_queue_has_none() -> None:
    assert average_bytes(queue_of()) is None


@pytest.mark.parametrize("count", [1, 31, 32, 33, 40, 64, 500])
def test_equal_records(count: int) -> None:
    assert average_bytes(queue_of(*[120] * count)) == 120


def test_the_beginning_counts_as_well_as_the_end() -> None:
    assert average_bytes(queue_of(*[100] * 500, *[300] * 500)) == 200


def test_units_that_were_never_written_do_not_count() -> None:
    assert average_bytes(queue_of(0, 0, 150)) == 150
    assert average_bytes(queue_of(0, 0)) is None

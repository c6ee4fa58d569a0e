"""What passes is told from what does not."""

import errno

import pytest

from app.domain.shortages import HINTS, Shortage, SyncFailed, shortage_of

PASSING = {
    errno.ENOSPC: Shortage.ROOM,
    errno.EDQUOT: Shortage.ROOM,
    errno.EMFILE: Shortage.DESCRIPTORS,
    errno.ENFILE: Shortage.DESCRIPTORS,
    errno.ENOMEM: Shortage.MEMORY,
    errno.EINTR: Shortage.TIME,
}


@pytest.mark.parametrize(("number", "shortage"), PASSING.items())
def test_a_shortage_is_known_by_its_number(number: int, shortage: Shortage) -> None:
    assert shortage_of(OSError(number, "x")) is shortage


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EBADF, errno.ENXIO, errno.ESTALE])
def test_a_fault_of_the_disk_is_none(number: int) -> None:
    assert shortage_of(OSError(number, "x")) is None


@pytest.mark.parametrize("number", PASSING)
def test_a_sync_that_failed_is_none_whatever_its_number(number: int) -> None:
    assert shortage_of(SyncFailed(number, "x")) is None


def test_other_errors() -> None:
    assert shortage_of(MemoryError()) is Shortage.MEMORY
    assert shortage_of(ValueError("x")) is None
    assert shortage_of(OSError("a file ends too soon")) is None


def test_each_says_what_to_do() -> None:
    assert set(HINTS) == set(Shortage)

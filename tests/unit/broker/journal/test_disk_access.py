"""What a read says when the node stops under it, or cannot open what it needs."""

import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.broker.journal.cold_reads import ColdReads
from app.domain.errors import ShuttingDown, SystemBusy
from app.store import ColdRead

pytestmark = pytest.mark.anyio


async def test_a_cold_read_after_the_readers_have_ended_is_told_that_the_node_stops() -> None:
    readers = ThreadPoolExecutor(1)
    readers.shutdown()

    def read(wait_for_disk: bool) -> None:
        assert not wait_for_disk
        raise ColdRead

    with pytest.raises(ShuttingDown) as refused:
        await ColdReads(readers).run(read)
    assert refused.value.retry_after_s == 1


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC])
async def test_a_read_that_lacks_something_may_be_tried_again(number: int, is_cold: bool) -> None:
    def read(wait_for_disk: bool) -> None:
        if is_cold and not wait_for_disk:
            raise ColdRead
        raise OSError(number, "x")

    with ThreadPoolExecutor(1) as readers, pytest.raises(SystemBusy) as refused:
        await ColdReads(readers).run(read)
    assert refused.value.retryable


async def test_a_fault_of_the_disk_stays_one() -> None:
    def read(_wait_for_disk: bool) -> None:
        raise OSError(errno.EIO, "x")

    with ThreadPoolExecutor(1) as readers, pytest.raises(OSError, match="x"):
        await ColdReads(readers).run(read)

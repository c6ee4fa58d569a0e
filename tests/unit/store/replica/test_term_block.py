"""The place of the block that begins a term is known before it is appended."""

import pytest

from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store.replica.term_block import end_behind, term_block
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL, open_store


@pytest.mark.parametrize("left", [0, 1, 150, 300, 2_000])
def test_it_ends_where_it_was_said_to(left: int) -> None:
    """Also where the segment has no room for it."""
    opened = open_store(SimulatedFiles(), threads=False)
    for size in (1_000, 1_000, 1_500 - left % 1_500):
        opened.append_all([Message(bytes(size))])
        opened.turns.run()
    for epoch, grant in ((1, 1), (1 << 40, (1 << 62) - 1)):
        block = term_block(epoch, grant)
        end = end_behind(block, opened.store.status().written_end, SMALL.segment_bytes)
        opened.store.append_step((block,), FlushMode.SYNC, opened.outcomes.append)
        opened.turns.run()
        assert opened.store.status().written_end == end
    opened.store.close()

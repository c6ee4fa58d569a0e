"""Acks in any order against a plain set."""

import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from app.broker.progress.ack_set import AckSet

START = 1_000
OFFSETS = st.integers(START - 5, START + 3_000)
RANGES = st.tuples(OFFSETS, st.integers(0, 2_500)).map(lambda pair: range(pair[0], sum(pair)))


class Model:
    """What progress means, without any thought for speed."""

    def __init__(self) -> None:
        self.acked = set(range(START - 10, START))

    @property
    def committed(self) -> int:
        offset = START
        while offset in self.acked:
            offset += 1
        return offset


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(OFFSETS, RANGES, st.tuples(st.sampled_from(["skip", "reopen"]), OFFSETS)),
        max_size=40,
    )
)
def test_it_agrees_with_a_plain_set(
    steps: list[int | range | tuple[str, int]],
) -> None:
    progress, model = AckSet(START), Model()
    touched = set()
    for step in steps:
        if isinstance(step, int):
            progress.ack(step)
            model.acked.add(step)
            touched.add(step)
        elif isinstance(step, range):
            progress.ack_range(step.start, step.stop)
            model.acked.update(step)
            touched.update((step.start - 1, step.start, step.stop - 1, step.stop))
        elif step[0] == "reopen":
            again = [offset for offset in range(step[1], step[1] + 1_500, 499) if offset >= START]
            if again:
                progress.reopen(again)
                model.acked.difference_update(again)
                touched.update(again)
        else:
            progress.skip_to(step[1])
            model.acked.update(range(START, step[1]))
        assert progress.committed == model.committed
        assert not progress.is_even or progress.end == model.committed
    for offset in touched:
        assert progress.is_acked(offset) == (offset in model.acked or offset < START)
        for count in (0, 1, 3, 1_100):
            end = offset + count
            is_known = any(each in model.acked or each < START for each in range(offset, end))
            assert progress.has_acked(offset, end) == is_known
    runs = [offset for start, end in progress.runs() for offset in range(start, end)]
    assert runs == sorted(offset for offset in model.acked if offset > progress.committed)


def test_acks_of_whole_pages_in_shuffled_order_close_up() -> None:
    offsets = list(range(5 * 1_024))
    random.Random(1).shuffle(offsets)
    progress = AckSet(0)
    for offset in offsets:
        progress.ack(offset)
    assert progress.committed == 5 * 1_024
    assert not progress._pages


def test_one_open_message_under_a_million_acks_costs_nothing_per_ack() -> None:
    """In random order, above a message that stays open; then it closes, in one go."""
    count = 1_000_000
    offsets = list(range(1, count))
    random.Random(2).shuffle(offsets)
    progress = AckSet(0)
    ack = progress.ack
    started = time.process_time()
    for offset in offsets:
        ack(offset)
    assert progress.committed == 0
    progress.ack(0)
    assert progress.committed == count
    # Some 0.5 s; whatever grows with the number of open acks takes minutes.
    assert time.process_time() - started < 20


def test_full_pages_above_an_open_message_share_one_object() -> None:
    progress = AckSet(0)
    progress.ack_range(1_024, 1_024 * 100)
    assert len({id(page) for page in progress._pages.values()}) == 1


def test_going_back_is_not_possible() -> None:
    progress = AckSet(10)
    progress.skip_to(5)
    assert progress.committed == 10

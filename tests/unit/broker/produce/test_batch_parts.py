"""A large batch in parts: all of it, in order, and no part too much for one turn."""

from hypothesis import given
from hypothesis import strategies as st

from app.broker.produce.batch_parts import (
    SMALL_MESSAGES_MAX,
    TURN_BYTES_MAX,
    TURN_MESSAGES_MAX,
    parts_of,
    weight_of,
)
from app.broker.results import BatchItem
from app.domain.message import Message

KINDS = [
    Message(b"x"),
    Message(b"x", keys=("k",) * 32, properties={str(n): "v" for n in range(128)}),
    Message(bytes(3 * 1024 * 1024)),
]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 900)), max_size=9))
def test_parts(runs: list[tuple[int, int, int]]) -> None:
    items = [
        BatchItem(KINDS[kind])
        for kind, _, count in runs
        for _ in range(count if kind != 2 else count % 7)
    ]
    chosen: dict[int, list[int]] = {}
    for index in range(len(items)):
        chosen.setdefault(runs[index % len(runs)][1], []).append(index)
    parts = list(parts_of(items, chosen))
    found: dict[int, list[int]] = {}
    turns: list[list[Message]] = [[]]
    for part in parts:
        found.setdefault(part.queue_id, []).extend(part.indexes)
        assert part.messages == [items[index].message for index in part.indexes]
        assert part.messages
        if part.begins_turn:
            turns.append([])
        turns[-1] += part.messages
    assert found == chosen
    if len(items) <= SMALL_MESSAGES_MAX:
        assert len(turns) == 1
        assert len(parts) == len(chosen)
        return
    for turn in turns:
        if len(turn) > 1:
            assert sum(map(weight_of, turn)) <= TURN_MESSAGES_MAX
            assert sum(len(message.body) for message in turn) <= TURN_BYTES_MAX
    assert (
        len(turns)
        <= 2
        + 2 * sum(map(weight_of, (item.message for item in items))) // (TURN_MESSAGES_MAX)
        + 2 * sum(len(item.message.body) for item in items) // TURN_BYTES_MAX
    )

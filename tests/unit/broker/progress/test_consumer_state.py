"""Entries, snapshots and runs: what was written is what comes back, whatever is in between."""

from hypothesis import given, settings
from hypothesis import strategies as st

from app.broker.progress.consumer_state import CHUNK_BYTES, ConsumerState
from app.broker.progress.progress_entries import (
    Forgotten,
    HandedOut,
    Parked,
    ParkedMessage,
    Placed,
    Released,
    Settled,
    Skipped,
    Unsubscribed,
    delivered_runs,
    encode_entry,
    offsets_of,
    runs_of,
)

GROUPS, TOPICS = st.sampled_from(["g", "h"]), st.sampled_from(["t", "u"])
OFFSETS = st.integers(0, 3_000)
OFFSET_LISTS = st.lists(OFFSETS, min_size=1, max_size=30, unique=True).map(sorted)
Plain = dict[tuple[str, str, int], tuple[set[int], dict[int, int]]]
END = 4_000
Tested = Settled | HandedOut | Placed | Skipped | Forgotten


def settled(group: str, topic: str, offsets: list[int]) -> Tested:
    return Settled(group, [(topic, 0, runs_of(offsets))])


def handed_out(group: str, topic: str, offsets: list[int], times: int) -> Tested:
    runs = list(delivered_runs((offset, times) for offset in offsets))
    return HandedOut(group, [(topic, 0, runs)])


ENTRIES: st.SearchStrategy[Tested] = st.one_of(
    st.builds(settled, GROUPS, TOPICS, OFFSET_LISTS),
    st.builds(handed_out, GROUPS, TOPICS, OFFSET_LISTS, st.integers(0, 3)),
    st.builds(Unsubscribed, GROUPS, TOPICS),
    st.builds(lambda g, t, o: Placed(g, [(t, 0, o)]), GROUPS, TOPICS, OFFSETS),
    st.builds(lambda g, t, o: Skipped(g, [(t, 0, o)]), GROUPS, TOPICS, OFFSETS),
    st.builds(lambda g: Forgotten(g, None), GROUPS),
    st.builds(lambda t: Forgotten(None, t), TOPICS),
)


def hand_out_plainly(model: Plain, entry: HandedOut) -> None:
    for topic, queue_id, runs in entry.rows:
        acked, deliveries = model.setdefault((entry.group, topic, queue_id), (set(), {}))
        for first, count, times in runs:
            for offset in set(range(first, first + count)) - acked:
                deliveries[offset] = times
                if not times:
                    del deliveries[offset]


def apply_plainly(model: Plain, entry: Tested) -> None:
    """What an entry means, with sets and dicts."""
    if isinstance(entry, Forgotten):
        for key in [key for key in model if key[0] == entry.group or key[1] == entry.topic]:
            del model[key]
    elif isinstance(entry, Unsubscribed):
        model.pop((entry.group, entry.topic, 0), None)
    elif isinstance(entry, HandedOut):
        hand_out_plainly(model, entry)
    else:
        for topic, queue_id, what in entry.rows:
            acked, deliveries = model.setdefault((entry.group, topic, queue_id), (set(), {}))
            if isinstance(entry, Placed):
                acked.clear()
                deliveries.clear()
            done = range(what) if isinstance(what, int) else offsets_of(what)
            for offset in done:
                acked.add(offset)
                deliveries.pop(offset, None)


def plain(state: ConsumerState) -> Plain:
    return {
        key: (
            {offset for offset in range(END) if queue.progress.is_acked(offset)},
            dict(queue.deliveries),
        )
        for key, queue in state.queues.items()
    }


def restored(state: ConsumerState) -> ConsumerState:
    copy = ConsumerState()
    for chunk in state.dump():
        copy.load(chunk)
    return copy


@settings(deadline=None, max_examples=60)
@given(st.lists(ENTRIES, max_size=15), st.integers(0, 15), st.integers(0, 3))
def test_a_snapshot_and_the_entries_behind_it_are_the_state(
    entries: list[Tested], at: int, overlap: int
) -> None:
    """Entries are idempotent: some may be in the snapshot and behind it."""
    model: Plain = {}
    state = ConsumerState()
    for index, entry in enumerate(entries):
        if index == at:
            state = restored(state)
        apply_plainly(model, entry)
        state.apply(encode_entry(entry))
    assert plain(state) == model
    assert plain(restored(state)) == model
    for key, (acked, deliveries) in model.items():
        queue = state.queues[key]
        assert queue.end == max([*acked, *deliveries], default=-1) + 1
        for offset in list(acked)[:50]:
            following = queue.progress.next_open(offset)
            assert following not in acked
            assert set(range(offset, following)) <= acked
    again = restored(state)
    for entry in entries[len(entries) - overlap :] if overlap else ():
        if isinstance(entry, Settled):
            again.take(entry)
            state.take(entry)
    assert plain(again) == plain(state)


@given(OFFSET_LISTS)
def test_runs_give_back_the_offsets(offsets: list[int]) -> None:
    assert list(offsets_of(runs_of(offsets))) == offsets
    assert runs_of([]) == []


def test_entries_are_small() -> None:
    in_order = Settled("billing", [("orders", 3, runs_of(range(10**9, 10**9 + 32)))])
    assert len(encode_entry(in_order)) < 40
    one_queue = dict.fromkeys(range(10**9, 10**9 + 32), 1)
    handed = HandedOut("billing", [("orders", 3, list(delivered_runs(one_queue.items())))])
    assert len(encode_entry(handed)) < 40


def test_a_million_acked_out_of_order_and_a_million_handed_out_make_a_small_snapshot() -> None:
    """Every other message of two millions is open: one bit each, and runs of deliveries."""
    state = ConsumerState()
    queue = state.get_or_make(("g", "t", 0))
    for offset in range(1, 2_000_000, 2):
        queue.progress.ack(offset)
    queue.deliveries = dict.fromkeys(range(2_000_000, 3_000_000), 1)
    chunks = list(state.dump())
    assert sum(map(len, chunks)) < 2_000_000 / 8 + 50_000
    queue.deliveries = dict.fromkeys(range(2_000_000, 4_000_000, 2), 1)
    assert max(map(len, state.dump())) < 2 * CHUNK_BYTES
    assert restored(state).queues["g", "t", 0].deliveries == queue.deliveries
    for offset in range(0, 2_000_000, 2):
        queue.progress.ack(offset)
    queue.deliveries.clear()
    assert sum(map(len, state.dump())) < 200


def test_parked_messages_are_kept_until_they_are_released_or_done() -> None:
    state = ConsumerState()
    for offset in (5, 6, 7):
        message = ParkedMessage(offset, "k" if offset == 5 else None, 3, "no", 17)
        state.apply(encode_entry(Parked("g", "t", 0, message)))
    state = restored(state)
    assert sorted(state.queues["g", "t", 0].parked) == [5, 6, 7]
    assert state.queues["g", "t", 0].parked[5].key == "k"
    state.apply(encode_entry(Released("g", "t", 0, 5)))
    state.apply(encode_entry(settled("g", "t", [6])))
    assert sorted(restored(state).queues["g", "t", 0].parked) == [7]
    state.apply(encode_entry(Skipped("g", [("t", 0, 8)])))
    assert not state.queues["g", "t", 0].parked

"""Notes: few for many sends, exact for each offset; a sample takes its share."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.broker.results import SendResult
from app.broker.tracing.trace_notes import (
    PAGE_SHIFT,
    SHARE_MAX,
    Note,
    Producer,
    Send,
    TraceKind,
    about_one,
    count_of,
    covers,
    decode_notes,
    encode_notes,
    is_sampled,
    key_of,
    longest_seconds,
    notes_of_sends,
    page_of,
    sampled,
    seconds_of,
)

ANNA: Producer = ("anna", None, "10.0.0.1")
BEN: Producer = (None, "shop", "10.0.0.2")


def send(first: int, count: int = 1, producer: Producer = ANNA, seconds: float = 0.001) -> Send:
    return (TraceKind.SENT, "orders", 0, first, count, 1_000 + first, seconds, producer)


@given(
    st.lists(st.tuples(st.integers(1, 3_000), st.sampled_from([ANNA, BEN])), max_size=20),
    st.integers(0, 5_000),
)
def test_every_offset_is_noted_once_for_who_sent_it(
    counts: list[tuple[int, Producer]], first: int
) -> None:
    sends: list[Send] = []
    wanted: dict[int, tuple[Producer, float]] = {}
    at = first
    for number, (count, producer) in enumerate(counts):
        sends.append(send(at, count, producer, number / 1_000))
        wanted |= dict.fromkeys(range(at, at + count), (producer, number / 1000))
        at += count
    found = {}
    for (topic, queue_id, page), note in notes_of_sends(sends):
        assert (topic, queue_id) == ("orders", 0)
        covered = [offset for offset in range(note.first, note.end) if covers(note, offset)]
        assert count_of(note) == len(covered)
        for offset in covered:
            assert offset >> PAGE_SHIFT == page
            assert offset not in found
            assert about_one(note, offset).requests is not None
            assert seconds_of(about_one(note, offset), offset) == seconds_of(note, offset)
            producer = (note.client_id, note.group or None, note.address)
            found[offset] = (producer, seconds_of(note, offset))
    assert found == wanted


def test_plain_sends_of_several_clients_are_told_apart() -> None:
    clients = [("10.0.0.1", 4_000), ("10.0.0.2", 4_001), None]
    places = [SendResult(f"m{n}", "orders", 0, n, 1_000 + n) for n in range(1_100)]
    singles = [(place, n / 1_000, clients[n % 3]) for n, place in enumerate(places)]
    notes = list(notes_of_sends([], singles))
    assert len(notes) == 6
    for offset in (0, 1, 2, 500, 1_023, 1_024, 1_099):
        [note] = [note for _, note in notes if covers(note, offset)]
        client = clients[offset % 3]
        assert note.address == (client[0] if client else None)
        assert seconds_of(note, offset) == offset / 1_000


def test_sends_of_one_producer_share_a_note() -> None:
    notes = [note for _, note in notes_of_sends([send(n, seconds=n / 1_000) for n in range(100)])]
    assert [(note.first, note.end, note.at_ms) for note in notes] == [(0, 100, 1_000)]
    assert (seconds_of(notes[0], 7), seconds_of(notes[0], 100)) == (0.007, None)
    assert longest_seconds(notes[0]) == 0.099


@given(st.integers(0, 10**12), st.integers(0, 3_000), st.integers(1, SHARE_MAX))
def test_a_sample_is_the_same_however_it_is_asked_for(first: int, count: int, share: int) -> None:
    offsets = list(sampled(first, first + count, share))
    assert offsets == [each for each in range(first, first + count) if is_sampled(each, share)]
    assert abs(len(offsets) - count * share / SHARE_MAX) <= 1


@pytest.mark.parametrize(("rate", "expected"), [(1.0, 1_000), (0.1, 100), (0.001, 1)])
def test_a_sample_has_its_share(rate: float, expected: int) -> None:
    assert len(list(sampled(0, 1_000, round(rate * SHARE_MAX)))) == expected


def test_notes_of_before_producers_were_noted_are_read() -> None:
    old = msgspec.msgpack.encode([[1, 5, 0, 3, "billing", 1, "c1", None, None]])
    assert decode_notes(old) == [Note(1, 5, 0, 3, "billing", 1, "c1", None, None)]


def test_notes_and_keys_come_back() -> None:
    notes = [note for _, note in notes_of_sends([send(3, producer=BEN)])]
    assert decode_notes(encode_notes(notes)) == notes
    for page in (("orders", 3, 17), ("%RETRY%billing+orders", 0, 0)):
        assert page_of(key_of(page)) == page

"""Page tokens of delayed messages: they lead on, and do not say where others' messages are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.broker.delays.scheduled_places import blurred, place_of, token_of
from app.broker.delays.timer_index import NOTHING
from app.domain.errors import IllegalPage
from app.store import Timer

MINUTE_MS = 60_000
times = st.integers(0, 1 << 42)
offsets = st.integers(0, 1 << 40)


@given(times, offsets, times, offsets)
def test_a_blurred_place_lies_between(due: int, offset: int, last: int, at: int) -> None:
    behind, end = sorted((Timer(due, offset), Timer(last, at)))
    if behind != end:
        assert behind < blurred(behind, end) <= end


@given(times, offsets)
def test_the_first_page_leads_on(due: int, offset: int) -> None:
    assert NOTHING < blurred(NOTHING, Timer(due, offset)) <= Timer(due, offset)


@given(st.integers(2 * MINUTE_MS, 1 << 42), offsets, st.integers(0, MINUTE_MS))
def test_messages_of_about_a_minute_have_one_place(due: int, offset: int, later: int) -> None:
    places = {blurred(NOTHING, Timer(due + each, offset + each)) for each in (0, later)}
    assert len({place.due_ms >> 16 for place in places}) <= 2
    assert all(place.due_ms & 0xFFFF == 0 and place.offset == -1 for place in places)


@given(times, st.integers(-1, 1 << 40))
def test_a_token_is_read_as_it_was_written(due: int, offset: int) -> None:
    assert place_of(token_of(Timer(due, offset))) == Timer(due, offset)


@pytest.mark.parametrize(
    "text", ["", "x", "-", "1-", "-1", "1-2-3", "1" * 20, "1-" + "1" * 20, "\u0661"]
)
def test_what_was_not_given_is_refused(text: str) -> None:
    with pytest.raises(IllegalPage):
        place_of(text)

"""Cursors go round, and whatever is not one is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import IllegalOffset
from app.domain.handles.cursors import decode_cursor, encode_cursor

OFFSETS = st.lists(st.integers(0, 2**63 - 1), max_size=40)


@given(OFFSETS)
def test_a_cursor_gives_its_offsets_back(offsets: list[int]) -> None:
    cursor = encode_cursor("orders", offsets)
    assert decode_cursor("orders", cursor) == offsets
    assert cursor.isascii()
    assert not set(cursor) & set(" \r\n\"'<>&?#%+/=")


def test_a_thousand_busy_queues_fit_a_header() -> None:
    assert (
        len(encode_cursor("orders", [10**12 + queue for queue in range(1_024)])) < 16 * 1_024 / 1.9
    )


@given(OFFSETS, st.integers(0, 400), st.integers(1, 127))
def test_damage_is_noticed(offsets: list[int], place: int, change: int) -> None:
    cursor = encode_cursor("orders", offsets)
    place %= len(cursor)
    damaged = cursor[:place] + chr(ord(cursor[place]) ^ change) + cursor[place + 1 :]
    with suppress(IllegalOffset):
        assert decode_cursor("orders", damaged) == offsets  # bits that base64 does not use


@pytest.mark.parametrize("text", ["", "c1.", "c1.AAAA", "c2.", "0", "c1.é", "c1.====", "c1.AA"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(IllegalOffset):
        decode_cursor("orders", text)


def test_a_cursor_of_another_topic_is_refused() -> None:
    with pytest.raises(IllegalOffset, match="another topic"):
        decode_cursor("orders", encode_cursor("payments", [1, 2]))

"""What rows of the pages of groups say: runs of queues, beginnings of bodies."""

from base64 import b64encode

from app.web.consuming.excerpts import EXCERPT_CHARS, with_excerpt
from app.web.consuming.group_members import in_runs
from app.web.consuming.offset_reset import mark_of

DASH = "\N{EN DASH}"


def test_neighbouring_queues_are_one_run() -> None:
    queues = [{"topic": "b", "queue_id": 3}] + [
        {"topic": "a", "queue_id": number} for number in (7, 0, 2, 1)
    ]
    assert in_runs(queues) == [("a", f"0{DASH}2, 7"), ("b", "3")]
    assert in_runs([]) == []


def test_a_body_is_shown_as_it_was_sent() -> None:
    number = b'{"id":23958446825181076828,"price":1.10}'
    shown = with_excerpt({"body_base64": b64encode(number).decode()})
    assert (shown["excerpt"], shown["body_bytes"]) == (number.decode(), len(number))
    long = with_excerpt({"body_base64": b64encode(b"x" * 500).decode()})
    assert len(long["excerpt"]) == EXCERPT_CHARS + 1
    assert with_excerpt({"body_base64": b64encode(b"\xff").decode()})["excerpt"] is None
    assert with_excerpt({})["excerpt"] == ""


def test_what_stands_for_a_table_is_short_however_long_it_is() -> None:
    rows = [{"topic": "t", "queue_id": number, "after": 10**9} for number in range(65_536)]
    assert len(mark_of(rows)) == 64
    assert mark_of(rows) == mark_of(list(rows))
    assert mark_of(rows) != mark_of(rows[:-1])

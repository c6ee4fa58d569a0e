"""What is passed on of a stream that comes from another node: whole events, and one end."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.relay.streams.carried_streams import Passed, PassedEvents, PassedLines
from app.domain.access.refusals import Unauthorized

GONE = Unauthorized("the key was revoked")
EVENTS = (
    b"retry: 1000\n\n",
    b": heartbeat\nid: c1\n\n",
    b'id: c2\ndata: {"body":"id: c9"}\n\n',
    b": heartbeat\n\n",
    b'event: gap\ndata: {"to":3}\n\n',
    b'event: partial\ndata: {"partial":["b"]}\n\n',
)
LINES = (
    b"\n",
    b'{"cursor":"c1"}\n',
    b'{"body":"x","cursor":"c2"}\n',
    b"\n",
    b'{"gap":{"to":3}}\n',
    b'{"effects":[]}\n',
    b'{"partial":["b"]}\n',
    b"\n",
)


def in_parts(whole: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(whole), *(each % (len(whole) + 1) for each in at)})
    return [whole[one:two] for one, two in pairwise(places)]


def end_of(passed: Passed) -> dict[str, Any]:
    said = passed.end(GONE)
    found: dict[str, Any] = msgspec.json.decode(said[said.index(b"{") :])
    end: dict[str, Any] = found.get("end", found)
    return end


@pytest.mark.parametrize(
    ("made", "mark", "parts"),
    [(PassedEvents, b"\n\n", EVENTS), (PassedLines, b"\n", LINES)],
)
@given(at=st.lists(st.integers(0, 200), max_size=20))
def test_whole_ones_pass_however_they_come(
    made: Callable[[], Passed], mark: bytes, parts: tuple[bytes, ...], at: list[int]
) -> None:
    passed, whole = made(), b"".join(parts)
    given_on = b""
    for part in in_parts(whole + b'id: c3\ndata: {"half', at):
        now = passed.take(part)
        assert now.endswith(mark) or not now
        given_on += now
    assert given_on.startswith(whole)
    assert b"half" not in given_on
    assert not passed.has_ended


@pytest.mark.parametrize(("made", "parts"), [(PassedEvents, EVENTS), (PassedLines, LINES)])
@given(at=st.lists(st.integers(0, 200), max_size=20))
def test_the_end_has_the_cursor_that_was_passed_on_last(
    made: Callable[[], Passed], parts: tuple[bytes, ...], at: list[int]
) -> None:
    passed = made()
    for part in in_parts(b"".join(parts), at):
        passed.take(part)
    passed.take(b'id: c3\ndata: {"half' if made is PassedEvents else b'{"cursor":"c3"')
    end = end_of(passed)
    assert (end["reason"], end["cursor"]) == ("access_ended", "c2")
    assert end["error"]["code"] == "UNAUTHORIZED"


@pytest.mark.parametrize("made", [PassedEvents, PassedLines])
def test_a_stream_of_a_group_has_no_cursor(made: Callable[[], Passed]) -> None:
    passed = made()
    line = b'{"body":"x","receipt_handle":"h"}'
    passed.take(b"data: " + line + b"\n\n" if made is PassedEvents else line + b"\n")
    assert "cursor" not in end_of(passed)


def test_the_other_nodes_own_end_is_seen() -> None:
    events, lines = PassedEvents(), PassedLines()
    events.take(b'id: c2\ndata: {}\n\nevent: end\nid: c2\ndata: {"reason":"draining"}\n\n')
    lines.take(b'{"cursor":"c2"}\n{"end":{"reason":"draining"}}\n')
    assert events.has_ended
    assert lines.has_ended

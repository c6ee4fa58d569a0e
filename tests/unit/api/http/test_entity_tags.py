"""Entity tags: what tells two ranges apart, and what counts as known."""

import pytest

from app.api.http.entity_tags import is_known, tag_of_message, tag_of_range


def record(offset: int, store_time_ms: int = 1) -> memoryview:
    """The head of a record, as far as it matters here."""
    return memoryview(offset.to_bytes(36, "big") + store_time_ms.to_bytes(28, "big") + bytes(40))


def test_the_same_records_have_the_same_tag() -> None:
    tags = {tag_of_range("json", 3, [record(0), record(1), record(2)]) for _ in range(2)}
    assert len(tags) == 1


def test_whatever_differs_makes_another_tag() -> None:
    whole = [record(0), record(1), record(2)]
    tags = [
        tag_of_range("json", 3, whole),
        tag_of_range("ndjson", 3, whole),
        tag_of_range("json", 4, whole),
        tag_of_range("json", 3, [whole[0], whole[2]]),
        tag_of_range("json", 3, [*whole[:2], record(2, store_time_ms=2)]),
        tag_of_range("json", 3, [record(0, store_time_ms=2), *whole[1:]]),
        tag_of_range("json", 3, []),
        tag_of_message("auto", ("orders", 0, 1, 1)),
        tag_of_message("raw", ("orders", 0, 1, 1)),
        tag_of_message("auto", ("orders", 0, 1, 2)),
    ]
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize(
    ("condition", "known"),
    [
        (None, False),
        (b'W/"a"', True),
        (b'"a"', True),
        (b'"b", W/"a" , "c"', True),
        (b"*", True),
        (b'"b"', False),
        (b"a", False),
        (b"", False),
    ],
)
def test_what_is_known(condition: bytes | None, known: bool) -> None:
    assert is_known(condition, b'W/"a"') is known

"""Tag expressions: what they select, and where they are wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.broker.filters.filters import TagFilter, parse_filter
from app.domain.errors import IllegalFilter
from app.domain.limits import FILTER_CHARS_MAX
from app.domain.message import java_hash

TAGS = st.text(
    st.characters(codec="utf-8", exclude_characters="|", exclude_categories=("C", "Z")),
    min_size=1,
    max_size=10,
).filter(lambda tag: tag != "*" and not tag.lower().startswith("sql:"))


@pytest.mark.parametrize("expression", [None, "*", "", "  ", " * "])
def test_everything_matches_without_a_tag(expression: str | None) -> None:
    assert parse_filter(expression) is None


@settings(deadline=None)
@given(st.lists(TAGS, min_size=1, max_size=5), st.sampled_from(["||", " || ", "  ||"]))
def test_tags_are_joined_by_bars(tags: list[str], joint: str) -> None:
    parsed = parse_filter(joint.join(tags))
    assert isinstance(parsed, TagFilter)
    assert parsed.tags == set(tags)
    assert parsed.tag_hashes == {java_hash(tag) for tag in tags}
    assert all(parsed.matches({"TAGS": tag}) for tag in tags)
    assert not parsed.matches({})


def test_the_hash_is_that_of_the_consume_queue() -> None:
    parsed = parse_filter("TagA")
    assert parsed is not None
    assert parsed.tag_hashes == frozenset({2598919})


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        ("||", 0),
        ("a ||", 4),
        ("a || || b", 5),
        ("a || *", 5),
        ("a | b", 2),
        ("a|||b", 3),
        ("created || pa\tid", 13),
        ("a" * (FILTER_CHARS_MAX + 1), FILTER_CHARS_MAX),
    ],
)
def test_an_error_names_its_position(expression: str, position: int) -> None:
    with pytest.raises(IllegalFilter) as caught:
        parse_filter(expression)
    assert caught.value.fields["position"] == position


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused(expression: str) -> None:
    try:
        parsed = parse_filter(expression)
    except IllegalFilter as error:
        position = error.fields["position"]
        assert isinstance(position, int)
        assert 0 <= position <= len(expression)
    else:
        assert parsed is None or parsed.tag_hashes

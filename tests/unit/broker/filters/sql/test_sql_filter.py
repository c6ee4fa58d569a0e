"""SQL92 filters: RocketMQ's own results, a naive evaluator, hostile texts."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.broker.filters.filters import SqlFilter, parse_filter, properties_of
from app.broker.filters.sql import Fault, NotComparable, compile_condition, parse
from app.domain.errors import IllegalFilter
from app.domain.limits import FILTER_CHARS_MAX, FILTER_DEPTH_MAX
from app.domain.message import Message, java_hash
from app.store.formats.record.record import (
    decode_message,
    encode_properties,
    encode_record,
    stored_properties,
)
from tests.support.sql_judge import Judged, conditions, judge, written

GRID = json.loads((Path(__file__).parent / "data" / "sql_filter_grid.json").read_text())


def outcome(expression: str, properties: Mapping[str, str]) -> str:
    """As the grid has it: T, F, N, E for "not comparable", R for "refused"."""
    try:
        condition = compile_condition(parse(expression, depth_max=FILTER_DEPTH_MAX))
    except Fault:
        return "R"
    try:
        return {True: "T", False: "F", None: "N"}[condition(properties)]
    except NotComparable:
        return "E"


@pytest.mark.parametrize(("expression", "wanted"), GRID["grid"])
def test_results_are_those_of_rocketmq(expression: str, wanted: str) -> None:
    if wanted == "R":
        assert outcome(expression, {}) == "R"
    else:
        found = "".join(outcome(expression, properties) for properties in GRID["properties"])
        assert found == wanted


def test_samples_are_judged_as_by_rocketmq() -> None:
    different = [
        (expression, properties, wanted, found)
        for expression, properties, wanted in GRID["samples"]
        if (found := outcome(expression, properties)) != wanted
    ]
    assert not different
    assert {wanted for _, _, wanted in GRID["samples"]} == set("TFNER")


@pytest.mark.parametrize("condition", ["a = 1", "a IN ('1')", "(a = '1')", "NOT (a > 1)"])
@pytest.mark.parametrize("comment", ["--", "-- c", " -- it's over", "--5", " -- c -- d", "-- c\n"])
def test_a_comment_may_end_with_the_filter(condition: str, comment: str) -> None:
    assert outcome(condition + comment, {"a": "1"}) == "T"
    assert outcome(condition + comment, {"a": "2"}) == "F"


@pytest.mark.parametrize("expression", ["-- c", "a = --", "a = 1 AND -- c d", "(a = 1 -- c)", "--"])
def test_a_comment_ends_no_beginning(expression: str) -> None:
    assert outcome(expression, {"a": "1"}) == "R"


@pytest.mark.parametrize(
    "expression",
    ["a = 1 b", "a LIKE 'x%'", "a + 1 = 4", "a-b = 'x'", "a = 3)", "a = 010", "a = 0x10", "a == 1"],
)
def test_nothing_behind_a_condition_is_dropped(expression: str) -> None:
    """RocketMQ judges all but the last by the part that it could parse."""
    assert outcome(expression, {"a": "1"}) == "R"


@settings(deadline=None, max_examples=150)
@given(
    conditions(),
    st.dictionaries(
        st.sampled_from(["a", "b", "TAGS"]),
        st.sampled_from(["5", "10", "-5", "5.5", "x", "true", "it's", "3000000000", " 5", "NaN"]),
    ),
    st.randoms(use_true_random=False),
)
def test_it_judges_as_a_naive_evaluator(
    condition: Judged, properties: dict[str, str], random: object
) -> None:
    assert outcome(written(condition, random), properties) == judge(condition, properties)


@settings(deadline=None, max_examples=150)
@given(conditions(), st.sampled_from(["TagA", "TagB", "it's", "x", "5", None]))
def test_no_match_is_skipped_by_its_tag(condition: Judged, tag: str | None) -> None:
    parsed = parse_filter("sql:" + written(condition))
    assert isinstance(parsed, SqlFilter)
    properties = {"a": "5", "b": "x"} | ({} if tag is None else {"TAGS": tag})
    if parsed.tag_hashes is not None and parsed.matches(properties):
        assert tag is not None
        assert java_hash(tag) in parsed.tag_hashes


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TAGS = 'a'", {"a"}),
        ("TAGS IN ('a', 'b') AND x > 1", {"a", "b"}),
        ("TAGS IN ('a', 'b') AND TAGS = 'b'", {"b"}),
        ("TAGS = 'a' OR TAGS = 'b'", {"a", "b"}),
        ("TAGS = 'a' OR x = 'b'", None),
        ("TAGS NOT IN ('a')", None),
        ("TAGS <> 'a'", None),
        ("NOT (TAGS = 'a')", None),
        ("x = 'a'", None),
    ],
)
def test_tags_that_follow_are_skipped_by(expression: str, tags: set[str] | None) -> None:
    parsed = parse_filter("sql:" + expression)
    assert isinstance(parsed, SqlFilter)
    assert parsed.tag_hashes == (None if tags is None else frozenset(map(java_hash, tags)))


@pytest.mark.parametrize(
    ("expression", "position", "hint"),
    [
        ("sql:", 4, "for instance"),
        ("sql: a = ", 9, "for instance"),
        ("SQL: a > 'x'", 9, "IS NULL"),
        ("  sql: a LIKE 'x'", 9, "CONTAINS"),
        ("sql: a = NULL", 9, "IS NULL"),
        ("sql: a != 1", 7, "<>"),
        ('sql: a = "x"', 9, "single quotes"),
        ("sql: a = 'x", 9, "single quote"),
        ("sql: a == 1", 8, "for instance"),
        ("sql: a = 1 = ", 13, "for instance"),
        ("sql: a + 1 = 4", 7, "no arithmetic"),
        ("sql: a BETWEEN 9 AND 1", 15, "for instance"),
        ("sql: a = 0.0", 9, "without a point"),
        ("sql: a NOT = 1", 11, "NOT (a = 1)"),
        ("sql: 5 IN ('5')", 5, "for instance"),
        ("sql: (a = 1", 11, "for instance"),
    ],
)
def test_an_error_says_where_and_what_to_do(expression: str, position: int, hint: str) -> None:
    with pytest.raises(IllegalFilter) as caught:
        parse_filter(expression)
    assert caught.value.fields["position"] == position
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 4_000,
        "(" * 2_000 + "a" + ")" * 2_000,
        "NOT " * 1_000 + "a",
        "- " * 2_000 + "5 = a",
        "+" * 4_000 + "5 = a",
        "a" + " = a" * 1_000,
        "a" + " IS NULL" * 500,
        "a" + " CONTAINS 'x'" * 300,
    ],
)
def test_a_deep_expression_is_refused(expression: str) -> None:
    with pytest.raises(IllegalFilter, match=r"deep|expected"):
        parse_filter("sql:" + expression[: FILTER_CHARS_MAX - 4])


@pytest.mark.parametrize(
    "expression",
    [
        "a = 5 OR " * 450 + "a = 5",
        "a <> 6 AND " * 365 + "a = 5",
        "a IN (" + "'x'," * 1_000 + "'5')",
    ],
)
def test_a_long_list_is_not_deep(expression: str) -> None:
    parsed = parse_filter("sql:" + expression)
    assert parsed is not None
    assert parsed.matches({"a": "5"})


def test_the_deepest_that_is_taken_is_judged() -> None:
    depth = FILTER_DEPTH_MAX - 1
    parsed = parse_filter(f"sql:{'(' * depth}a = 5{')' * depth}")
    assert parsed is not None
    assert parsed.matches({"a": "5"})


PIECES = st.sampled_from(
    [
        *("(", ")", ",", "'", "''", "'x'", "-", "--", "+", "<", ">", "=", "<>", "%", "|", '"', "!"),
        *("5", "5.0", ".5", "1e5", "0", "9L", "a", "b", "TAGS", "99999999999999999999"),
        *("AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "BETWEEN", "CONTAINS", "STARTSWITH"),
        *("/*", "*/", "\n", "\t", "\x00", "\u00e9", "\u0665"),
    ]
)


@settings(deadline=None, max_examples=200)
@given(
    st.one_of(st.lists(PIECES, max_size=25).map(" ".join), st.text(max_size=40)),
    st.dictionaries(st.sampled_from(["a", "b", "TAGS"]), st.text(min_size=1, max_size=8)),
)
@example("a > 5", {"a": "9" * 16_000})
@example("a > 5.0", {"a": "9" * 16_000})
@example("a > 5.0", {"a": "0x1p99999"})
@example("a = 5", {"a": "\U0001d7d3"})
def test_any_text_is_judged_or_refused(expression: str, properties: dict[str, str]) -> None:
    try:
        parsed = parse_filter("sql:" + expression)
    except IllegalFilter as error:
        position = error.fields["position"]
        assert isinstance(position, int)
        assert 4 <= position <= len(expression) + 4
    else:
        assert parsed is not None
        assert parsed.matches(properties) in (True, False)


@pytest.mark.parametrize(
    "piece",
    ["'", "''", "/*", "/**", "*/", "--", "1", "1e", "-", "a ", "'x',", "(a=", "\u0665", "."],
)
def test_the_longest_text_takes_little_time(piece: str) -> None:
    expression = "sql:" + (piece * FILTER_CHARS_MAX)[: FILTER_CHARS_MAX - 4]
    begun = time.process_time()
    with pytest.raises(IllegalFilter):
        parse_filter(expression)
    assert time.process_time() - begun < 0.5


def test_a_message_is_judged_as_its_record_is() -> None:
    """The fields of a message are properties on disk."""
    message = Message(
        b"body",
        tag="a",
        keys=("k1", "k2"),
        sharding_key="s",
        properties={"n": "1"},
        content_type="text/plain",
        message_id="id-1",
    )
    record = encode_record(
        topic=b"t",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=message.body,
        properties=encode_properties(message),
        born_time_ms=1,
        store_time_ms=1,
        store_host=bytes(8),
    )
    stored = stored_properties(memoryview(record))
    checksum = stored.pop("__CRC32#")
    assert len(checksum) == 10
    assert properties_of(decode_message(record, bytes(4))) == stored

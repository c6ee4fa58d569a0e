"""The rule for keys, tags and what else is text in a message: the service's, said by column."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_curlew.errors import RowRefused
from pyspark_curlew.writing.rows import columns_to_send
from pyspark_curlew.writing.texts import OF_FIELDS, check_field

from app.domain import message as domain
from app.domain.errors import InvalidRequest, MalformedFrame
from app.domain.limits import Limits
from app.store.formats.frame.frame_values import refuse_own_ids


def columns_of(**columns: Any) -> pa.RecordBatch:
    return columns_to_send(pa.RecordBatch.from_pydict({"value": [b"v"], **columns}))


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("key", b"\xff", r"'key' has bytes that are not UTF-8.* write base64\(key\)"),
        ("key", b"a\x02", r"'key' has a character U\+0001 or U\+0002.* base64\(key\)"),
        ("key", b"", "'key' is empty .* CASE WHEN length.key. > 0 THEN key END"),
        ("key", b"k" * 1025, "'key' has 1025 bytes in a row; a message takes 1024"),
        ("tag", "", "'tag' is empty .* CASE WHEN length.tag. > 0 THEN tag END"),
        ("tag", "a||b", r"'tag' has 'a\|\|b' in a row; a tag is printable"),
        ("tag", "*", "'tag' has '.' in a row"),
        ("tag", " a", "'tag' has ' a' in a row"),
        ("tag", "a\n", "'tag' has 'a.n' in a row"),
        ("tag", "a\0", "'tag' has 'a.x00' in a row"),
        ("tag", "a\x7f", "'tag' has 'a.x7f' in a row"),
        ("tag", "a\u3000", "'tag' has 'a.u3000' in a row"),
    ],
)
def test_what_a_column_cannot_have_is_told_by_its_name(
    column: str, value: object, words: str
) -> None:
    with pytest.raises(RowRefused, match=words):
        columns_of(**{column: [value]})


IDS = st.sampled_from(["01", "02", "0"]).flatmap(
    lambda start: st.text("0aF1g", min_size=31, max_size=33).map(start.__add__)
)


@given(IDS | st.sampled_from(["schedule:", "schedule:a:1", "schedule", "Schedule:"]))
def test_an_id_that_looks_like_one_of_a_node_is_refused_as_a_node_refuses_it(text: str) -> None:
    """A node does so by the number of the record, of which Spark knows nothing."""
    try:
        refuse_own_ids({0: text})
        is_taken = True
    except MalformedFrame:
        is_taken = False
    if is_taken:
        check_field(pa.array([text.encode()], pa.binary()), "x", b"UNIQ_KEY")
    else:
        with pytest.raises(RowRefused, match="looks like an id that the service gives"):
            check_field(pa.array([b"mine", text.encode()], pa.binary()), "x", b"UNIQ_KEY")


@pytest.mark.parametrize("column", ["properties", "headers"])
def test_the_column_of_an_id_of_a_node_is_told(column: str) -> None:
    value = "01" + "0" * 32
    kinds = {
        "properties": (pa.map_(pa.string(), pa.string()), [("UNIQ_KEY", value)]),
        "headers": (
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            [{"key": "UNIQ_KEY", "value": value.encode()}],
        ),
    }
    kind, row = kinds[column]
    with pytest.raises(RowRefused, match=f"'{column}'.*'{value}' in a row, which looks like an id"):
        columns_of(**{column: pa.array([row], kind)})


@pytest.mark.parametrize("column", ["key", "tag"])
def test_null_is_none_and_text_with_blanks_inside_is_taken(column: str) -> None:
    for value in (None, "a b", "\u00e9-\u4e16"):
        sent = columns_of(**{column: pa.array([value], pa.string())}).column(column)
        assert sent.to_pylist() == [None if value is None else value.encode()]


TEXT = st.text(st.sampled_from("ab1|* \0\t\n\x7f\u00e9\u3000\u202e{}~+"), min_size=1, max_size=5)


@given(st.lists(TEXT | st.integers(250, 260).map("k".__mul__), min_size=1, max_size=5))
@pytest.mark.parametrize("name", sorted(OF_FIELDS))
def test_a_value_is_taken_when_the_service_takes_it(name: bytes, values: list[str]) -> None:
    """But for the length of a tag and the number of keys, which are settings of the service."""
    limits = Limits(tag_bytes_max=2_000, keys_count_max=32)

    def is_taken(value: str) -> bool:
        try:
            domain.check_field(name.decode(), value, limits)
        except InvalidRequest:
            return False
        return True

    given = pa.array([value.encode() for value in values], pa.binary())
    if all(map(is_taken, values)):
        check_field(given, "column 'x'", name)
    else:
        with pytest.raises(RowRefused, match="column 'x' has"):
            check_field(given, "column 'x'", name)


def test_these_are_the_fields_of_the_service() -> None:
    assert {name.decode() for name in OF_FIELDS} == domain.FIELD_PROPERTIES

"""Query parameters: typed, bounded, unknown ones refused."""

from collections.abc import Callable

import pytest

from app.api.http.errors import UnknownParameter
from app.api.http.parameters import Query, duration_ms_of, integer_of, wait_s_of
from app.domain.errors import IllegalOffset, IllegalWait, InvalidRequest

KNOWN = frozenset({"offset", "wait", "clamp", "filter"})


def test_values_are_decoded() -> None:
    query = Query(b"filter=a%20%7C%7C+b&offset=7&clamp", KNOWN)
    assert query.text("filter") == "a || b"
    assert query.integer("offset") == 7
    assert query.flag("clamp")
    assert query.text("wait") is None


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownParameter) as caught:
        Query(b"ofset=7", KNOWN)
    assert caught.value.hint == "did you mean 'offset'?"
    assert caught.value.fields == {"parameter": "ofset"}


def test_a_query_that_one_operation_knows_is_refused_by_another_one() -> None:
    for _ in range(2):  # what was read once is not parsed again
        assert Query(b"offset=7", KNOWN).integer("offset") == 7
        assert Query(b"x-offset=7", KNOWN, prefix="x-").text("x-offset") == "7"
        with pytest.raises(UnknownParameter):
            Query(b"offset=7", frozenset({"wait"}))
        with pytest.raises(UnknownParameter):
            Query(b"x-offset=7", KNOWN)


@pytest.mark.parametrize(
    "query", [b"offset=1&offset=2", b"filter=%ff", b"filter=\xff", b"a&" * 999]
)
def test_damaged_and_repeated_parameters_are_refused(query: bytes) -> None:
    with pytest.raises(InvalidRequest):
        Query(query, KNOWN)


@pytest.mark.parametrize("text", ["", "x", "1.0", "+1", "1_0", " 1", "-1", "٣", "9" * 20])
def test_integers_are_decimal_and_bounded(text: str) -> None:
    with pytest.raises(IllegalOffset):
        integer_of("offset", text, error=IllegalOffset)


def test_the_largest_offset_is_taken() -> None:
    assert integer_of("offset", str(2**63 - 1), error=IllegalOffset) == 2**63 - 1
    with pytest.raises(IllegalOffset):
        integer_of("offset", str(2**63), error=IllegalOffset)


@pytest.mark.parametrize(("wait", "seconds"), [("20", 20), (0.5, 0.5), ("20s", 20), ("500ms", 0.5)])
def test_wait_is_seconds_or_a_duration(wait: float | str, seconds: float) -> None:
    assert wait_s_of(wait, 60) == seconds


@pytest.mark.parametrize("wait", ["61", -1, "nan", "inf", "soon", "2m", 10**400])
def test_wait_is_bounded(wait: float | str) -> None:
    with pytest.raises(IllegalWait):
        wait_s_of(wait, 60)


@pytest.mark.parametrize(
    "read",
    [
        lambda query: query.flag("clamp"),
        lambda query: query.choice("clamp", ("a", "b")),
        lambda query: query.integer("clamp"),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_parameter(read: Callable[[Query], object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(Query(b"clamp=maybe", KNOWN))
    assert caught.value.fields["parameter"] == "clamp"


def test_a_duration_is_given_once() -> None:
    assert duration_ms_of("delay", "2s", None, error=InvalidRequest) == 2_000
    assert duration_ms_of("delay", None, 5, error=InvalidRequest) == 5
    with pytest.raises(InvalidRequest, match="both"):
        duration_ms_of("delay", "2s", 5, error=InvalidRequest)
    with pytest.raises(InvalidRequest, match="not a duration"):
        duration_ms_of("delay", "2", None, error=InvalidRequest)


@pytest.mark.parametrize("text", ["99999999999999999999", "-99999999999999999999", "9" * 10_000])
def test_an_integer_that_is_too_large_is_told_its_bounds(text: str) -> None:
    with pytest.raises(InvalidRequest, match="must be from 0 to 9223372036854775807"):
        integer_of("offset", text, error=InvalidRequest)

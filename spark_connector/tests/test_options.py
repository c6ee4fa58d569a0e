"""Options: defaults, refusals, and the words of the refusals."""

import pytest
from pyspark_curlew.errors import OptionInvalid, OptionMissing, OptionUnknown
from pyspark_curlew.options import EARLIEST, LATEST, StartingOffsets, parse_source_options

REQUIRED = {"endpoint": "http://127.0.0.1:8710", "topic": "orders"}


def test_defaults_are_the_documented_ones() -> None:
    options = parse_source_options(REQUIRED)
    assert options.topic == "orders"
    assert options.http.endpoint == "http://127.0.0.1:8710"
    assert options.starting_offsets == StartingOffsets("latest")
    assert options.max_offsets_per_trigger is None
    assert options.max_records_per_partition == 250_000
    assert options.fail_on_data_loss is True
    assert options.include_properties is False
    assert (options.pull_max_messages, options.pull_max_bytes) == (4096, 4 * 1024 * 1024)
    assert options.poll_wait_ms == 1000
    assert options.http.retries == 8


def test_names_are_compared_without_regard_to_case() -> None:
    options = parse_source_options({**REQUIRED, "MAXOFFSETSPERTRIGGER": "7", "retries": "0"})
    assert options.max_offsets_per_trigger == 7
    assert options.http.retries == 0


def test_a_slash_at_the_end_of_the_endpoint_does_not_matter() -> None:
    options = parse_source_options({**REQUIRED, "endpoint": "http://mq:8710/base/"})
    assert options.http.endpoint == "http://mq:8710/base"


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(OptionUnknown, match="'maxOfsetsPerTriger' is not known; did you mean 'max"):
        parse_source_options({**REQUIRED, "maxOfsetsPerTriger": "7"})


def test_a_name_like_no_other_is_answered_with_the_list() -> None:
    with pytest.raises(OptionUnknown, match="known are endpoint, topic, startingOffsets"):
        parse_source_options({**REQUIRED, "zzz": "7"})


@pytest.mark.parametrize("name", ["endpoint", "topic"])
def test_a_missing_required_option_is_named(name: str) -> None:
    given = {key: value for key, value in REQUIRED.items() if key != name}
    with pytest.raises(OptionMissing, match=f"^CURLEW_OPTION_MISSING: option '{name}' is required"):
        parse_source_options(given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "abc"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "-1"),
        ("maxOffsetsPerTrigger", "1.5"),
        ("maxOffsetsPerTrigger", "1" * 40),
        ("maxRecordsPerPartition", "-1"),
        ("pullMaxMessages", "0"),
        ("pullMaxBytes", "12"),
        ("retries", "many"),
        ("failOnDataLoss", "yes"),
        ("includeProperties", ""),
        ("topic", "a/b"),
        ("endpoint", "localhost:8710"),
        ("endpoint", "ftp://localhost"),
        ("endpoint", "http://"),
        ("startingOffsets", "newest"),
        ("startingOffsets", "[]"),
        ("startingOffsets", '{"other":{"0":1}}'),
        ("startingOffsets", '{"orders":{}}'),
        ("startingOffsets", '{"orders":{"0":-3}}'),
        ("startingOffsets", '{"orders":{"0":true}}'),
        ("startingOffsets", '{"orders":{"a":1}}'),
        ("startingOffsets", '{"orders":{"0":1},"other":{"0":1}}'),
    ],
)
def test_a_bad_value_is_refused_and_quoted(name: str, value: str) -> None:
    with pytest.raises(OptionInvalid, match=f"^CURLEW_OPTION_INVALID: option '{name}' = "):
        parse_source_options({**REQUIRED, name: value})


def test_credentials_in_the_endpoint_are_refused_and_not_repeated() -> None:
    for address in ("http://me:secret@mq:8710", "ftp://me:secret@mq:8710"):
        with pytest.raises(OptionInvalid) as refusal:
            parse_source_options({**REQUIRED, "endpoint": address})
        assert "secret" not in str(refusal.value)


def test_starting_offsets_by_queue() -> None:
    options = parse_source_options(
        {**REQUIRED, "startingOffsets": '{"orders":{"0":23,"1":-2,"12":-1}}'}
    )
    assert options.starting_offsets == StartingOffsets("earliest", {0: 23, 1: EARLIEST, 12: LATEST})

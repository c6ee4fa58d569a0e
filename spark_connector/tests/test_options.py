"""Options: defaults, refusals, and the words of the refusals."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark_curlew.errors import (
    ConnectorError,
    OptionConflict,
    OptionInvalid,
    OptionMissing,
    OptionUnknown,
)
from pyspark_curlew.http.http_options import TlsOptions
from pyspark_curlew.kafka_names import CLIENT_HINTS, HINTS
from pyspark_curlew.options import (
    KNOWN,
    SINK_NAMES,
    TopicChoice,
    TriggerLimits,
    parse_batch_options,
    parse_stream_options,
)
from pyspark_curlew.reading.positions_wanted import EARLIEST, LATEST, Bound
from pyspark_curlew.writing.sink_options import parse_sink_options

REQUIRED = {"endpoint": "http://127.0.0.1:8710", "topic": "orders"}


def test_defaults_are_the_documented_ones() -> None:
    options = parse_stream_options(REQUIRED)
    assert options.topics == TopicChoice(("orders",))
    assert options.http.endpoints == ("http://127.0.0.1:8710",)
    assert options.starting == Bound("latest", too_new="error")
    assert options.trigger == TriggerLimits(None, None, 0, 900_000)
    assert options.tasks.min_tasks == 1
    assert (options.consumer_group, options.commit_offsets) == (None, False)
    assert (options.tasks.max_records, options.tasks.min_records) == (250_000, 32)
    assert options.fail_on_data_loss is True
    assert options.include_properties is False
    assert (options.pull_max_messages, options.pull_max_bytes) == (16_384, 16 * 1024 * 1024)
    assert options.poll_wait_ms == 1000
    assert options.http.retry_timeout_ms == 120_000
    assert options.http.for_load.retry_timeout_ms == 10_000


def test_names_are_compared_without_regard_to_case() -> None:
    options = parse_stream_options({**REQUIRED, "MAXOFFSETSPERTRIGGER": "7", "retryTimeoutMs": "0"})
    assert options.trigger.max_offsets == 7
    assert options.http.retry_timeout_ms == options.http.for_load.retry_timeout_ms == 0


def test_a_slash_at_the_end_of_the_endpoint_does_not_matter() -> None:
    options = parse_stream_options({**REQUIRED, "endpoint": "http://mq:8710/base/"})
    assert options.http.endpoints == ("http://mq:8710/base",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "abc"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "-1"),
        ("maxOffsetsPerTrigger", "1.5"),
        ("maxOffsetsPerTrigger", "1" * 40),
        ("maxRecordsPerPartition", "-1"),
        ("minRecordsPerPartition", "few"),
        ("retryTimeoutMs", "many"),
        ("failOnDataLoss", "yes"),
        ("includeProperties", ""),
        ("maxBytesPerTrigger", "0"),
        ("maxTriggerDelay", "15"),
        ("minPartitions", "0"),
        ("consumerGroup", "a b"),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-1"),
        ("startingOffsetsByTimestamp", "17"),
        ("startingOffsetsByTimestamp", '{"orders":{"0":-1}}'),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("startingOffsetsFallback", "newest"),
        ("queues", "[0]"),
        ("queues", '{"orders":[]}'),
        ("queues", '{"orders":["0"]}'),
        ("queues", '{"orders":[-1]}'),
        ("topic", "a/b"),
        ("endpoint", "localhost:8710"),
        ("endpoint", "ftp://localhost"),
        ("endpoint", "http://"),
        ("endpoint", "http://mq:port"),
        ("endpoint", "http://mq:87100"),
        ("endpoint", "http://[::1"),
        ("endpoint", "http://m q:8710"),
        ("endpoint", "http://mq/\r\nX: 1"),
        ("readTimeoutMs", "9" * 18),
        ("connectTimeoutMs", "86400001"),
        ("retryTimeoutMs", "9" * 18),
        ("startingOffsets", "newest"),
        ("startingOffsets", "[]"),
        ("startingOffsets", '{"orders":{}}'),
        ("startingOffsets", '{"orders":{"0":-3}}'),
        ("startingOffsets", '{"orders":{"0":true}}'),
        ("startingOffsets", '{"orders":{"a":1}}'),
    ],
)
def test_a_bad_value_is_refused_and_quoted(name: str, value: str) -> None:
    with pytest.raises(OptionInvalid, match=f"^CURLEW_OPTION_INVALID: option '{name}' = "):
        parse_stream_options({**REQUIRED, name: value})


def test_credentials_in_the_endpoint_are_refused_and_not_repeated() -> None:
    addresses = (
        "http://me:secret@mq:8710",
        "ftp://me:secret@mq:8710",
        "http://me:1/secret@mq:8710",
        "http://me:very/secret@mq:8710",
    )
    for address in addresses:
        with pytest.raises(OptionInvalid) as refusal:
            parse_stream_options({**REQUIRED, "endpoint": address})
        assert "secret" not in str(refusal.value)


def test_starting_offsets_by_queue() -> None:
    options = parse_stream_options(
        {**REQUIRED, "startingOffsets": '{"orders":{"0":23,"1":-2,"12":-1}}'}
    )
    assert options.starting.default == "earliest"
    assert options.starting.offsets == {"orders": {0: 23, 1: EARLIEST, 12: LATEST}}


@pytest.mark.parametrize(
    "text",
    [
        "1700000000123",
        "2023-11-14T22:13:20.123Z",
        "2023-11-14T23:13:20.123+01:00",
        "2023-11-14T22:13:20.122001Z",
        "2023-11-14 22:13:20.123",
    ],
)
def test_times_are_numbers_or_iso_and_without_a_zone_utc(text: str) -> None:
    options = parse_batch_options({**REQUIRED, "startingTimestamp": text, "endingTimestamp": text})
    assert options.starting.timestamp_ms == 1_700_000_000_123
    assert options.ending.timestamp_ms == 1_700_000_000_123


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"topics": "b, a,a"}, TopicChoice(("a", "b"))),
        ({"topicsPattern": "a.*"}, TopicChoice(pattern="a.*")),
        (
            {"topics": "a,b", "queues": '{"a":[0,2]}'},
            TopicChoice(("a", "b"), queues={"a": frozenset({0, 2})}),
        ),
    ],
)
def test_several_topics(given: dict[str, str], expected: TopicChoice) -> None:
    options = parse_stream_options({"endpoint": "http://mq", **given})
    assert options.topics == expected


STREAM, BATCH, SINK = parse_stream_options, parse_batch_options, parse_sink_options


@pytest.mark.parametrize(
    ("parse", "given", "kind", "words"),
    [
        (STREAM, {"endpoint": None}, OptionMissing, "^CURLEW_OPTION_MISSING: .*'endpoint' .*requi"),
        (
            STREAM,
            {"topic": None},
            OptionMissing,
            "^CURLEW_OPTION_MISSING: option 'topic' .*require",
        ),
        (STREAM, {"username": "me"}, OptionMissing, "'password' is required"),
        (STREAM, {"password": "pw"}, OptionMissing, "'username' is required"),
        (STREAM, {"commitOffsets": "true"}, OptionMissing, "'consumerGroup' is required"),
        (STREAM, {"startingOffsets": "committed"}, OptionMissing, "'consumerGroup' is required"),
        (STREAM, {"endpoint": "https://mq", "tls.key": "k"}, OptionMissing, "'tls.cert' is requ"),
        (STREAM, {"maxOfsetsPerTriger": "7"}, OptionUnknown, "did you mean 'maxOffsetsPerTrigger'"),
        (STREAM, {"zzz": "7"}, OptionUnknown, "known are topic, topics, topicsPattern"),
        (STREAM, {"topics": "a"}, OptionConflict, "'topic' and 'topics'"),
        (STREAM, {"topicsPattern": "a"}, OptionConflict, "'topic' and 'topicsPattern'"),
        (STREAM, {"topicsPattern": ""}, OptionConflict, "'topic' and 'topicsPattern'"),
        (STREAM, {"path": "other"}, OptionConflict, "'topic' and 'path' exclude each other"),
        (SINK, {"path": "other"}, OptionConflict, "'topic' and 'path' exclude each other"),
        (STREAM, {"token": "a", "tokenFile": "b"}, OptionConflict, "'token' and 'tokenFile'"),
        (
            STREAM,
            {"tokenEnv": "a", "username": "b", "password": "c"},
            OptionConflict,
            "'tokenEnv' and 'username'",
        ),
        (
            STREAM,
            {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"},
            OptionConflict,
            "'minOffsetsPerTrigger' = 3",
        ),
        (STREAM, {"tls.ca": "/ca.pem"}, OptionConflict, "'tls.ca' needs an 'endpoint' that begins"),
        (STREAM, {"endingOffsets": "latest"}, OptionConflict, "'endingOffsets' is for batch reads"),
        (STREAM, {"endingTimestamp": "1"}, OptionConflict, "'endingTimestamp' is for batch reads"),
        (STREAM, {"sendMaxMessages": "5"}, OptionConflict, "'sendMaxMessages' is for writing"),
        (BATCH, {"idempotence": "true"}, OptionConflict, "'idempotence' is for writing"),
        (BATCH, {"maxOffsetsPerTrigger": "5"}, OptionConflict, "'maxOffsetsPerTrigger' is for str"),
        (BATCH, {"minOffsetsPerTrigger": "5"}, OptionConflict, "'minOffsetsPerTrigger' is for str"),
        (BATCH, {"maxTriggerDelay": "5s"}, OptionConflict, "'maxTriggerDelay' is for streams"),
        (BATCH, {"pollWaitMs": "5"}, OptionConflict, "'pollWaitMs' is for streams"),
        (BATCH, {"consumerGroup": "etl"}, OptionConflict, "'consumerGroup' means nothing without"),
        (STREAM, {"maxTriggerDelay": "5s"}, OptionConflict, "without 'minOffsetsPerTrigger'"),
        (STREAM, {"startingOffsetsFallback": "error"}, OptionConflict, "=committed"),
        (
            BATCH,
            {"startingOffsetsByTimestampStrategy": "latest"},
            OptionConflict,
            "without 'startingTimestamp' or 'startingOffsetsByTimestamp'",
        ),
        (SINK, {"startingOffsets": "latest"}, OptionConflict, "'startingOffsets' is for reading"),
        (SINK, {"includeHeaders": "true"}, OptionConflict, "'includeHeaders' is for reading"),
        (BATCH, {"startingOffsets": "latest"}, OptionInvalid, "'startingOffsets'"),
        (
            BATCH,
            {"startingOffsets": '{"orders":{"0":5,"2":-1}}'},
            OptionInvalid,
            r"puts queue 2 of topic 'orders' at -1 \(latest\)",
        ),
        (BATCH, {"endingOffsets": "earliest"}, OptionInvalid, "'endingOffsets'"),
        (BATCH, {"endingOffsets": '{"orders":{"0":-2}}'}, OptionInvalid, "'endingOffsets'"),
        (
            BATCH,
            {"topic": "orders,invoices"},
            OptionInvalid,
            "several topics are given by 'topics'",
        ),
        (STREAM, {"topic": None, "topicsPattern": "("}, OptionInvalid, "not a regular expression"),
        (STREAM, {"queues": '{"other":[0]}'}, OptionInvalid, "'queues' names topic 'other'"),
        (
            STREAM,
            {"topic": None, "topicsPattern": "a.*", "queues": '{"ab":[0],"b":[0]}'},
            OptionInvalid,
            "'queues' names topic 'b', which is not read",
        ),
        (STREAM, {"token": "two words"}, OptionInvalid, "'token'"),
        (STREAM, {"username": "a:b", "password": "pw"}, OptionInvalid, "'username'"),
        (STREAM, {"headers.Authorization": "x"}, OptionInvalid, "Authorization"),
        (STREAM, {"headers.idempotency-key": "one"}, OptionInvalid, "idempotency-key"),
        (STREAM, {"headers.Content-Encoding": "gzip"}, OptionInvalid, "Content-Encoding"),
        (STREAM, {"headers.a b": "x"}, OptionInvalid, "a b"),
        (STREAM, {"headers.X-A": "x\r\nX-B: y"}, OptionInvalid, "X-A"),
    ],
)
def test_what_cannot_be_is_refused(
    parse: Callable[[Mapping[str, str]], object],
    given: dict[str, str | None],
    kind: type[ConnectorError],
    words: str,
) -> None:
    """Missing, unknown, not together, or with no meaning here; None: the option is left out."""
    options = {name: value for name, value in {**REQUIRED, **given}.items() if value is not None}
    with pytest.raises(kind, match=words):
        parse(options)


@pytest.mark.parametrize("given", [{}, {"startingOffsets": "Earliest"}])
def test_a_batch_begins_at_the_earliest(given: dict[str, str]) -> None:
    options = parse_batch_options({**REQUIRED, **given})
    assert (options.starting.default, options.ending.default) == ("earliest", "latest")


def test_a_group_commits_unless_it_is_told_not_to() -> None:
    assert parse_stream_options({**REQUIRED, "consumerGroup": "etl"}).commit_offsets is True
    given = {**REQUIRED, "consumerGroup": "etl", "commitOffsets": "false"}
    assert parse_stream_options(given).commit_offsets is False


def test_tls_and_headers() -> None:
    options = parse_stream_options(
        {
            **REQUIRED,
            "endpoint": "https://mq",
            "tls.ca": "/ca.pem",
            "tls.verify": "false",
            "headers.X-Tenant": "blue",
        }
    )
    assert options.http.tls == TlsOptions(ca="/ca.pem", verify=False)
    assert options.http.headers == (("X-Tenant", "blue"),)


def test_secrets_are_not_in_the_text_of_options() -> None:
    for secret in ({"token": "s3cret"}, {"username": "me", "password": "s3cret"}):
        options = parse_stream_options({**REQUIRED, **secret, "headers.X-Key": "s3cret"})
        assert "s3cret" not in repr(options)


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90_000), ("500ms", 500), ("1h", 3_600_000), ("2 min", 120_000)]
)
def test_durations(text: str, expected: int) -> None:
    options = parse_stream_options(
        {**REQUIRED, "maxTriggerDelay": text, "minOffsetsPerTrigger": "1"}
    )
    assert options.trigger.max_delay_ms == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kafka.bootstrap.servers", "'endpoint' is the address"),
        ("subscribe", "'topic' names one topic, 'topics' several"),
        ("subscribePattern", "'topicsPattern'"),
        ("assign", "'queues' chooses queues"),
        ("groupId", "'consumerGroup' commits progress"),
        ("groupIdPrefix", "'consumerGroup' commits progress"),
        ("kafka.group.id", "'consumerGroup' commits progress"),
        ("kafkaConsumer.pollTimeoutMs", "'readTimeoutMs'"),
        ("fetchOffset.numRetries", "'retryTimeoutMs'"),
        ("kafka.security.protocol", "begins with https:"),
        ("kafka.sasl.jaas.config", "'token'"),
        ("kafka.client.rack", "'readFrom' says from which replica"),
        ("kafka.client.id", "there is no Kafka client"),
        ("group_id", "'consumerGroup' commits progress"),
        ("caFile", "'tls.ca'"),
        ("retries", "'retryTimeoutMs'"),
        ("group.id", "'consumerGroup' commits progress"),
        ("Sasl.Mechanism", "'token'"),
        ("kafka.ssl.key.password", "PEM files, without a password"),
        ("kafka.value.deserializer", "columns of bytes"),
        ("brokers", "'endpoint' is the address"),
        ("apiKey", "'token'"),
    ],
)
def test_names_of_kafkas_source_are_answered_with_ours(name: str, words: str) -> None:
    for parse in (parse_stream_options, parse_batch_options, parse_sink_options):
        with pytest.raises(OptionUnknown, match=words) as failure:
            parse({**REQUIRED, name: "secret"})
        assert "secret" not in str(failure.value)


def test_all_names_that_are_not_known_are_answered_at_once() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders", "zzz": "1", "yyy": "2"}
    with pytest.raises(OptionUnknown) as failure:
        parse_stream_options(given)
    text = str(failure.value)
    assert "'endpoint' is the address" in text
    assert "'topic' names one topic" in text
    assert text.count("known are topic, topics") == 1
    assert all(f"option {name!r} is not known" in text for name in given)


OTHER_WORDS = {"flush", "key", "value"}
"""What hints name that is no option: a topic's setting, columns."""


def test_every_hint_names_options_that_there_are() -> None:
    known = {name.lower() for name in (*KNOWN, *SINK_NAMES)}
    for name, hint in {**HINTS, **CLIENT_HINTS}.items():
        assert name not in known
        named = [word for word in re.findall(r"'([^' ]+)'", hint) if word not in OTHER_WORDS]
        assert {word.lower() for word in named} <= known, hint


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("paths", "'topics' names several"),
        ("headers", "'includeHeaders' adds a column; a name behind 'headers.' gives"),
        ("header", "did you mean 'headers.<name>'"),
        ("nothing", "headers.<name>"),
    ],
)
def test_what_somebody_writes_for_topics_and_headers_is_answered(name: str, words: str) -> None:
    """Spark gives `paths` for `.load([…])`; no option is called `headers.`."""
    with pytest.raises(OptionUnknown) as refused:
        parse_batch_options({**REQUIRED, name: "a"})
    assert words in str(refused.value)
    assert "'headers.'?" not in str(refused.value)


KEY = f"curlew_{'A' * 13}_{'b' * 49}"


@pytest.mark.parametrize("value", [KEY, f"x{KEY}", "a-b", "eyJ0.eyJ1.sIg", "9A", "s\nx"])
def test_a_key_given_as_the_name_of_a_variable_is_not_repeated(value: str) -> None:
    with pytest.raises(OptionInvalid, match="'tokenEnv' is not the name of an env") as refused:
        parse_batch_options({**REQUIRED, "tokenEnv": value})
    assert value not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("tokenFile", "/run/secrets/curlew_analyticsteam_token"),
        ("tokenFile", f"/run/secrets/curlew_{'a' * 13}_{'token' * 9}"),
        ("tokenEnv", "curlew_analyticsteam_token"),
    ],
)
def test_a_place_that_begins_as_a_key_does_is_taken(name: str, place: str) -> None:
    parse_batch_options({**REQUIRED, name: place})


def test_a_key_in_a_path_is_none(tmp_path: Path) -> None:
    with pytest.raises(OptionInvalid, match="'tokenFile' is a key") as refused:
        parse_batch_options({**REQUIRED, "tokenFile": str(tmp_path / KEY)})
    assert KEY not in str(refused.value)


def test_what_spark_puts_beside_the_options_is_passed_over() -> None:
    own = {"provider": "curlew", "owner": "me", "option.topic": "orders", "queryName": "q"}
    own |= {"checkpointLocation": "/c"}
    for parse in (parse_stream_options, parse_batch_options, parse_sink_options):
        parse({**REQUIRED, **own})


def test_a_path_is_the_topic() -> None:
    given = {"endpoint": "http://127.0.0.1:8710", "path": "orders"}
    assert parse_batch_options(given).topics == TopicChoice(("orders",))
    assert parse_sink_options(given).topic == "orders"

"""`MQ-*` headers and their query aliases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.formats.mq_headers import (
    MESSAGE_HEADERS,
    SendOptions,
    decode_header,
    encode_header,
    read_batch_options,
    read_send_options,
    refuse_mq_headers,
)
from app.api.http.errors import UnknownParameter, UnsupportedFeature
from app.api.http.parameters import Query
from app.api.http.request_context import Headers
from app.domain.errors import CurlewError, IllegalProperty, InvalidRequest
from app.domain.positions import FlushMode


def read(*headers: tuple[bytes, bytes], query: bytes = b"") -> SendOptions:
    return read_send_options(list(headers), {}, query)


def test_every_header_is_read() -> None:
    options = read(
        (b"mq-tag", b"created"),
        (b"mq-keys", b"order-17  user-4"),
        (b"mq-sharding-key", b"user-4"),
        (b"mq-queue-id", b"3"),
        (b"mq-born-time-ms", b"5"),
        (b"mq-durability", b"memory"),
        (b"mq-prop-region", b"eu"),
        (b"mq-properties", b'{"orderId":"7"}'),
    )
    assert options == SendOptions(
        tag="created",
        keys=("order-17", "user-4"),
        sharding_key="user-4",
        queue_id=3,
        born_time_ms=5,  # type: ignore[arg-type]  # a plain number
        flush=FlushMode.ASYNC,
        properties={"region": "eu", "orderId": "7"},
    )


def test_header_and_query_together_are_all_that_is_said() -> None:
    options = read(
        (b"mq-tag", b"a"),
        (b"mq-keys", b"m  n"),
        (b"mq-prop-x", b"1"),
        (b"mq-properties", b'{"x":"1","z":"4"}'),
        query=b"tag=a&keys=m+n&prop_x=1&prop_Y=3&durability=flushed",
    )
    assert (options.tag, options.keys) == ("a", ("m", "n"))
    assert options.properties == {"x": "1", "Y": "3", "z": "4"}
    assert options.flush is FlushMode.SYNC


CONTRADICTIONS: list[tuple[Headers, bytes]] = [
    ([(b"mq-tag", b"a")], b"tag=b"),
    ([(b"mq-keys", b"k")], b"keys=m"),
    ([(b"mq-sharding-key", b"k")], b"sharding_key=m"),
    ([(b"mq-queue-id", b"0")], b"queue_id=1"),
    ([(b"mq-born-time-ms", b"0")], b"born_time_ms=1"),
    ([(b"mq-unique-id", b"a")], b"unique_id=b"),
    ([(b"mq-flag", b"-1")], b"flag=1"),
    ([(b"mq-durability", b"memory")], b"durability=flushed"),
    ([(b"mq-timeout", b"5s")], b"timeout=6s"),
    ([(b"mq-one-way", b"true")], b"one_way=false"),
    ([(b"mq-keep-encoding", b"true")], b"keep_encoding=false"),
    ([(b"mq-client-id", b"a")], b"client_id=b"),
    ([(b"mq-delay", b"1s")], b"delay=2s"),
    ([(b"mq-deliver-at", b"1")], b"deliver_at_ms=2"),
    ([(b"mq-transaction", b"prepare")], b"transaction=other"),
    ([(b"mq-producer-group", b"a")], b"producer_group=b"),
    ([(b"mq-producer-id", b"a")], b"producer_id=b"),
    ([(b"mq-producer-epoch", b"0")], b"producer_epoch=1"),
    ([(b"mq-producer-seq", b"0")], b"producer_seq=1"),
    ([(b"mq-properties", b'{"x":"1"}')], b"properties=%7B%22x%22:%222%22%7D"),
    ([(b"mq-prop-x", b"1"), (b"mq-properties", b'{"x":"2"}')], b""),
    ([(b"mq-properties", b'{"x":"2"}'), (b"mq-prop-x", b"1")], b""),
    ([(b"mq-prop-x", b"1")], b"prop_x=2"),
    ([], b"prop_x=2&properties=%7B%22x%22:%221%22%7D"),
]


@pytest.mark.parametrize(("headers", "query"), CONTRADICTIONS)
def test_what_contradicts_itself_is_refused(headers: Headers, query: bytes) -> None:
    with pytest.raises(InvalidRequest, match="is given twice, as") as caught:
        read(*headers, query=query)
    assert caught.value.fields["parameter"]
    assert "say it once" in (caught.value.hint or "")


def test_every_header_can_contradict_its_alias() -> None:
    assert {headers[0][0] for headers, _ in CONTRADICTIONS if headers} >= set(MESSAGE_HEADERS)


def test_a_trace_of_the_message_outweighs_that_of_the_request() -> None:
    request = {b"traceparent": b"00-request"}
    options = read_send_options([(b"mq-prop-traceparent", b"00-own")], request, b"")
    assert options.properties == {"traceparent": "00-own"}


@pytest.mark.parametrize("value", ["Gr\u00fc\u00dfe".encode(), b"Gr%C3%BC%C3%9Fe"])
def test_utf_8_is_taken_raw_and_percent_encoded(value: bytes) -> None:
    assert read((b"mq-tag", value)).tag == "Gr\u00fc\u00dfe"


@pytest.mark.parametrize("value", [b"\xff", b"%FF"])
def test_what_is_not_utf_8_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read((b"mq-tag", value))
    assert caught.value.fields == {"header": "MQ-Tag"}


def test_trace_context_becomes_a_property() -> None:
    options = read_send_options([], {b"traceparent": b"00-ab-cd-01", b"host": b"x"}, b"")
    assert options.properties == {"traceparent": "00-ab-cd-01"}


@pytest.mark.parametrize(
    ("header", "hint"),
    [
        ((b"mq-tags", b"x"), "did you mean 'MQ-Tag'?"),
        ((b"mq-sharding", b"x"), "did you mean 'MQ-Sharding-Key'?"),
    ],
)
def test_an_unknown_header_is_refused(header: tuple[bytes, bytes], hint: str) -> None:
    with pytest.raises(UnknownParameter) as caught:
        read(header)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    "headers",
    [
        [(b"mq-tag", b"a"), (b"mq-tag", b"b")],
        [(b"mq-prop-", b"x")],
        [(b"mq-properties", b"{")],
        [(b"mq-properties", b'{"a":1}')],
        [(b"mq-queue-id", b"one")],
        [(b"mq-queue-id", b"-1")],
        [(b"mq-born-time-ms", b"now")],
        [(b"mq-durability", b"paper")],
        [(b"mq-durability", b"replicated")],
    ],
)
def test_bad_values_are_refused(headers: Headers) -> None:
    with pytest.raises(CurlewError):
        read(*headers)


def test_replication_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="replicas of its shard is up to the topic"):
        read((b"mq-durability", b"replicated"))


def test_an_empty_property_name_is_refused() -> None:
    with pytest.raises(IllegalProperty):
        read((b"mq-prop-", b"x"))


def test_a_batch_takes_queue_and_durability_only() -> None:
    query = Query(b"queue_id=1", frozenset({"queue_id", "durability"}))
    options = read_batch_options([(b"mq-queue-id", b"1"), (b"mq-durability", b"memory")], query)
    assert (options.queue_id, options.flush) == (1, FlushMode.ASYNC)
    with pytest.raises(UnknownParameter, match="MQ-Tag") as caught:
        read_batch_options([(b"mq-tag", b"x")], query)
    assert "each entry" in (caught.value.hint or "")


@pytest.mark.parametrize("number", ["-1", "2147483648"])
def test_a_queue_has_the_bound_that_a_pull_names(number: str) -> None:
    query = Query(b"queue_id=" + number.encode(), frozenset({"queue_id"}))
    with pytest.raises(InvalidRequest, match=f"{number}; it must be from 0 to 2147483647"):
        read_batch_options([], query)
    with pytest.raises(InvalidRequest, match=f"{number}; it must be from 0 to 2147483647"):
        read((b"mq-queue-id", number.encode()))


def test_an_operation_without_metadata_refuses_any() -> None:
    with pytest.raises(UnknownParameter, match="MQ-Queue-Id"):
        refuse_mq_headers([(b"mq-queue-id", b"1")])


@given(st.text())
def test_header_encoding_is_reversible_and_safe(text: str) -> None:
    encoded = encode_header(text)
    assert decode_header(b"mq-tag", encoded) == text
    assert all(0x20 < byte < 0x7F for byte in encoded)
    assert b'"' not in encoded

"""Request bodies: what they become, and where a fault points."""

from collections.abc import Callable

import msgspec
import pytest

from app.api.formats import decoding
from app.api.formats.cloudevents import decode_events
from app.api.formats.decoding import (
    decode_batch,
    decode_lines,
    envelope_decoder,
    lines_of,
    message_of,
    settle_decoder,
)
from app.api.http.errors import InvalidBody, UnsupportedFeature, error_entries
from app.domain.errors import BatchTooLarge, CurlewError
from app.domain.message import Message


def message(body: bytes) -> Message:
    return message_of(envelope_decoder.decode(body))


def refusal(body: bytes) -> CurlewError:
    with pytest.raises(CurlewError) as caught:
        message(body)
    return caught.value


def test_a_json_body_is_kept_to_the_last_digit() -> None:
    decoded = message(b'{"body": {"n": 12345678901234567890.50, "e": 1E400}}')
    assert decoded.body == b'{"n": 12345678901234567890.50, "e": 1E400}'
    assert decoded.content_type == "application/json"


def test_null_is_a_json_body() -> None:
    assert message(b'{"body":null}').body == b"null"


def test_text_and_bytes() -> None:
    assert message('{"text":"Gr\u00fc\u00dfe"}'.encode()).body == "Gr\u00fc\u00dfe".encode()
    assert message(b'{"text":""}') == Message(b"", content_type="text/plain; charset=utf-8")
    assert message(b'{"body_base64":"AP8="}') == Message(b"\x00\xff")


def test_every_field_arrives() -> None:
    decoded = message(
        b'{"text":"x","tag":"t","keys":["a","b"],"sharding_key":"s","properties":{"P":"1"},'
        b'"content_type":"text/csv","born_time_ms":5}'
    )
    assert decoded == Message(
        b"x",
        tag="t",
        keys=("a", "b"),
        sharding_key="s",
        properties={"P": "1"},
        content_type="text/csv",
        born_time_ms=5,  # type: ignore[arg-type]  # a plain number
    )


@pytest.mark.parametrize("body", [b"{}", b'{"text":"a","body":1}', b'{"tag":"t"}'])
def test_exactly_one_body_is_needed(body: bytes) -> None:
    assert "exactly one" in refusal(body).detail


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"text":1}', "/text"),
        (b'{"text":"x","keys":["a",1]}', "/keys/1"),
        (b'{"text":"x","queue_id":-1}', "/queue_id"),
        (b'{"text":"x","born_time_ms":9223372036854775808}', "/born_time_ms"),
        (b'{"text":"x","tagg":"t"}', "/tagg"),
        (b'{"text":"x","content_type":"a\\r\\nSet-Cookie: x"}', "/content_type"),
        (b'{"body_base64":"%%"}', "/body_base64"),
        (b'{"body":"\xff"}', "/body"),
    ],
)
def test_a_fault_has_its_pointer(body: bytes, pointer: str) -> None:
    error = refusal(body)
    assert isinstance(error, InvalidBody)
    assert [entry["pointer"] for entry in error_entries(error) or ()] == [pointer]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"text":1}', "text must be text, not an integer"),
        (b'{"text":"x","keys":["a",1]}', "entry 1 must be text, not an integer"),
        (b'{"text":"x","keys":{}}', "keys must be an array, not an object"),
        (b'{"text":"x","flag":2147483648}', "flag must be at most 2147483647"),
        (b'{"text":"x","flag":-2147483649}', "flag must be at least -2147483648"),
        (b'{"text":"x","queue_id":-1}', "queue_id must be at least 0"),
        (b'{"text":"x","born_time_ms":1.5}', "born_time_ms must be an integer, not a number"),
        (b"1", "the document must be an object, not an integer"),
    ],
)
def test_a_wrong_type_is_told_in_the_words_of_json(body: bytes, detail: str) -> None:
    assert refusal(body).detail == detail


def test_pointers_into_a_batch_lead_from_its_root() -> None:
    body = b'{"messages":[{"text":"a"},{"text":1},{"txt":"b"},{"text":"c","idempotency_key":"k"}]}'
    entries = decode_batch(body, 1_000)
    found = [error_entries(each) for each in entries if isinstance(each, CurlewError)]
    pointers = [errors[0]["pointer"] for errors in found if errors]
    assert pointers == ["/messages/1/text", "/messages/2/txt", "/messages/3/idempotency_key"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"text":"x"} 1'])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    assert isinstance(refusal(body), InvalidBody)


def test_a_misspelt_field_gets_a_hint() -> None:
    assert refusal(b'{"text":"x","sharding_ky":"s"}').hint == "did you mean 'sharding_key'?"


@pytest.mark.parametrize("field", ["transaction", "idempotency_key"])
def test_a_field_of_a_later_version_is_refused_by_name(field: str) -> None:
    error = refusal(msgspec.json.encode({"text": "x", field: "30s"}))
    assert isinstance(error, UnsupportedFeature)
    assert error.pointer == f"/{field}"


def test_a_faulty_entry_leaves_the_others_alone() -> None:
    entries = decode_batch(b'{"messages":[{"text":"a"},{"tex":"b"},{"id":"c","body":[1]}]}', 3)
    assert [type(entry).__name__ for entry in entries] == [
        "BatchEntry",
        "InvalidBody",
        "BatchEntry",
    ]
    assert entries[2].id == "c"  # type: ignore[union-attr]


def test_a_fault_outside_the_entries_refuses_the_batch() -> None:
    for body in (b'{"messages":1}', b'{"message":[]}', b'{"messages":[{"text":"a"}]'):
        with pytest.raises(InvalidBody):
            decode_batch(body, 10)


def test_lines_are_entries_of_their_own() -> None:
    entries = decode_lines(b'{"text":"a"}\n\n{"text":\r\n  {"body":2}\r\n \n', 3)
    assert [type(entry).__name__ for entry in entries] == [
        "BatchEntry",
        "InvalidBody",
        "BatchEntry",
    ]


@pytest.mark.parametrize(
    ("decode", "entry", "glue", "around"),
    [
        (decode_batch, b"1", b",", b'{"messages":[%b]}'),
        (decode_batch, b'{"text":""}', b",", b'{"messages":[%b]}'),
        (decode_lines, b"1", b"\n \n", b"\n%b\n\n"),
        (lines_of, b" ", b"\n\n", b"\n%b\n"),
        (decode_events, b"1", b",", b"[%b]"),
    ],
)
def test_a_batch_of_too_many_is_refused_before_its_faults_are_looked_at(
    decode: Callable[[bytes, int], list[object]],
    entry: bytes,
    glue: bytes,
    around: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(decode(around % glue.join([entry] * 5), 5)) == 5
    monkeypatch.setattr(decoding, "decode_fault", None)
    with pytest.raises(BatchTooLarge) as caught:
        decode(around % glue.join([entry] * 6), 5)
    assert caught.value.fields == {"limit_messages": 5}


def test_commas_in_messages_are_no_messages() -> None:
    assert len(decode_batch(b'{"messages":[{"body":[1,2,3]},{"text":",,,"}]}', 2)) == 2


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (b'{"nacks":[{"receipt_handel":"h"}]}', "did you mean 'receipt_handle'?"),
        (b'{"nacks":[{"releases":"h"}]}', "known here: count_attempt, delay, delay_ms, "),
        (b'{"delays":1}', "known here: acks, dead_letters, extends, nacks, releases, sends"),
        (b'{"sends":[{"topic":"t","text":"a","tags":"b"}]}', "did you mean 'tag'?"),
    ],
)
def test_a_hint_names_fields_of_the_object_that_has_the_unknown_one(body: bytes, hint: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        settle_decoder.decode(body)
    assert str(caught.value.hint).startswith(hint)


def test_an_empty_and_a_cut_off_body_say_what_to_do() -> None:
    empty, cut = refusal(b""), refusal(b'{"text":')
    assert (empty.detail, cut.detail) == ("the request body is empty", "the JSON ends too early")
    assert "text" in str(empty.hint)
    assert cut.hint


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (rb'{"text":"\ud800"}', r"\ud800 stands for half of a character: it is no text"),
        (rb'{"text":"\udC00 x"}', r"\udC00 stands for half of a character: it is no text"),
        (rb'{"text":"\\ud800', "the JSON ends too early"),
        (rb'{"text":"\ud83d\ude00', "the JSON ends too early"),
        (b'{"text":"\xff"}', "the JSON is not UTF-8: it has the byte 0xff"),
        (b'{"body":' + b"[" * 100_000, "the JSON is nested too deeply"),
    ],
)
def test_bodies_that_are_no_text_are_told_apart(body: bytes, detail: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        envelope_decoder.decode(body)
    assert caught.value.detail == detail
    assert caught.value.hint


def test_an_empty_settle_names_its_own_fields_only() -> None:
    with pytest.raises(InvalidBody) as caught:
        settle_decoder.decode(b"")
    known = "acks, dead_letters, extends, nacks, releases, sends"
    assert caught.value.hint == f"send JSON; known here: {known}"


def test_a_field_that_is_missing_is_named_and_pointed_at() -> None:
    with pytest.raises(InvalidBody) as caught:
        decode_batch(b"{}", 1_000)
    said = [(entry["pointer"], entry["detail"]) for entry in error_entries(caught.value) or ()]
    assert caught.value.detail == "messages is missing"
    assert said == [("/messages", "messages is missing")]


def test_so_is_one_of_what_is_nested() -> None:
    with pytest.raises(InvalidBody) as caught:
        settle_decoder.decode(b'{"sends":[{"topic":"t","text":"a"},{"text":"b"}]}')
    assert caught.value.detail == "topic is missing"
    assert [entry["pointer"] for entry in error_entries(caught.value) or ()] == ["/sends/1/topic"]

"""A message in headers: apart while few, together when many, refused when clients read no more."""

import msgspec
import pytest

from app.api.formats.mq_headers import decode_header
from app.api.formats.raw_message import check_raw, property_headers
from app.api.http.errors import NotAcceptable
from app.api.http.request_context import Headers
from app.domain.limits import (
    RAW_HEADERS_BYTES_MAX,
    RAW_PROPERTY_HEADERS_BYTES_MAX,
    RAW_PROPERTY_HEADERS_MAX,
)


def together(headers: Headers) -> dict[str, str]:
    ((name, value),) = headers
    assert name == b"mq-properties"
    found: dict[str, str] = msgspec.json.decode(decode_header(name, value))
    return found


def test_few_have_headers_of_their_own() -> None:
    properties = {f"p{number}": "x" for number in range(RAW_PROPERTY_HEADERS_MAX)}
    names = [name for name, _ in property_headers(properties)]
    assert names == [b"mq-prop-" + name.encode() for name in properties]


def test_one_more_and_all_go_in_one() -> None:
    properties = {f"p{number}": 'é % "' for number in range(RAW_PROPERTY_HEADERS_MAX + 1)}
    assert together(property_headers(properties)) == properties


@pytest.mark.parametrize("excess", [0, 1])
def test_large_ones_go_in_one(excess: int) -> None:
    line = len("mq-prop-a: \r\n")
    properties = {"a": "x" * (RAW_PROPERTY_HEADERS_BYTES_MAX - line + excess)}
    headers = property_headers(properties)
    assert headers[0][0] == (b"mq-properties" if excess else b"mq-prop-a")


def test_attributes_of_an_event_go_with_the_others() -> None:
    properties = {"ce-specversion": "1.0", "traceparent": "00-1", "large": "x" * 5_000}
    assert together(property_headers(properties)) == properties


@pytest.mark.parametrize("excess", [0, 1])
def test_what_clients_do_not_read_is_refused(excess: int) -> None:
    line = len("mq-keys: \r\n")
    headers = [(b"mq-keys", b"k" * (RAW_HEADERS_BYTES_MAX - line + excess))]
    if not excess:
        assert check_raw(headers, "id-1") == headers
        return
    with pytest.raises(NotAcceptable, match="message id-1 has 57345 bytes") as refused:
        check_raw(headers, "id-1")
    assert refused.value.fields["message_id"] == "id-1"
    assert "JSON" in (refused.value.hint or "")

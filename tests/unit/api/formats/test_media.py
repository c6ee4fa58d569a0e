"""Media types: how a body is read, and which form an answer takes."""

import pytest

from app.api.formats.media import (
    batch_content,
    pull_answer_kind,
    require_json,
    send_content,
)
from app.api.http.errors import NotAcceptable
from app.domain.errors import InvalidRequest, UnsupportedContentType


def test_any_content_type_is_a_raw_message_but_the_envelope() -> None:
    assert send_content(None) == ("raw", None)
    assert send_content(b"application/json") == ("raw", "application/json")
    assert send_content(b"Application/VND.curlew+json; charset=utf-8") == ("envelope", None)


def test_one_cloud_event_is_taken_in_json_only() -> None:
    assert send_content(b"application/CloudEvents+json; charset=utf-8") == ("event", None)
    for other in (b"application/cloudevents-batch+json", b"application/cloudevents+xml"):
        with pytest.raises(UnsupportedContentType):
            send_content(other)


def test_a_frame_or_a_misspelt_envelope_is_not_taken_for_a_raw_message() -> None:
    for other in (b"application/vnd.curlew.batch", b"application/vnd.curlew.message+json"):
        with pytest.raises(UnsupportedContentType, match="not taken for one message") as caught:
            send_content(other)
        assert "application/vnd.curlew+json" in str(caught.value.hint)


def test_a_content_type_must_fit_a_header_again() -> None:
    with pytest.raises(InvalidRequest):
        send_content(b"text/\xff")


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        (None, "json"),
        (b"application/json; charset=utf-8", "json"),
        (b"application/x-www-form-urlencoded", "json"),
        (b"application/x-ndjson", "ndjson"),
        (b"application/vnd.curlew.batch", "frames"),
        (b"application/cloudevents-batch+json", "events"),
    ],
)
def test_batches_have_three_forms(content_type: bytes | None, kind: str) -> None:
    assert batch_content(content_type) == kind


@pytest.mark.parametrize("check", [batch_content, require_json])
def test_other_content_types_are_refused(check: object) -> None:
    with pytest.raises(UnsupportedContentType, match="text/xml"):
        check(b"text/xml")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "json"),
        (b"*/*", "json"),
        (b"text/html, application/*;q=0.5", "json"),
        (b"application/json;q=0.5, application/x-ndjson", "ndjson"),
        (b"application/vnd.curlew.batch, */*;q=0.1", "frames"),
    ],
)
def test_the_best_acceptable_form_is_given(accept: bytes | None, kind: str) -> None:
    assert pull_answer_kind(accept) == kind


@pytest.mark.parametrize("accept", [b"text/html", b"application/json;q=0", b"application/json;q=x"])
def test_nothing_acceptable_is_said(accept: bytes) -> None:
    with pytest.raises(NotAcceptable):
        pull_answer_kind(accept)

"""How bodies read: numbers keep every digit, and nothing is too long."""

import base64

import pytest

from app.web.messaging.message_bodies import (
    HEX_BYTES_MAX,
    SHOWN_BYTES_MAX,
    shown_body,
    with_preview,
)


@pytest.mark.parametrize("number", ["23958446825181076828", "1.10", "1e400", "0.1000", "-0"])
def test_json_is_indented_without_touching_numbers(number: str) -> None:
    shown = shown_body(f'{{"n":{number},"a":[1]}}'.encode(), "")
    assert shown.form == "json"
    assert shown.text == f'{{\n  "n": {number},\n  "a": [\n    1\n  ]\n}}'


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"hello", "text"),
        (b"a\tb\r\nc", "text"),
        (b"{no json", "text"),
        (b"\x00\x01", "hex"),
        (b"\xff\xfe", "hex"),
        (b"", "text"),
    ],
)
def test_the_form_that_suits_a_body(body: bytes, form: str) -> None:
    assert shown_body(body, "nonsense").form == form


def test_hexadecimal_has_places_and_letters() -> None:
    shown = shown_body(b"hello\x00\xff world, again", "hex")
    first, second = shown.text.splitlines()
    assert first == "00000000  68 65 6c 6c 6f 00 ff 20 77 6f 72 6c 64 2c 20 61  hello.. world, a"
    assert second.startswith("00000010  67 61 69 6e ")
    assert second.endswith("  gain")


def test_base64_gives_the_bytes_back() -> None:
    assert base64.b64decode(shown_body(b"\x00\xff", "base64").text) == b"\x00\xff"


def test_what_is_no_json_stays_as_it_is() -> None:
    assert shown_body(b"\xff{", "json").text == "\N{REPLACEMENT CHARACTER}{"


@pytest.mark.parametrize("form", ["json", "text", "base64"])
def test_a_long_body_is_cut_and_says_so(form: str) -> None:
    shown = shown_body(b"x" * (SHOWN_BYTES_MAX + 1), form)
    assert (shown.shown_bytes, shown.size) == (SHOWN_BYTES_MAX, SHOWN_BYTES_MAX + 1)
    assert shown_body(b"\x00" * 100_000, "hex").shown_bytes == HEX_BYTES_MAX


def test_deep_json_ends_no_page() -> None:
    assert shown_body(b"[" * 100_000, "").form in {"json", "text"}


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"a\n  b", "a b"),
        (b"\x00\xff", "AP8="),
        (b"", ""),
        (b'{"a": 1e400, "b": 12345678901234567890123}',) * 2,
        ("鸟".encode() * 160, "鸟" * 160),
        ("鸟".encode()[:2], "6bg="),
        (b"x" * 5_000_000, "x" * 160 + "…"),
        ("鸟".encode() * 1_000_000, "鸟" * 160 + "…"),
    ],
)
def test_a_preview_is_one_short_line_as_it_was_sent(body: bytes, shown: str | bytes) -> None:
    text = shown if isinstance(shown, str) else shown.decode()
    assert with_preview({"body_base64": base64.b64encode(body).decode()}) == {"preview": text}
    assert with_preview({}) == {"preview": ""}


def test_the_form_of_a_long_body_is_told_by_its_beginning() -> None:
    assert shown_body("鸟".encode() * 200_000, "").form == "text"
    assert shown_body(b"x" * SHOWN_BYTES_MAX + b"\xff", "").form == "text"
    assert shown_body(b"\xff" + b"x" * SHOWN_BYTES_MAX, "").form == "hex"

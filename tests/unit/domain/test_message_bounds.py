"""Every text of a message has a bound by name: taken at it, refused above, and the limit named."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from app.domain.errors import InvalidRequest, PropertiesTooLarge
from app.domain.limits import (
    CONTENT_TYPE_BYTES_MAX,
    FIXED_LIMITS,
    KEY_BYTES_MAX,
    KIB,
    MESSAGE_ID_BYTES_MAX,
    MESSAGE_PROPERTIES_BYTES_MAX,
    PROPERTIES_ADDED_BYTES_MAX,
    PROPERTIES_ENCODED_BYTES_MAX,
    SHARDING_KEY_BYTES_MAX,
    Limits,
)
from app.domain.message import Message, check_message
from app.store.formats.record.record import encode_properties

LIMITS = Limits()


class Field(NamedTuple):
    """A text of a message: how to make one, its bound in bytes, and where a refusal points."""

    make: Callable[[str], Message]
    limit: int
    pointer: str


FIELDS = {
    "tag": Field(lambda text: Message(b"", tag=text), LIMITS.tag_bytes_max, "/tag"),
    "keys": Field(lambda text: Message(b"", keys=("k", text)), KEY_BYTES_MAX, "/keys/1"),
    "sharding_key": Field(
        lambda text: Message(b"", sharding_key=text), SHARDING_KEY_BYTES_MAX, "/sharding_key"
    ),
    "content_type": Field(
        lambda text: Message(b"", content_type=text), CONTENT_TYPE_BYTES_MAX, "/content_type"
    ),
    "message_id": Field(
        lambda text: Message(b"", message_id=text), MESSAGE_ID_BYTES_MAX, "/message_id"
    ),
    "unique_id": Field(
        lambda text: Message(b"", unique_id=text), MESSAGE_ID_BYTES_MAX, "/unique_id"
    ),
    "properties": Field(
        lambda text: Message(b"", properties={"n": text}),
        LIMITS.properties_bytes_max - len("n") - 2,
        "/properties",
    ),
}
NO_TEXTS = {"body", "encoding", "born_time_ms", "system", "reconsume_times", "flag"}
TEXTS = set(Message.__struct_fields__) - NO_TEXTS
ASCII_ONLY = {"unique_id"}


def test_every_text_of_a_message_is_here() -> None:
    assert set(FIELDS) == TEXTS


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("letter", ["x", "ü", "漢", "🐦"])
def test_a_text_is_taken_at_its_bound_and_refused_above(name: str, letter: str) -> None:
    if name in ASCII_ONLY:
        letter = "x"
    field, width = FIELDS[name], len(letter.encode())
    fill = "x" * (field.limit % width)
    for text in (letter * (field.limit // width) + fill, letter * (field.limit // width - 1)):
        check_message(field.make(text), LIMITS)
    for text in (letter * (field.limit // width) + fill + "x", letter * (10 * field.limit)):
        with pytest.raises(InvalidRequest) as refused:
            check_message(field.make(text), LIMITS)
        assert refused.value.pointer == field.pointer
        assert str(refused.value.fields["limit_bytes"]) in refused.value.detail
        assert len(refused.value.detail) < 300


@pytest.mark.parametrize("count", [32, 33, 320])
def test_keys_are_counted(count: int) -> None:
    message = Message(b"", keys=("k" * KEY_BYTES_MAX,) * count)
    if count <= LIMITS.keys_count_max:
        check_message(message, LIMITS)
        return
    with pytest.raises(InvalidRequest, match=f"at most {LIMITS.keys_count_max}"):
        check_message(message, LIMITS)


def test_text_that_is_no_unicode_is_refused() -> None:
    for name, field in FIELDS.items():
        if name != "properties":
            with pytest.raises(InvalidRequest):
                check_message(field.make("\ud800"), LIMITS)


def largest(limits: Limits) -> Message:
    """All texts at their bounds, as far as the bound of all together lets them."""
    message = Message(
        b"body",
        tag="t" * limits.tag_bytes_max,
        keys=tuple(f"{n:02}" + "k" * (KEY_BYTES_MAX - 2) for n in range(limits.keys_count_max)),
        sharding_key="s" * SHARDING_KEY_BYTES_MAX,
        content_type="text/" + "c" * (CONTENT_TYPE_BYTES_MAX - 5),
        message_id="i" * MESSAGE_ID_BYTES_MAX,
    )
    room = MESSAGE_PROPERTIES_BYTES_MAX - len(encode_properties(message)) - 100
    value = "v" * min(limits.properties_bytes_max - 3, room)
    return replace(message, properties={"n": value})


@pytest.mark.parametrize("properties_bytes_max", [16 * KIB, 32_767])
def test_all_texts_together_have_a_bound_that_leaves_room_for_what_is_added(
    properties_bytes_max: int,
) -> None:
    limits = Limits(properties_bytes_max=properties_bytes_max)
    message = largest(limits)
    check_message(message, limits)
    encoded = len(encode_properties(message))
    assert encoded <= MESSAGE_PROPERTIES_BYTES_MAX
    assert MESSAGE_PROPERTIES_BYTES_MAX + PROPERTIES_ADDED_BYTES_MAX == PROPERTIES_ENCODED_BYTES_MAX
    over = replace(message, properties={"n": message.properties["n"] + "v" * 200})
    with pytest.raises(PropertiesTooLarge) as refused:
        check_message(over, limits)
    assert refused.value.fields["limit_bytes"] in (
        MESSAGE_PROPERTIES_BYTES_MAX,
        properties_bytes_max,
    )


def test_the_bounds_are_served() -> None:
    for name in ("key", "sharding_key", "content_type", "message_id", "message_properties"):
        assert FIXED_LIMITS[f"{name}_bytes_max"] > 0

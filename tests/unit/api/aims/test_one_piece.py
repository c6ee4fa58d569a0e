"""A batch that is one piece goes where all its messages have to go, if that is one shard."""

import pytest

from app.api.aims.aim import BODY, HERE
from app.api.aims.of_sends import A_BATCH
from tests.unit.api.aims.test_keys import NAMES, PLACES, TOPIC, asked

JSON = (b"content-type", b"application/json")
PRODUCER = (b"mq-producer-id", b"me:1")


def aimed(body: bytes) -> object:
    assert A_BATCH.body is not None
    return A_BATCH.body(asked(PRODUCER), NAMES, PLACES, body)


@pytest.mark.parametrize(
    "header",
    [PRODUCER, (b"idempotency-key", b'"k"'), (b"prefer", b"handling=strict")],
)
def test_its_body_says_where(header: tuple[bytes, bytes]) -> None:
    assert A_BATCH.head(asked(header), NAMES, PLACES) is BODY
    assert A_BATCH.head(asked(JSON, header), NAMES, PLACES) is BODY
    named = asked(header, (b"mq-queue-id", b"7"))
    assert A_BATCH.head(named, NAMES, PLACES) == "7"


def test_others_are_for_their_handler_and_frames_for_their_home() -> None:
    frame = (b"content-type", b"application/vnd.curlew.batch")
    assert A_BATCH.head(asked(frame, PRODUCER), NAMES, PLACES) == PLACES.of_home(TOPIC, "me:1")
    assert A_BATCH.head(asked(JSON), NAMES, PLACES) is not BODY


def test_keys_of_one_shard_go_there() -> None:
    body = b'{"messages":[{"sharding_key":"k"},{"sharding_key":"k"}]}'
    assert aimed(body) == PLACES.of_key(TOPIC, "k")
    assert aimed(b'{"messages":[{"queue_id":7},{"body":"x"}]}') == "7"


def test_keys_of_two_shards_are_for_the_handler_which_refuses() -> None:
    assert aimed(b'{"messages":[{"sharding_key":"k"},{"sharding_key":"l"}]}') is HERE


def test_without_keys_it_goes_to_its_home() -> None:
    assert aimed(b'{"messages":[{"body":"x"}]}') == PLACES.of_home(TOPIC, "me:1")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b'{"messages":1}'])
def test_what_cannot_be_read_is_for_the_handler(body: bytes) -> None:
    assert aimed(body) is HERE

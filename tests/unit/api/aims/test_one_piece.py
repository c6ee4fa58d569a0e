"""A batch that is one piece goes where all its messages have to go, if that is one shard."""

import pytest

from app.api.aims.aim import BODY, HERE
from app.api.aims.of_sends import A_BATCH
from app.domain.errors import OtherShard
from tests.unit.api.aims.test_keys import NAMES, PLACES, TOPIC, asked

JSON = (b"content-type", b"application/json")
PRODUCER = (b"mq-producer-id", b"me:1")
STRICT = (b"prefer", b"handling=strict")


def aimed(body: bytes) -> object:
    assert A_BATCH.body is not None
    return A_BATCH.body(asked(PRODUCER), NAMES, PLACES, body)


@pytest.mark.parametrize(
    "header",
    [PRODUCER, (b"idempotency-key", b'"k"'), STRICT],
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


def test_keys_of_two_shards_are_refused_and_a_producer_is_told_to_ask_for_the_route() -> None:
    assert A_BATCH.body is not None
    body = b'{"messages":[{"sharding_key":"k"},{"sharding_key":"l"}]}'
    assert aimed(body) is HERE
    with pytest.raises(OtherShard) as raised:
        A_BATCH.body(asked(STRICT), NAMES, PLACES, body)
    assert raised.value.outcome == "not_stored"
    assert raised.value.fields == {"shard": PLACES.of_key(TOPIC, "l")}


LINES = (b"content-type", b"application/x-ndjson")
EVENTS = (b"content-type", b"application/cloudevents-batch+json")


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (LINES, b'{"sharding_key":"k"}\n\n{"sharding_key":"k"}\n', b'{"sharding_key":"l"}\n'),
        (EVENTS, b'[{"partitionkey":"k"},{"sharding_key":"k"}]', b'[{"partitionkey":"l"}]'),
    ],
)
def test_lines_and_events_say_it_too(kind: tuple[bytes, bytes], one: bytes, two: bytes) -> None:
    assert A_BATCH.body is not None
    request = asked(kind, STRICT)
    assert A_BATCH.head(request, NAMES, PLACES) is BODY
    assert A_BATCH.body(request, NAMES, PLACES, one) == PLACES.of_key(TOPIC, "k")
    both = one + two if kind is LINES else one[:-1] + b"," + two[1:]
    with pytest.raises(OtherShard):
        A_BATCH.body(request, NAMES, PLACES, both)


@pytest.mark.parametrize(
    ("kind", "around", "between"),
    [(JSON, b'{"messages":[%b]}', b","), (LINES, b"%b\n", b"\n"), (EVENTS, b"[%b]", b",")],
)
def test_too_many_messages_are_for_the_handler(
    kind: tuple[bytes, bytes], around: bytes, between: bytes
) -> None:
    assert A_BATCH.body is not None
    request, most = asked(kind, STRICT), PLACES.limits.batch_messages_max
    keyed = b'{"sharding_key":"k","type":"t"}'
    body = around % between.join([keyed] * most)
    assert A_BATCH.body(request, NAMES, PLACES, body) == PLACES.of_key(TOPIC, "k")
    body = around % between.join([keyed] * (most + 1))
    assert A_BATCH.body(request, NAMES, PLACES, body) is HERE


def test_without_keys_it_goes_to_its_home() -> None:
    assert aimed(b'{"messages":[{"body":"x"}]}') == PLACES.of_home(TOPIC, "me:1")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b'{"messages":1}'])
def test_what_cannot_be_read_is_for_the_handler(body: bytes) -> None:
    assert aimed(body) is HERE

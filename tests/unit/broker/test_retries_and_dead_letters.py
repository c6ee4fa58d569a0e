"""Copies keep what the message was and where it came from, however often they are copied."""

from msgspec.structs import replace

from app.broker.retries_and_dead_letters import (
    Origin,
    as_original,
    dead_letter,
    origin_of,
    plain_copy,
    reason_of,
    retry_copy,
)
from app.domain.limits import Limits
from app.domain.message import Message, StoredMessage, check_message
from app.domain.positions import TimestampMs
from app.store.formats.record.record import decode_message, encode_properties, encode_record

ORIGINAL = Message(
    b"\x00\xff",
    tag="created",
    keys=("order-17",),
    sharding_key="customer-3",
    properties={"region": "eu"},
    content_type="application/json",
    born_time_ms=TimestampMs(111),
)


def stored(message: Message, topic: str, queue_id: int, offset: int, at: int) -> StoredMessage:
    record = encode_record(
        topic=topic.encode(),
        queue_id=queue_id,
        queue_offset=offset,
        physical_offset=at,
        body=message.body,
        properties=encode_properties(message),
        born_time_ms=message.born_time_ms or 0,
        store_time_ms=1000 + at,
        store_host=bytes(8),
        reconsume_times=message.reconsume_times,
    )
    return decode_message(record, bytes(4))


FIRST = stored(ORIGINAL, "orders", 3, 17, 500)
PLACE = Origin("orders", 3, 17, FIRST.message_id, 1500)


def test_a_copy_of_a_copy_keeps_the_first_origin() -> None:
    retried = stored(retry_copy(FIRST, 1, "no stock"), "%RETRY%g+orders", 0, 4, 900)
    assert origin_of(FIRST) == origin_of(retried) == PLACE
    assert (reason_of(retried), retried.reconsume_times) == ("no stock", 1)
    again = stored(retry_copy(retried, 2, None), "%RETRY%g+orders", 0, 5, 990)
    assert origin_of(again) == PLACE
    assert (reason_of(again), again.reconsume_times) == (None, 2)
    dead = stored(dead_letter(again, 3, "3 attempts failed"), "%DLQ%g", 0, 0, 2000)
    assert origin_of(dead) == PLACE
    assert dead.system["DLQ_ORIGIN_TOPIC"] == "orders"
    assert dead.system["DLQ_ORIGIN_MESSAGE_ID"] == FIRST.message_id
    assert (reason_of(dead), dead.reconsume_times) == ("3 attempts failed", 3)


def test_a_copy_reads_as_the_original() -> None:
    retried = stored(retry_copy(FIRST, 1, "x"), "%RETRY%g+orders", 0, 4, 900)
    shown = as_original(retried)
    same = replace(shown, physical_offset=FIRST.physical_offset, reconsume_times=0, system={})
    assert same == FIRST
    assert as_original(FIRST) == FIRST
    assert plain_copy(retried) == ORIGINAL


def test_a_reason_is_storable_whatever_was_given() -> None:
    nasty = "a\x01b\x02c\nd\ud800 " + "x" * 5000
    copy = retry_copy(FIRST, 1, nasty)
    reason = reason_of(stored(copy, "%RETRY%g+orders", 0, 4, 900))
    assert reason is not None
    assert reason.startswith("a b c d  xxx")
    assert len(reason) <= 1024
    check_message(replace(copy, system={}), Limits())
    assert reason_of(stored(retry_copy(FIRST, 1, " \x01"), "t", 0, 4, 900)) is None

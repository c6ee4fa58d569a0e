"""What an envelope alone asks for, and the same beside options that say nothing of the message."""

import pytest

from app.api.formats.merging import is_small, message_to_send
from app.api.formats.mq_headers import SendOptions

ENVELOPES = [
    b'{"text":"a"}',
    b'{"text":"a","tag":"t","keys":["k"],"sharding_key":"s","properties":{"p":"v"}}',
    b'{"body":{"a":1},"flag":7,"queue_id":2,"unique_id":"u","born_time_ms":5}',
    b'{"body_base64":"AAE=","delay":"9s","content_type":"image/png"}',
    b'{"text":"a","deliver_at_ms":99,"flag":0,"keys":[]}',
]
SAYS_WHO_SENDS = SendOptions(client_id="anna")
"""No part of the message."""


@pytest.mark.parametrize("body", ENVELOPES)
def test_an_envelope_without_options_is_what_it_is_beside_them(body: bytes) -> None:
    alone = message_to_send("envelope", None, body, SendOptions())
    assert alone == message_to_send("envelope", None, body, SAYS_WHO_SENDS)


@pytest.mark.parametrize(
    ("entry", "count", "expected"),
    [
        (b'{"text":"x"}', 0, True),
        (b'{"text":"x"}', 1_900, True),
        (b'{"text":"x"}', 2_100, False),
        (b"x\n", 2_100, False),
        (b'{"text":"' + b"x" * 1_024 + b'"}', 240, True),
        (b'{"text":"' + b"x" * 1_024 + b'"}', 260, False),  # by its bytes
    ],
)
def test_many_entries_are_for_a_thread(entry: bytes, count: int, *, expected: bool) -> None:
    assert is_small(entry * count) is expected
    assert is_small(memoryview(bytearray(entry * count))) is expected

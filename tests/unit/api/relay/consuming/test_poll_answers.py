"""The answers of several shards to one poll, as one."""

from typing import Final

import msgspec

from app.api.dataplane.polling.poll_parts import Polled
from app.api.formats import media
from app.api.relay.calls import CallAnswer
from app.api.relay.consuming.poll_answers import PartAnswer, merged
from app.api.relay.consuming.poll_entries import Done

APPLIED: Final = (b"preference-applied", b"wait=20")


def test_what_the_whole_says_of_a_preference_no_part_says_again() -> None:
    body = msgspec.json.encode({"assignment_id": "a", "poll_again_ms": 500})
    headers = [APPLIED, media.JSON_HEADER, (b"x-other", b"1")]
    own = PartAnswer(CallAnswer(200, headers, body), Polled("0.0", 0, 0, False))
    found, _ = merged(own, [own], [], Done([], [], [], []), [], is_waiting=True)
    assert found == [(b"x-other", b"1"), media.JSON_HEADER]

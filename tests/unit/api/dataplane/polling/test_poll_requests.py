"""The body of a poll → what the broker is asked."""

import json

import pytest

from app.api.dataplane.polling.poll_requests import (
    POLL_PARAMETERS,
    poll_decoder,
    request_of,
    wait_asked,
)
from app.api.dataplane.polling.shapes import PollBody
from app.api.http.parameters import Query
from app.domain.consumers.membership import QueueName, StrategyName, TopicSubscription
from app.domain.errors import BatchTooLarge, CurlewError, InvalidRequest
from app.domain.limits import DEFAULT_POLL_MESSAGES, Limits

LIMITS = Limits(batch_messages_max=2)
MEMBER = {"client_id": "worker-1", "generation": 3, "subscriptions": [{"topic": "orders"}]}
HAND_BACK = {"topic": "orders", "queue_id": 0, "queue_offset": 7}


def body(**more: object) -> PollBody:
    asked: PollBody = poll_decoder.decode(json.dumps({**MEMBER, **more}).encode())
    return asked


def query(text: bytes = b"") -> Query:
    return Query(text, POLL_PARAMETERS)


def test_what_is_left_out_has_its_default() -> None:
    found = request_of(body(), query(), 0, LIMITS)
    assert found.profile.subscriptions == (TopicSubscription("orders", ""),)
    assert (found.generation, found.max_messages) == (3, DEFAULT_POLL_MESSAGES)
    assert (found.commits, found.hand_backs, found.settles, found.force) == ([], [], None, False)


def test_everything_that_is_named_arrives() -> None:
    asked = body(
        subscriptions=[{"topic": "payments"}, {"topic": "orders", "filter": " paid "}],
        strategy="consistent_hash",
        commits=[{"topic": "orders", "queue_id": 1, "offset": 9, "since_generation": 2}],
        hand_backs=[{**HAND_BACK, "delay": "30s"}],
        positions=[{"topic": "orders", "queue_id": 1, "offset": 12}],
        max_poll_interval="2m",
    )
    found = request_of(asked, query(b"force=true"), 1.5, LIMITS)
    assert [each.topic for each in found.profile.subscriptions] == ["orders", "payments"]
    assert found.profile.subscriptions[0].filter == "paid"
    assert found.profile.strategy is not None
    assert found.profile.strategy.name is StrategyName.CONSISTENT_HASH
    assert [(each.offset, each.since_generation) for each in found.commits] == [(9, 2)]
    assert [each.delay_ms for each in found.hand_backs] == [30_000]
    assert found.positions == {QueueName("orders", 1): 12}
    assert (found.max_interval_ms, found.force, found.wait_s) == (120_000, True, 1.5)


@pytest.mark.parametrize(
    ("more", "kind", "said"),
    [
        ({"hand_backs": [HAND_BACK] * 3}, BatchTooLarge, "3 messages are handed back"),
        (
            {"hand_backs": [{**HAND_BACK, "delay": "1s", "dead_letter": True}]},
            InvalidRequest,
            "delay does not go with dead_letter",
        ),
        ({"max_poll_interval": "1ms"}, InvalidRequest, "max_poll_interval is 1 ms"),
        (
            {"settles": {"sends": [{"topic": "shipments", "text": "x"}], "acks": []}},
            InvalidRequest,
            "sends do not go with a poll",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    more: dict[str, object], kind: type[CurlewError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        request_of(body(**more), query(), 0, LIMITS)


def test_body_and_query_must_name_the_same_wait() -> None:
    assert wait_asked(body(wait="2s"), query(), LIMITS) == 2
    assert wait_asked(body(), query(b"wait=3"), LIMITS) == 3
    with pytest.raises(InvalidRequest, match="wait"):
        wait_asked(body(wait="2s"), query(b"wait=3"), LIMITS)

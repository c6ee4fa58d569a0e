"""Pulls and look-ups that cannot be answered."""

import httpx
import pytest

from tests.support.clients.bad_input import Bad, check_refusal

MESSAGES = "/v1/topics/{t}/messages"
PULL = "/v1/topics/{t}/queues/0/messages"

REFUSED = [
    Bad(
        "unknown topic",
        "GET",
        "/v1/topics/nothing/queues/0/messages?offset=0",
        404,
        "TOPIC_NOT_FOUND",
    ),
    Bad(
        "unknown queue", "GET", "/v1/topics/{t}/queues/7/messages?offset=0", 404, "QUEUE_NOT_FOUND"
    ),
    Bad(
        "queue that is no number",
        "GET",
        "/v1/topics/{t}/queues/x/messages?offset=0",
        400,
        "BAD_REQUEST",
    ),
    Bad("no start", "GET", PULL, 400, "ILLEGAL_OFFSET"),
    Bad("two starts", "GET", PULL + "?offset=0&tail=1", 400, "ILLEGAL_OFFSET"),
    Bad("negative offset", "GET", PULL + "?offset=-1", 400, "ILLEGAL_OFFSET"),
    Bad("offset that is no number", "GET", PULL + "?offset=first", 400, "ILLEGAL_OFFSET"),
    Bad("offset beyond the end", "GET", PULL + "?offset=1", 416, "OFFSET_OUT_OF_RANGE"),
    Bad("many messages", "GET", PULL + "?offset=0&max_messages=10001", 400, "BAD_REQUEST"),
    Bad("no messages", "GET", PULL + "?offset=0&max_messages=0", 400, "BAD_REQUEST"),
    Bad("long wait", "GET", PULL + "?offset=0&wait=61", 400, "ILLEGAL_POLLING_TIME"),
    Bad(
        "bad filter", "GET", PULL + "?offset=0&filter=a%20%7C%7C", 400, "ILLEGAL_FILTER_EXPRESSION"
    ),
    Bad(
        "unknown parameter",
        "GET",
        PULL + "?ofset=0",
        400,
        "BAD_REQUEST",
        hint="did you mean 'offset'?",
    ),
    Bad("repeated parameter", "GET", PULL + "?offset=0&offset=1", 400, "BAD_REQUEST"),
    Bad(
        "unacceptable",
        "GET",
        PULL + "?offset=0",
        406,
        "NOT_ACCEPTABLE",
        headers={"Accept": "text/html"},
    ),
    Bad("body on a pull", "GET", PULL + "?offset=0", 400, "MALFORMED_BODY", b"x"),
    Bad(
        "unknown id",
        "GET",
        MESSAGES + "/010035A3AB01A1FE2DA316000000000000",
        404,
        "MESSAGE_NOT_FOUND",
    ),
    Bad("no id", "GET", MESSAGES + "/xyz", 404, "MESSAGE_NOT_FOUND"),
    Bad("unknown form", "GET", MESSAGES + "/xyz?format=xml", 400, "BAD_REQUEST"),
]


@pytest.mark.parametrize("bad", REFUSED, ids=str)
def test_it_is_refused_clearly(http: httpx.Client, topic: str, bad: Bad) -> None:
    check_refusal(http, topic, bad)


def test_out_of_range_names_the_range(http: httpx.Client, topic: str) -> None:
    problem = http.get(f"/v1/topics/{topic}/queues/0/messages?offset=5").json()
    assert (problem["min_offset"], problem["max_offset"]) == (0, 0)

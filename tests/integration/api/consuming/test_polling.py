"""Polls of members over HTTP, with a real store and database."""

import re
import threading
from typing import Any

import httpx
import pytest

from tests.support.clients.bad_input import JSON, Bad, check_refusal
from tests.support.clients.frames import read_frame
from tests.support.nodes.pull_members import said_next

BATCH = "application/vnd.curlew.batch"


def send(http: httpx.Client, topic: str, queue_id: int, *bodies: str) -> None:
    messages = [{"text": body, "queue_id": queue_id} for body in bodies]
    answer = http.post(f"/v1/topics/{topic}/messages:batch", json={"messages": messages})
    assert answer.status_code == 200, answer.text


class Member:
    """Does what the answers say, as any program would."""

    def __init__(self, http: httpx.Client, topic: str, client_id: str = "w1") -> None:
        self.http = http
        self.group = f"g-{topic}"
        self.said: dict[str, Any] = {
            "client_id": client_id,
            "subscriptions": [{"topic": topic}],
            "generation": 0,
        }

    def raw(self, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        url = f"/v1/groups/{self.group}/members:poll"
        return self.http.post(url, json=self.said | more, headers=headers or {})

    def poll(self, **more: Any) -> dict[str, Any]:
        answer = self.raw(**more)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        self.said |= said_next(told)
        return told


def texts(told: dict[str, Any], name: str = "messages") -> list[str]:
    return [each["text"] for each in told[name]]


def test_a_member_reads_commits_hands_back_and_settles_by_polls_alone(
    http: httpx.Client, topic: str
) -> None:
    send(http, topic, 0, "a", "b")
    send(http, topic, 1, "c")
    member = Member(http, topic)
    first = member.poll()
    assert texts(first) == ["a", "b", "c"]
    assert [each["queue_id"] for each in first["assigned"]] == [0, 1]
    assert first["members"] == ["w1"]
    since = first["assigned"][0]["since_generation"]
    second = member.poll(
        commits=[
            {"topic": topic, "queue_id": 0, "offset": 2, "since_generation": since},
            {"topic": topic, "queue_id": 9, "offset": 1},
        ],
        hand_backs=[
            {"topic": topic, "queue_id": 0, "queue_offset": 1, "delay": "0s", "reason": "busy"}
        ],
        wait="10s",
    )
    assert second["committed"] == [{"topic": topic, "queue_id": 0, "offset": 2}]
    assert [(each["queue_id"], each["code"]) for each in second["refused"]] == [
        (9, "QUEUE_NOT_OWNED")
    ]
    (retry,) = second["retries"]
    assert (retry["text"], retry["delivery_attempt"], retry["queue_offset"]) == ("b", 2, 1)
    third = member.poll(settles={"acks": [retry["receipt_handle"], "forged"]})
    assert [(each["action"], each["status"]) for each in third["settled"]] == [
        ("ack", 200),
        ("ack", 400),
    ]
    assert (third["messages"], third["retries"]) == ([], [])
    committed = http.get(f"/v1/groups/{member.group}/offsets/{topic}").json()["offsets"]
    assert {each["queue_id"]: each["offset"] for each in committed}[0] == 2
    (listed,) = http.get(f"/v1/groups/{member.group}/clients").json()["clients"]
    assert (listed["kind"], listed["assigned"]) == ("poll", 2)
    assert listed["topics"] == [{"topic": topic, "filter": "*"}]
    figures = http.get(f"/v1/groups/{member.group}/stats?topic={topic}").json()
    assert (figures["counters"]["out"], figures["counters"]["retries"]) == (4, 1)


def test_frames_come_one_for_each_queue_with_the_answer_in_front(
    http: httpx.Client, topic: str
) -> None:
    send(http, topic, 0, "a", "b")
    send(http, topic, 1, "c")
    answer = Member(http, topic).raw({"Accept": BATCH})
    kind = answer.headers["content-type"]
    boundary = re.fullmatch(r"multipart/mixed; boundary=([0-9a-f]{32})", kind)
    assert boundary is not None
    parts: list[tuple[dict[str, str], bytes]] = []
    rest = answer.content
    mark = b"--" + boundary[1].encode()
    while rest != mark + b"--\r\n":
        assert rest.startswith(mark + b"\r\n")
        head, _, rest = rest[len(mark) + 2 :].partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        size = int(headers["Content-Length"])
        parts.append((headers, rest[:size]))
        rest = rest[size:].removeprefix(b"\r\n")
    assert [headers["Content-Type"] for headers, _ in parts] == ["application/json", BATCH, BATCH]
    told = httpx.Response(200, content=parts[0][1]).json()
    assert told["messages"] == []
    places = [(each["queue_id"], each["next_offset"]) for each in told["queues"]]
    assert places == [(0, 2), (1, 1)]
    named = [(headers["MQ-Queue-Id"], headers["MQ-Next-Offset"]) for headers, _ in parts[1:]]
    assert named == [("0", "2"), ("1", "1")]
    found = [[message.body for message in read_frame(frame)] for _, frame in parts[1:]]
    assert found == [[b"a", b"b"], [b"c"]]


def test_a_waiting_poll_is_answered_by_an_arrival_and_by_a_rebalance(
    http: httpx.Client, topic: str
) -> None:
    one, two = Member(http, topic, "w1"), Member(http, topic, "w2")
    one.poll()
    sending = threading.Timer(0.2, send, (http, topic, 1, "late"))
    sending.start()
    assert texts(one.poll(wait="20s")) == ["late"]
    sending.join()
    joining = threading.Timer(0.2, two.poll)
    joining.start()
    told = one.poll(wait="20s")
    joining.join()
    assert [each["queue_id"] for each in told["revoked"]] == [1]
    one.poll(commits=[{"topic": topic, "queue_id": 1, "offset": 1}])
    taken = two.poll()
    assert [(each["queue_id"], each["offset"]) for each in taken["assigned"]] == [(1, 1)]
    fenced = one.poll(commits=[{"topic": topic, "queue_id": 1, "offset": 1}])
    assert [each["code"] for each in fenced["refused"]] == ["QUEUE_NOT_OWNED"]


def test_who_was_replaced_must_join_again(http: httpx.Client, topic: str) -> None:
    old, new = Member(http, topic), Member(http, topic)
    old.poll()
    new.poll()
    refused = old.raw(commits=[{"topic": topic, "queue_id": 0, "offset": 0}])
    assert (refused.status_code, refused.json()["code"]) == (409, "STALE_GENERATION")


def test_who_names_no_generation_is_told_of_none(http: httpx.Client, topic: str) -> None:
    commits = [{"topic": topic, "queue_id": 0, "offset": 0}]
    told = Member(http, topic).raw(generation=None, commits=commits).json()
    assert [(each["code"], each["detail"]) for each in told["refused"]] == [
        ("STALE_GENERATION", f"client 'w1' is no member of group 'g-{topic}'")
    ]


POLL = "/v1/groups/polled/members:poll"
_SAID = b'{"client_id":"w1","subscriptions":[{"topic":"nothing"}]'
REFUSED = [
    Bad("unknown topic", "POST", POLL, 404, "TOPIC_NOT_FOUND", _SAID + b"}", JSON),
    Bad("no body", "POST", POLL, 400, "MALFORMED_BODY", b"", JSON),
    Bad(
        "no topics",
        "POST",
        POLL,
        400,
        "MALFORMED_BODY",
        b'{"client_id":"w1","subscriptions":[]}',
        JSON,
        pointer="/subscriptions",
    ),
    Bad(
        "misspelt",
        "POST",
        POLL,
        400,
        "MALFORMED_BODY",
        _SAID + b',"comits":[]}',
        JSON,
        "did you mean 'commits'?",
        "/comits",
    ),
    Bad(
        "client id", "POST", POLL, 400, "ILLEGAL_MEMBER", _SAID.replace(b"w1", b"w 1") + b"}", JSON
    ),
    Bad(
        "negative offset",
        "POST",
        POLL,
        400,
        "MALFORMED_BODY",
        _SAID + b',"commits":[{"topic":"t","queue_id":0,"offset":-1}]}',
        JSON,
        pointer="/commits/0/offset",
    ),
    Bad(
        "interval",
        "POST",
        POLL,
        400,
        "BAD_REQUEST",
        _SAID + b',"max_poll_interval":"1ms"}',
        JSON,
    ),
    Bad("long wait", "POST", POLL, 400, "ILLEGAL_POLLING_TIME", _SAID + b',"wait":"2m"}', JSON),
    Bad("many", "POST", POLL, 400, "BAD_REQUEST", _SAID + b',"max_messages":10001}', JSON),
    Bad(
        "filter",
        "POST",
        POLL,
        400,
        "ILLEGAL_FILTER_EXPRESSION",
        b'{"client_id":"w1","subscriptions":[{"topic":"nothing","filter":"|"}]}',
        JSON,
    ),
    Bad(
        "sends",
        "POST",
        POLL,
        400,
        "BAD_REQUEST",
        _SAID + b',"settles":{"acks":["x"],"sends":[{"topic":"t","text":"m"}]}}',
        JSON,
        "ack and send in one step with messages:settle",
    ),
    Bad(
        "delayed dead letter",
        "POST",
        POLL,
        400,
        "BAD_REQUEST",
        _SAID + b',"hand_backs":[{"topic":"t","queue_id":0,"queue_offset":0,"delay":"1s",'
        b'"dead_letter":true}]}',
        JSON,
    ),
    Bad("other method", "GET", POLL, 405, "METHOD_NOT_ALLOWED", hint="allowed: POST"),
]


@pytest.mark.parametrize("bad", REFUSED, ids=str)
def test_it_is_refused_clearly(http: httpx.Client, topic: str, bad: Bad) -> None:
    check_refusal(http, topic, bad)
    assert http.get("/v1/groups/polled").status_code == 404


def test_a_poll_waits_as_long_as_is_preferred(http: httpx.Client, topic: str) -> None:
    path = "/v1/groups/preferring/members:poll"
    body = {"client_id": "one", "subscriptions": [{"topic": topic}]}
    told = http.post(path, json=body, headers={"prefer": "wait=1"})
    assert told.status_code == 200, told.text
    assert told.headers["preference-applied"] == "wait=1"
    given = http.post(f"{path}?wait=0", json=body, headers={"prefer": "wait=1"})
    assert "preference-applied" not in given.headers, "the query outweighs it"

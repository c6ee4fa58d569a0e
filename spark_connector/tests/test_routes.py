"""Pulls that go to the node of a queue, and what happens when that one is away."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark_curlew.errors import AccessDenied, OptionInvalid
from pyspark_curlew.http import routes
from pyspark_curlew.http.client import CurlewClient, OutOfRange, Pull, Pulled
from pyspark_curlew.http.http_options import HttpOptions
from pyspark_curlew.http.routes import REFUSED_S, VALID_S, Routes, leaders_of, replicas_of
from pyspark_curlew.options import parse_stream_options

from spark_connector.tests.support.clock import Clock
from spark_connector.tests.support.fake_node import FakeNode, Reply, refusal, run_fake_node


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_routes", {})
    monkeypatch.setattr(routes, "_away_until_s", {})


@pytest.fixture
def leader() -> Iterator[FakeNode]:
    with run_fake_node() as node:
        node.add_topic("orders", queues=2)
        node.send("orders", 0, b"a", b"b")
        node.send("orders", 1, b"c")
        yield node


@pytest.fixture
def asked(fake: FakeNode, leader: FakeNode) -> FakeNode:
    """The node that is given: it has everything too, as through a relay."""
    fake.topics = leader.topics
    fake.leaders = {("orders", 0): leader.base_url, ("orders", 1): fake.base_url}
    return fake


OPTIONS = HttpOptions(("http://mq",), 2000, 5000, 0, 0)


def client_of(node: FakeNode) -> CurlewClient:
    return CurlewClient(replace(OPTIONS, endpoints=(node.base_url,), to_leaders=True))


FIRST, SECOND = (Pull("orders", queue, 0, 9, 9, 10_000) for queue in (0, 1))


def pulled(client: CurlewClient, wanted: Pull = FIRST) -> int:
    answer = client.pull(wanted)
    assert isinstance(answer, Pulled)
    return answer.frame.records


def test_a_pull_goes_to_the_leader_of_its_queue(asked: FakeNode, leader: FakeNode) -> None:
    client = client_of(asked)
    assert (pulled(client), pulled(client, SECOND)) == (2, 1)
    assert (len(leader.requests), len(asked.requests)) == (1, 1)
    answers = client.pull_at_once([FIRST, SECOND])
    assert [isinstance(each, Pulled) for each in answers] == [True, True]
    assert (len(leader.requests), len(asked.requests)) == (2, 2)
    leader.topics["orders"][0].remove_before(1)
    assert client.pull(FIRST) == OutOfRange(1, 2)
    assert (len(leader.requests), len(asked.requests)) == (3, 2)


@pytest.mark.parametrize(
    "fault",
    [
        refusal(503),
        refusal(404),
        refusal(403),
        lambda _reply: Reply(200, {"Content-Length": "99", "X-Cut": "1"}, b""),
    ],
)
def test_what_the_leader_does_not_give_the_given_node_gives(
    asked: FakeNode, leader: FakeNode, fault: object
) -> None:
    leader.faults = [fault]  # type: ignore[list-item]
    assert pulled(client_of(asked)) == 2
    assert (len(leader.requests), len(asked.requests)) == (1, 1)


def test_a_leader_that_is_away_is_left_alone_for_a_while(
    asked: FakeNode, leader: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_fake_node() as gone:
        asked.leaders["orders", 0] = gone.base_url
    clock = Clock()
    monkeypatch.setattr(routes, "_now", clock.now)
    assert [pulled(client_of(asked)) for _ in range(3)] == [2, 2, 2]
    assert len(asked.requests) == 3
    asked.leaders["orders", 0] = leader.base_url
    clock.now_s += VALID_S
    assert pulled(client_of(asked)) == 2
    assert (len(leader.requests), len(asked.requests)) == (1, 3)


def test_a_service_without_routes_is_not_asked_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, topics = Clock(), list[str]()
    monkeypatch.setattr(routes, "_now", clock.now)
    found = Routes(("http://a",), topics.append)
    assert [found.node("orders", 0) for _ in range(3)] == [None] * 3
    clock.now_s += REFUSED_S
    found.node("orders", 1)
    assert topics == ["orders"] * 2


def test_a_refusal_of_both_is_said(asked: FakeNode, leader: FakeNode) -> None:
    leader.faults, asked.faults = [refusal(403)], [refusal(403)]
    with pytest.raises(AccessDenied):
        pulled(client_of(asked))


@pytest.mark.parametrize(
    ("endpoint", "leader", "is_asked"),
    [
        ("http://mq:8710", "http://b:8710/", True),
        ("http://mq:8710", "https://b:8710", True),
        ("https://mq", "http://b:8710", False),
        ("https://mq", "https://b:8710", True),
        ("http://mq:8710", "http://127.0.0.1:8710", False),
        ("http://mq:8710", "http://0.0.0.0:8710", False),
        ("http://mq:8710", "http://localhost:8710", False),
        ("http://mq:8710", "http://[::]:8710", False),
        ("http://localhost:8710", "http://127.0.0.1:8711", True),
        ("http://mq:8710", "ftp://b", False),
        ("http://mq:8710,https://mq", "http://b:8710", False),
        ("http://mq:8710", "http://[::ffff:127.0.0.1]:8710", False),
        ("http://mq:8710", "http://localhost.:8710", False),
    ],
)
def test_which_address_may_stand_for_the_given_one(
    endpoint: str, leader: str, is_asked: bool
) -> None:
    rows = [{"queue_id": 0, "shard": "a", "leader": leader}, {"queue_id": 1, "shard": "b"}]
    given = endpoint.split(",")
    assert leaders_of({"queues": rows}, given) == ({0: [leader.rstrip("/")]} if is_asked else {})
    assert leaders_of({"queues": rows[:1]}, given) == {}, "all of it is at one node"


@pytest.mark.parametrize(
    "queues",
    [
        None,
        [None, {}],
        ["a", "b"],
        [{"shard": "a", "leader": "http://b"}, {"shard": "b"}],
        [{"shard": []}, {"shard": "b"}],
        [{"shard": "a", "queue_id": 0, "leader": "http://[b"}, {"shard": "b"}],
        [{"shard": "a", "queue_id": [], "leader": "http://b"}, {"shard": "b"}],
    ],
)
def test_of_what_is_no_route_no_leader_is_taken(queues: object) -> None:
    assert leaders_of({"queues": queues}, ["http://mq:8710"]) == {}


def test_each_worker_begins_at_another_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = ["http://c", "http://a/", "http://b"]
    rows = [{"queue_id": queue, "shard": "s", "replicas": urls} for queue in (0, 1)]
    found = []
    for turn in range(3):
        monkeypatch.setattr(routes, "_turn", turn)
        found.append(replicas_of({"queues": rows}, ["http://mq"]))
    assert [each[0] for each in found] == [
        ["http://a", "http://b", "http://c"],
        ["http://b", "http://c", "http://a"],
        ["http://c", "http://a", "http://b"],
    ]
    assert [each[1][0] for each in found] == ["http://b", "http://c", "http://a"]
    assert replicas_of({"queues": rows}, ["https://mq"]) == {0: [], 1: []}


@pytest.mark.parametrize(
    "queues",
    [
        None,
        [None],
        [{"queue_id": 0, "replicas": None}],
        [{"queue_id": 0}],
        [{"queue_id": 0, "replicas": ["http://a"]}],
        [{"queue_id": "0", "replicas": ["http://a", "http://b"]}],
    ],
)
def test_of_what_has_no_replicas_none_is_taken(queues: object) -> None:
    assert replicas_of({"queues": queues}, ["http://mq"]) == {}


def test_any_replica_is_asked_and_told_so(
    asked: FakeNode, leader: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_turn", 0)
    with run_fake_node() as other:
        other.topics = leader.topics
        urls = [leader.base_url, other.base_url]
        asked.replicas = {("orders", 0): urls, ("orders", 1): urls}
        first, second = sorted([leader, other], key=lambda each: each.base_url)
        client = CurlewClient(replace(OPTIONS, endpoints=(asked.base_url,), reads_any=True))
        assert (pulled(client), pulled(client, SECOND)) == (2, 1)
        assert (len(first.requests), len(second.requests), len(asked.requests)) == (1, 1, 0)
        assert {each.headers[-1]["MQ-Read"] for each in (first, second)} == {"any"}
        first.faults = [refusal(503)]
        assert pulled(client) == 2, "from where the route was had"
        assert asked.headers[-1]["MQ-Read"] == "any"
        assert pulled(client) == 2, "from the other replica"
        assert (len(first.requests), len(second.requests), len(asked.requests)) == (2, 2, 1)


def test_the_option() -> None:
    given = {"endpoint": "http://mq", "topic": "orders"}
    assert parse_stream_options(given).http.to_leaders
    assert not parse_stream_options({**given, "readFrom": "endpoint"}).http.to_leaders
    assert not parse_stream_options(given).http.reads_any
    any_node = parse_stream_options({**given, "readFrom": "any"}).http
    assert (any_node.to_leaders, any_node.reads_any) == (False, True)
    with pytest.raises(OptionInvalid, match="not one of leader, any, endpoint"):
        parse_stream_options({**given, "readFrom": "nearest"})

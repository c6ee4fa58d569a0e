"""Requests against a node in this process that fails and damages answers on demand."""

import pickle

import pytest
from pyspark_curlew.errors import (
    AccessDenied,
    ConnectorError,
    ProtocolViolation,
    RequestRefused,
    ServiceUnavailable,
    TopicNotFound,
)
from pyspark_curlew.http.client import (
    CurlewClient,
    OutOfRange,
    Pull,
    Pulled,
)
from pyspark_curlew.http.http_options import HttpOptions
from pyspark_curlew.http.retry import RetryPolicy, TryLater

from spark_connector.tests.support.clock import Clock
from spark_connector.tests.support.fake_node import (
    FakeNode,
    Fault,
    Reply,
    damage,
    refusal,
    run_fake_node,
    truncation,
)


@pytest.fixture
def node(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", queues=2)
    fake.send("orders", 0, b"a", b"b", b"c")
    return fake


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(node: FakeNode, pauses: list[float]) -> CurlewClient:
    return client_of(node.base_url, pauses)


def client_of(base_url: str, pauses: list[float], timeout_ms: int = 350) -> CurlewClient:
    clock = Clock()
    clock.pauses = pauses
    policy = RetryPolicy(timeout_ms, clock.sleep, clock.now, fraction=lambda: 1.0)
    return CurlewClient(HttpOptions((base_url,), 2000, 5000, timeout_ms, timeout_ms), policy)


def pull(client: CurlewClient, offset: int = 0) -> Pulled | OutOfRange:
    return client.pull(Pull("orders", 0, offset, end_offset=3, max_messages=10, max_bytes=10_000))


def checksum_of(request: str) -> str:
    return request.rpartition("checksum=")[2]


def test_offsets_of_all_queues(client: CurlewClient, node: FakeNode) -> None:
    node.topics["orders"][0].remove_before(1)
    assert client.offsets("orders", "earliest") == {0: 1, 1: 0}
    assert client.offsets("orders", "latest") == {0: 3, 1: 0}


def test_a_pull(client: CurlewClient, node: FakeNode) -> None:
    answer = pull(client, 1)
    assert isinstance(answer, Pulled)
    assert answer.frame.records == 2
    assert answer.next_offset == 3
    assert answer.store_id == b"\x0a\x0b\x0c\x0d"
    assert node.requests == [
        "/v1/topics/orders/queues/0/messages"
        "?offset=1&until_offset=3&max_messages=10&max_bytes=10000&wait=0&checksum=crc32"
    ]


@pytest.mark.parametrize("offset", [0, 9])
def test_an_offset_outside_the_queue_is_an_answer(
    client: CurlewClient, node: FakeNode, offset: int
) -> None:
    node.topics["orders"][0].remove_before(2)
    assert pull(client, offset) == OutOfRange(min_offset=2, max_offset=3)
    assert len(node.requests) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_passing_troubles_are_tried_again(
    client: CurlewClient, node: FakeNode, pauses: list[float], status: int
) -> None:
    node.faults = [refusal(status), refusal(status)]
    assert isinstance(pull(client), Pulled)
    assert pauses == [0.05, 0.1]


@pytest.mark.parametrize("fault", [damage(), damage(40)])
def test_a_damaged_answer_is_asked_for_anew_with_a_look_at_each_message(
    client: CurlewClient, node: FakeNode, fault: Fault, pauses: list[float]
) -> None:
    """At once; and if that is damaged as well, after a pause."""
    node.faults = [fault]
    answer = pull(client)
    assert isinstance(answer, Pulled)
    assert answer.frame.records == 3
    assert [checksum_of(request) for request in node.requests] == ["crc32", "crc32-verified"]
    assert pauses == []
    node.faults = [fault, fault, fault]
    assert isinstance(pull(client), Pulled)
    assert [checksum_of(each) for each in node.requests[2:]] == ["crc32", "crc32-verified"] * 2
    assert len(pauses) == 1


def test_an_answer_that_is_cut_short_is_fetched_again(
    client: CurlewClient, node: FakeNode, pauses: list[float]
) -> None:
    node.faults = [truncation]
    assert isinstance(pull(client), Pulled)
    assert all("checksum=crc32" in request for request in node.requests)
    assert len(pauses) == 1


def test_the_service_may_say_how_long_to_wait(node: FakeNode, pauses: list[float]) -> None:
    client = client_of(node.base_url, pauses, 120_000)
    node.faults = [refusal(503, **{"Retry-After": "2"}), refusal(429, **{"Retry-After": "9999"})]
    pull(client)
    assert pauses == [2.0, 60.0]


def test_after_the_last_attempt_the_reason_is_told(
    client: CurlewClient, node: FakeNode, pauses: list[float]
) -> None:
    node.faults = [refusal(503, **{"MQ-Request-Id": "r-7"})] * 4
    with pytest.raises(ServiceUnavailable) as failure:
        pull(client)
    assert str(failure.value) == (
        "CURLEW_UNAVAILABLE: pulling topic 'orders' queue 0 from offset 0 failed 4 times within"
        " 0.35 s (option retryTimeoutMs); at last: HTTP 503; NO; not now; request r-7"
    )
    assert len(pauses) == 3


def test_nobody_listening_is_tried_again_too(pauses: list[float]) -> None:
    with run_fake_node() as gone:
        base_url = gone.base_url
    with pytest.raises(ServiceUnavailable, match="Connection refused"):
        client_of(base_url, pauses, 100).offsets("orders", "latest")
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RequestRefused),
        (401, AccessDenied),
        (403, AccessDenied),
        (404, RequestRefused),
        (409, RequestRefused),
        (501, RequestRefused),
    ],
)
def test_final_refusals_are_not_tried_again(
    client: CurlewClient, node: FakeNode, status: int, kind: type[ConnectorError]
) -> None:
    node.faults = [refusal(status)]
    with pytest.raises(kind, match=f"HTTP {status}; NO; not now"):
        pull(client)
    assert len(node.requests) == 1


def test_an_unknown_topic_is_named(client: CurlewClient) -> None:
    with pytest.raises(TopicNotFound, match="topic 'other'"):
        client.offsets("other", "latest")


def without(header: str, **others: str) -> object:
    def strip(reply: Reply) -> Reply:
        kept = {name: value for name, value in reply.headers.items() if name != header}
        return Reply(reply.status, {**kept, **others}, reply.body)

    return strip


@pytest.mark.parametrize(
    "fault",
    [
        without("MQ-Next-Offset"),
        without("MQ-Store-Id"),
        without("MQ-Store-Id", **{"MQ-Store-Id": "zz"}),
        without("Content-Type", **{"Content-Type": "application/json"}),
        lambda _: Reply(410, {}, b"{}"),
    ],
)
def test_an_answer_outside_the_contract_is_said_to_be_one(
    client: CurlewClient, node: FakeNode, fault: object
) -> None:
    node.faults = [fault]  # type: ignore[list-item]
    with pytest.raises(ProtocolViolation):
        pull(client)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"offsets":[{"queue_id":0}]}'])
def test_offsets_that_cannot_be_read(client: CurlewClient, node: FakeNode, body: bytes) -> None:
    node.faults = [lambda _: Reply(200, {}, body)]
    with pytest.raises(ProtocolViolation, match="the offsets cannot be read"):
        client.offsets("orders", "latest")


def test_pauses_grow_to_the_maximum_and_vary() -> None:
    slow = RetryPolicy(9, fraction=lambda: 1.0)
    fast = RetryPolicy(9, fraction=lambda: 0.0)
    assert [slow.pause_s(failures, None) for failures in (0, 1, 2, 9)] == [0.05, 0.1, 0.2, 5.0]
    assert [fast.pause_s(failures, None) for failures in (0, 1, 2, 9)] == [0.025, 0.05, 0.1, 2.5]
    assert slow.pause_s(100_000, None) == 5.0, "who never gives up has no largest number"


def test_other_errors_pass_through_a_retry() -> None:
    def attempt() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        RetryPolicy(3).run("trying", attempt)
    with pytest.raises(ServiceUnavailable):
        RetryPolicy(0).run("trying", lambda: (_ for _ in ()).throw(TryLater("no")))


def test_a_connection_is_kept_but_not_beyond_a_fork(
    client: CurlewClient, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark forks its workers; two of them on one socket would read each other's answers."""
    pull(client)
    pull(client)
    assert node.connections == 1
    monkeypatch.setattr("os.getpid", lambda: -1)
    pull(client)
    assert node.connections == 2


def test_errors_survive_the_way_from_executor_to_driver() -> None:
    error = pickle.loads(pickle.dumps(ServiceUnavailable("down")))
    assert str(error) == "CURLEW_UNAVAILABLE: down"


@pytest.mark.parametrize(("away_s", "timeout_ms"), [(20, 120_000), (60, 120_000), (5, 10_000)])
def test_a_node_that_is_away_for_a_while_ends_nothing(away_s: int, timeout_ms: int) -> None:
    clock = Clock()
    back_s = clock.now_s + away_s

    def attempt() -> str:
        if clock.now_s < back_s:
            raise TryLater("connection refused")
        return "there"

    assert RetryPolicy(timeout_ms, clock.sleep, clock.now).run("asking", attempt) == "there"
    assert clock.now_s - back_s <= 5, "it is noticed soon"


def test_a_node_that_stays_away_is_given_up_in_time() -> None:
    clock = Clock()
    began_s = clock.now_s

    def attempt() -> None:
        raise TryLater("connection refused", after_s=50.0)

    with pytest.raises(ServiceUnavailable, match=r"failed 4 times within 120 s .*connection refus"):
        RetryPolicy(120_000, clock.sleep, clock.now).run("asking", attempt)
    assert clock.now_s - began_s == 120
    assert clock.pauses == [50.0, 50.0, 20.0]

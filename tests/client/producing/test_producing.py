"""What a producer decides without I/O: numbers, attempts, nodes, batches."""

import pytest
from curlew_client.errors import (
    ConnectionFailed,
    CurlewError,
    FlushDiskTimeout,
    SequenceOutOfOrder,
    SystemBusy,
    TimedOut,
    TopicNotFound,
)
from curlew_client.producing.attempts import PAUSE_S_MAX, Attempts
from curlew_client.producing.batches import Batches, BatchKey
from curlew_client.producing.fault_table import FaultTable, away_ms
from curlew_client.producing.lanes import Lanes
from curlew_client.producing.messages import Message
from curlew_client.results import SendResult

SCOPE = ("orders", -1)
OPEN = ConnectionFailed("broke", "unknown")
UNREACHED = ConnectionFailed("refused", "not_stored")


def busy(retry_after_s: float | None = None) -> SystemBusy:
    return SystemBusy(
        "busy",
        code="SYSTEM_BUSY",
        status=503,
        outcome="not_stored",
        retryable=True,
        retry_after_s=retry_after_s,
    )


# --- lanes


def test_a_stored_message_uses_its_number_up_and_another_does_not() -> None:
    lanes = Lanes("me", 1)
    lane = lanes.take()
    lanes.give_back(lane, SCOPE, 3, "stored")
    again = lanes.take()
    assert again is lane
    assert (again.number(SCOPE), again.number(("orders", 1))) == (3, 0)
    lanes.give_back(again, SCOPE, 3, "not_stored")
    assert lanes.take().number(SCOPE) == 3


def test_a_lane_with_an_open_end_is_never_used_again() -> None:
    lanes = Lanes("me", 1)
    lane = lanes.take()
    lanes.give_back(lane, SCOPE, 1, "unknown")
    assert lanes.take().producer_id != lane.producer_id


def test_two_requests_at_once_have_two_lanes_of_one_family() -> None:
    lanes = Lanes("me", 1)
    assert [lanes.take().producer_id for _ in range(2)] == ["me:1", "me:2"]


# --- attempts


def attempts(retries: int = 2, *, may_repeat: bool = True, not_safe: bool = False) -> Attempts:
    return Attempts(10.0, retries, may_repeat=may_repeat, retry_on_not_safe=not_safe)


def test_so_many_retries_and_no_more() -> None:
    tried = attempts(retries=2)
    pauses = [tried.pause_s(OPEN, 0.0, 0.5) for _ in range(3)]
    assert [pause is None for pause in pauses] == [False, False, True]


def test_all_attempts_share_one_budget() -> None:
    tried = attempts(retries=100)
    assert tried.pause_s(busy(3.0), 6.9, 0.5) == 3.0
    assert tried.pause_s(busy(3.0), 7.1, 0.5) is None


def test_pauses_grow_to_a_bound() -> None:
    tried = Attempts(1e9, 100, may_repeat=True)
    pauses = [tried.pause_s(UNREACHED, 0.0, 0.5) or 0.0 for _ in range(50)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_S_MAX


def test_what_never_succeeds_is_not_repeated() -> None:
    missing = TopicNotFound("no", code="TOPIC_NOT_FOUND", status=404, outcome="not_stored")
    assert attempts().pause_s(missing, 0.0, 0.5) is None
    assert attempts().pause_s(TimedOut("late"), 0.0, 0.5) is None


def test_without_a_number_only_what_is_not_stored_is_repeated() -> None:
    tried = attempts(may_repeat=False)
    assert tried.pause_s(UNREACHED, 0.0, 0.5) is not None
    assert tried.pause_s(OPEN, 0.0, 0.5) is None


def test_an_open_attempt_leaves_the_whole_call_open() -> None:
    tried = attempts(retries=1)
    last = ConnectionFailed("refused", "not_stored")
    assert tried.pause_s(OPEN, 0.0, 0.5) is not None
    assert tried.pause_s(last, 0.0, 0.5) is None
    assert last.outcome == "unknown"


def test_what_is_stored_and_not_safe_is_repeated_on_request() -> None:
    late = FlushDiskTimeout(
        "late", code="FLUSH_DISK_TIMEOUT", status=504, outcome="unknown", retryable=True
    )
    assert attempts().pause_s(late, 0.0, 0.5) is None
    assert attempts(not_safe=True).pause_s(late, 0.0, 0.5) is not None


def test_a_forgotten_lane_is_left_once_and_only_while_nothing_is_open() -> None:
    forgotten = SequenceOutOfOrder(
        "no", code="SEQUENCE_OUT_OF_ORDER", status=409, outcome="not_stored"
    )
    tried = attempts()
    assert [tried.may_change_lane(forgotten) for _ in range(2)] == [True, False]
    opened = attempts()
    opened.pause_s(OPEN, 0.0, 0.5)
    assert not opened.may_change_lane(forgotten)


# --- nodes


@pytest.mark.parametrize(
    ("latency_ms", "expected"),
    [
        *[(0, 0), (50, 0), (100, 0), (549, 0), (550, 30_000), (1_000, 60_000)],
        *[(2_000, 120_000), (3_000, 180_000), (15_000, 600_000), (99_999, 600_000)],
    ],
)
def test_times_away_are_those_of_rocketmq(latency_ms: int, expected: int) -> None:
    assert away_ms(latency_ms) == expected


def test_a_slow_node_is_left_alone_until_its_time_is_over() -> None:
    table = FaultTable(["a", "b"], is_on=True)
    table.report("a", 600, 0, has_failed=False)
    assert {table.pick(29_999) for _ in range(4)} == {"b"}
    assert {table.pick(30_000) for _ in range(4)} == {"a", "b"}


def test_when_all_are_away_the_earliest_is_asked() -> None:
    table = FaultTable(["a", "b", "c"], is_on=True)
    for url, latency in (("a", 3_000), ("b", 600), ("c", 15_000)):
        table.report(url, latency, 0, has_failed=False)
    assert {table.pick(1) for _ in range(4)} == {"b"}
    assert table.pick(1, failed="b") == "a"


def test_switched_off_nodes_take_turns_and_a_retry_goes_elsewhere() -> None:
    table = FaultTable(["a", "b"], is_on=False)
    table.report("a", 99_999, 0, has_failed=True)
    assert {table.pick(1) for _ in range(4)} == {"a", "b"}
    assert {table.pick(1, failed="a") for _ in range(4)} == {"b"}


def test_nodes_that_were_learned_are_asked_when_the_given_one_has_failed() -> None:
    table = FaultTable(["a"], is_on=True)
    for url in ("b", "a", "c", "b"):
        table.learn(url)
    assert {table.pick(1) for _ in range(4)} == {"a"}
    assert {table.pick(1, failed="a") for _ in range(4)} == {"b", "c"}
    assert FaultTable(["a"], is_on=True).pick(1, failed="a") == "a"


def test_the_table_knows_of_learned_nodes_when_it_is_on() -> None:
    on, off = (FaultTable(["a"], is_on=is_on) for is_on in (True, False))
    for table in (on, off):
        table.learn("b")
        table.report("b", 600, 5, has_failed=False)
    assert (on.away_until_ms("b"), on.away_until_ms("a")) == (30_005, 0)
    assert off.away_until_ms("b") == 0


# --- batches


def batches(messages_max: int = 3, under_way: int = 100, size: int = 10**6) -> Batches:
    return Batches(
        messages_max=messages_max,
        bytes_max=10**6,
        under_way_messages=under_way,
        under_way_bytes=size,
        linger_s=1.0,
    )


def test_a_full_batch_goes_at_once_and_an_open_one_after_its_linger() -> None:
    box = batches()
    added = [box.add("orders", Message(b"x"), 0.0) for _ in range(4)]
    assert [each is not None and each[1] for each in added] == [True, False, True, True]
    assert [len(batch.messages) for batch in box.ready(0.5)] == [3]
    assert box.next_due_s() == 1.0
    assert [len(batch.messages) for batch in box.ready(1.0)] == [1]


def test_messages_of_a_key_go_one_batch_after_the_other() -> None:
    box = batches(messages_max=1)
    for number in range(3):
        box.add("orders", Message(b"%d" % number, sharding_key="k"), 0.0)
    (first,) = box.ready(0.0)
    assert box.ready(0.0) == []
    second = box.over(first)
    assert second is not None
    assert second.messages[0].body == b"1"
    third = box.over(second)
    assert third is not None
    assert box.over(third) is None
    box.add("orders", Message(b"3", sharding_key="k"), 0.0)
    assert len(box.ready(0.0)) == 1


def test_what_is_under_way_has_a_bound_of_messages_and_of_bytes() -> None:
    box = batches(messages_max=1, under_way=2)
    assert [box.add("orders", Message(b"x"), 0.0) is None for _ in range(3)] == [False, False, True]
    batch, _ = box.ready(0.0)
    box.over(batch)
    assert box.add("orders", Message(b"x"), 0.0) is not None
    tight = batches(size=100)
    assert tight.add("orders", Message(bytes(1_000)), 0.0) is not None, "one is let in, alone"
    assert tight.add("orders", Message(b"x"), 0.0) is None


def test_futures_have_the_result_of_their_message() -> None:
    box = batches()
    added = [box.add("orders", Message(b"x"), 0.0) for _ in range(2)]
    (batch,) = box.ready(9.0)
    told: list[SendResult | None] = []
    futures = [each[0] for each in added if each is not None]
    futures[0].add_done_callback(lambda done: told.append(done.result()))
    with pytest.raises(TimeoutError):
        futures[0].result(0.001)
    result = SendResult("orders", "A")
    batch.resolve([result, CurlewError("no")])
    assert futures[0].result() is result
    assert told == [result]
    assert isinstance(futures[1].exception(), CurlewError)
    assert batch.key == BatchKey("orders", None, is_framed=True)

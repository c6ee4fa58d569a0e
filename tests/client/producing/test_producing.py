"""What a producer decides without I/O: numbers, attempts, nodes, batches."""

import random
import threading

import pytest
from curlew_client.errors import (
    ClientClosed,
    ConnectionFailed,
    CurlewError,
    FlushDiskTimeout,
    SequenceOutOfOrder,
    SystemBusy,
    TimedOut,
    TopicNotFound,
)
from curlew_client.producing.attempts import PAUSE_S_MAX, Attempts
from curlew_client.producing.batches import Batch, Batches, BatchKey
from curlew_client.producing.fault_table import FaultTable, away_ms
from curlew_client.producing.lanes import Lanes
from curlew_client.producing.messages import (
    Message,
    SendRequest,
    Waiting,
    as_message,
    batch_request,
)
from curlew_client.results import SendResult
from curlew_client.wire.frames import RecordMaker, encode_frame
from typing_extensions import override

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


class Box(Batches):
    """Batches with a clock that the test moves, and a count of the calls to the loop."""

    def __init__(self, messages_max: int = 3, under_way: int = 100, size: int = 10**6) -> None:
        self.now_s = 0.0
        self.calls = 0
        self.is_cut_off = False
        super().__init__(
            self.called,
            lambda: self.now_s,
            messages_max=messages_max,
            bytes_max=10**6,
            under_way_messages=under_way,
            under_way_bytes=size,
            linger_s=1.0,
        )

    def called(self) -> None:
        if self.is_cut_off:
            self.is_cut_off = False
            raise KeyboardInterrupt
        self.calls += 1


def test_a_full_batch_goes_at_once_and_an_open_one_after_its_linger() -> None:
    box = Box()
    for _ in range(4):
        assert box.add("orders", b"x") is not None
    assert box.calls == 1, "when a batch was opened; what comes before the loop looks is seen then"
    box.now_s = 0.5
    assert [len(batch.messages) for batch in box.ready()] == [3]
    assert box.next_due_s() == 1.0
    box.now_s = 1.0
    assert [len(batch.messages) for batch in box.ready()] == [1]


def test_the_loop_is_called_when_it_would_not_look_in_time() -> None:
    box = Box()
    box.add("orders", b"x")
    box.ready()
    assert box.next_due_s() == 1.0
    box.add("payments", b"x")
    assert box.calls == 1, "it looks when the linger of the first is over"
    box.add("orders", b"x")
    box.add("orders", b"x")
    assert box.calls == 2, "a batch is full"
    assert len(box.ready()) == 1
    box.now_s = 1.0
    assert len(box.ready()) == 1
    assert box.next_due_s() is None
    box.add("orders", b"x")
    assert box.calls == 3, "nothing was open any more"
    assert len(box.ready(all_of_them=True)) == 1
    box.add("orders", b"x")
    assert box.calls == 4, "nor after everything was taken"


def test_the_loop_is_called_by_the_next_message_when_its_call_was_cut_off() -> None:
    box = Box()
    box.is_cut_off = True
    with pytest.raises(KeyboardInterrupt):
        box.add("orders", b"x")
    box.add("orders", b"y")
    assert box.calls == 1
    box.add("orders", b"z")
    assert box.calls == 1, "it has not looked yet"
    (batch,) = box.ready()
    assert batch.messages == [b"x", b"y", b"z"]


class CutOff(list[Waiting]):
    """Messages of a batch; Ctrl-C comes when one more is among them."""

    @override
    def append(self, each: Waiting) -> None:
        super().append(each)
        raise KeyboardInterrupt


@pytest.mark.parametrize("under_way", [2, 100])
def test_a_message_that_was_cut_off_takes_its_room_once(under_way: int) -> None:
    """Also where the batch was granted room for it."""
    box = Box(messages_max=200, under_way=under_way)
    future = box.add("orders", b"x")
    assert future is not None
    batch = future._batch
    batch.messages = CutOff(batch.messages)
    with pytest.raises(KeyboardInterrupt):
        box.add("orders", b"y")
    batch.messages = list(batch.messages)
    added = [box.add("payments", b"z") for _ in range(under_way)]
    assert added.count(None) == 2
    for each in box.ready(all_of_them=True):
        box.over(each)
    again = [box.add("orders", b"x") for _ in range(under_way + 1)]
    assert again.count(None) == 1


def test_messages_of_a_key_go_one_batch_after_the_other() -> None:
    box = Box(messages_max=1)
    for number in range(3):
        box.add("orders", Message(b"%d" % number, sharding_key="k"))
    (first,) = box.ready()
    assert box.ready() == []
    second = box.over(first)
    assert second is not None
    (message,) = second.messages
    assert as_message(message).body == b"1"
    third = box.over(second)
    assert third is not None
    assert box.over(third) is None
    box.add("orders", Message(b"3", sharding_key="k"))
    assert len(box.ready()) == 1


def test_what_is_under_way_has_a_bound_of_messages_and_of_bytes() -> None:
    box = Box(messages_max=1, under_way=2)
    assert [box.add("orders", b"x") is None for _ in range(3)] == [False, False, True]
    batch, _ = box.ready()
    box.over(batch)
    assert box.add("orders", b"x") is not None
    tight = Box(size=100)
    assert tight.add("orders", bytes(1_000)) is not None, "one is let in, alone"
    assert tight.add("orders", b"x") is None
    assert tight.add("orders", Message(b"x", tag="a")) is None


def test_an_open_batch_keeps_no_room_that_it_does_not_use() -> None:
    box = Box(messages_max=100, under_way=4, size=300)
    assert box.add("orders", b"1") is not None
    assert box.add("orders", b"2") is not None
    assert box.add("payments", b"3") is not None
    assert box.add("orders", b"4") is not None
    assert box.add("orders", b"5") is None, "260 of the bytes are taken, and all of the messages"
    box.wait_for_room(b"5", 0.001)
    orders, payments = box.ready(all_of_them=True)
    assert (len(orders.messages), len(payments.messages)) == (3, 1)
    box.over(payments)
    assert box.add("orders", bytes(50)) is None, "it has 114 bytes with what is beside it"
    assert box.add("orders", bytes(41)) is not None
    assert box.add("orders", b"6") is None
    box.over(orders)
    assert [box.add("orders", b"7") is None for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize("seed", range(20))
def test_the_bounds_are_exact_whatever_is_open(seed: int) -> None:
    chance = random.Random(seed)
    limit_messages, limit_bytes = chance.randrange(1, 60), chance.randrange(100, 6_000)
    box = Box(chance.randrange(1, 20), limit_messages, limit_bytes)
    sent: list[Batch] = []
    count = size = 0
    for _ in range(2_000):
        if chance.random() < 0.9:
            body = bytes(chance.randrange(200))
            fits = count < limit_messages and (size + len(body) + 64 <= limit_bytes or not size)
            is_added = box.add(f"topic-{chance.randrange(5)}", body) is not None
            assert is_added == fits, (count, size, len(body))
            count, size = count + is_added, size + is_added * (len(body) + 64)
        elif chance.random() < 0.5:
            sent += box.ready(all_of_them=chance.random() < 0.5)
        elif sent:
            batch = sent.pop(chance.randrange(len(sent)))
            count, size = count - len(batch.messages), size - batch.size
            box.over(batch)


def test_who_waits_for_room_goes_on_when_a_batch_is_over() -> None:
    box = Box(messages_max=1, under_way=1)
    assert box.add("orders", b"x") is not None
    (batch,) = box.ready()
    box.wait_for_room(b"y", 0.001)
    assert box.add("orders", b"y") is None
    box.over(batch)
    box.wait_for_room(b"y", 60)  # not a moment: there is room already
    assert box.add("orders", b"y") is not None


def test_what_is_closed_takes_no_more_and_who_waits_for_room_hears_of_it() -> None:
    box = Box(messages_max=100, under_way=4)
    assert box.add("orders", b"x") is not None
    assert box.add("payments", bytes(10**6)) is None
    waiting = threading.Thread(target=lambda: box.wait_for_room(bytes(10**6), 60), daemon=True)
    waiting.start()
    box.close()
    waiting.join(10)
    assert not waiting.is_alive()
    for topic in ("orders", "payments"):  # one is open, and was granted room
        with pytest.raises(ClientClosed, match="the client is closing"):
            box.add(topic, b"y")
    (batch,) = box.ready(all_of_them=True)
    assert batch.messages == [b"x"]


def test_futures_have_the_result_of_their_message() -> None:
    box = Box()
    futures = [box.add("orders", b"x") for _ in range(2)]
    first, second = (each for each in futures if each is not None)
    (batch,) = box.ready(all_of_them=True)
    told: list[SendResult | None] = []
    first.add_done_callback(lambda done: told.append(done.result()))
    with pytest.raises(TimeoutError):
        first.result(0.001)
    result = SendResult("orders", "A")
    batch.resolve([result, CurlewError("no")])
    assert first.result() is result
    assert told == [result]
    assert isinstance(second.exception(), CurlewError)
    assert batch.key == BatchKey("orders", None, is_framed=True)
    assert batch.messages == [], "who keeps a future keeps no body"


@pytest.mark.parametrize("bodies", [[b""], [b"a", b"bc", b"", b"de"], [b"x" * 300] * 3])
def test_a_frame_of_bodies_has_the_bytes_of_its_records(bodies: list[bytes]) -> None:
    maker = RecordMaker("orders")
    records = [maker.make(body, b"") for body in bodies]
    assert maker.frame_of_bodies(bodies) == encode_frame(records)


def test_bodies_go_in_a_batch_as_messages_of_them_do() -> None:
    plain = batch_request("orders", [b"a", b"b"], None, "eu")
    full = batch_request("orders", [Message(b"a"), Message(b"b")], None, "eu")
    mixed = batch_request("orders", [b"a", Message(b"b")], None, "eu")
    for request in (full, mixed):
        for name in SendRequest.__slots__:
            assert getattr(request, name) == getattr(plain, name), name

"""Damaged blocks are put right with those of another replica, and nothing else is."""

import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.cluster.replication.messages import AskBlocks, BlocksNotGiven, GivenBlocks
from app.cluster.replication.terms import Term, TermStart
from app.domain.errors import ShardUnavailable
from app.replica import log_repairs
from app.store import paths
from app.store.formats.record.record import encode_record
from app.store.log.log_scan import LogScanner
from tests.support.stores.simulated_files import Fault
from tests.support.stores.stores import SMALL
from tests.unit.replica.shard_of_drivers import Node, Shard
from tests.unit.replica.test_driver import load, serving, simulated


def filled(count: int = 40) -> Shard:
    shard = serving()
    load(shard, count)
    shard.until(shard.are_equal)
    return shard


def damage(shard: Shard, name: str, at: int, size: int = 1) -> None:
    """Flip bytes of the log, on the medium."""
    base = at - at % SMALL.segment_bytes
    inode = simulated(shard, name).names[paths.segment(base)]
    inode.sync()
    for content in (inode.seen, inode.safe):
        for place in range(at - base, at - base + size):
            content[place] ^= 0x55


def put(shard: Shard, name: str, at: int, data: bytes) -> None:
    """Other bytes in the log, on the medium."""
    base = at - at % SMALL.segment_bytes
    inode = simulated(shard, name).names[paths.segment(base)]
    inode.sync()
    for content in (inode.seen, inode.safe):
        content[at - base : at - base + len(data)] = data


def starts(shard: Shard) -> list[int]:
    """Where the leader's records begin."""
    return [at for at, _ in LogScanner(shard.leader.log).records(0)]


def is_whole(shard: Shard) -> bool:
    return not any(node.repairs.damaged_count for node in shard.nodes.values())


def follower(shard: Shard) -> Node:
    return shard.nodes["b"]


@pytest.mark.parametrize("place", [0, 30, 150], ids=["size", "place", "body"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_damaged_record_is_put_right(name: str, place: int) -> None:
    shard = filled()
    node, at = shard.nodes[name], starts(shard)[7]
    damage(shard, name, at + place)
    assert not node.reader.is_good(at)
    node.repairs.found(at, at + 1)
    shard.until(lambda: is_whole(shard))
    shard.check_equal_logs()
    assert node.reader.is_good(at)
    assert (node.repairs.mended_bytes, node.remaining_count) == (1, 0)
    medium = simulated(shard, name).names[paths.segment(at - at % SMALL.segment_bytes)]
    assert medium.safe == medium.seen
    assert not node.alarms


def test_a_long_stretch_over_segments_is_put_right_piece_by_piece() -> None:
    shard = filled()
    at, end = starts(shard)[3], starts(shard)[35]
    assert end - at > 2 * SMALL.segment_bytes
    for base in range(0, end, SMALL.segment_bytes):
        low, high = max(at, base), min(end, base + SMALL.segment_bytes)
        damage(shard, "b", low, high - low)
    follower(shard).repairs.found(at, end)
    shard.until(lambda: is_whole(shard))
    shard.check_equal_logs()
    assert follower(shard).repairs.mended_bytes > SMALL.segment_bytes


def test_what_is_damaged_behind_it_is_found_and_put_right() -> None:
    shard = filled()
    one, two = starts(shard)[2:4]
    damage(shard, "b", one, 1_200)
    follower(shard).repairs.found(one, one + 1)
    shard.until(lambda: is_whole(shard))
    assert two - one < 600
    shard.check_equal_logs()


def test_a_replica_that_is_damaged_there_too_does_not_help_and_another_does() -> None:
    shard = filled()
    at = starts(shard)[7]
    damage(shard, "b", at + 150)
    damage(shard, "a", at + 151)
    follower(shard).repairs.found(at, at + 1)
    shard.until(lambda: is_whole(shard))
    assert shard.log_bytes("b", shard.leader.shown) == shard.log_bytes("c", shard.leader.shown)


def test_who_is_asked_finds_its_own_damage_and_has_it_put_right() -> None:
    shard = filled()
    one, two = starts(shard)[2:4]
    damage(shard, "b", one + 150)
    damage(shard, "a", two + 150)
    follower(shard).repairs.found(one, one + 1)
    shard.until(lambda: is_whole(shard) and shard.leader.remaining_count == 0)
    shard.check_equal_logs()


def test_where_nobody_has_it_the_alarm_stays_and_it_is_asked_for_again() -> None:
    shard = filled()
    at = starts(shard)[7]
    for name in shard.nodes:
        damage(shard, name, at + 150)
    node = follower(shard)
    node.repairs.found(at, at + 1)
    shard.until(lambda: node.alarms.count("LOG_DAMAGED") > 20)
    assert (node.repairs.damaged_count, node.remaining_count) == (1, None)
    damage(shard, "c", at + 150)
    shard.until(lambda: is_whole(shard))
    assert node.reader.is_good(at)
    count = len(node.alarms)
    shard.pass_time(100)
    assert len(node.alarms) == count


def test_replicas_that_do_not_answer_are_passed_over() -> None:
    shard = filled()
    at = starts(shard)[7]
    damage(shard, "a", at + 150)
    shard.kill("b")
    shard.leader.repairs.found(at, at + 1)
    shard.until(lambda: is_whole(shard))
    assert shard.leader.reader.is_good(at)


def test_who_knows_less_to_be_confirmed_asks_those_who_know_more() -> None:
    """As behind an opening, where the watermark is that of the checkpoint."""
    shard = filled()
    node, at = follower(shard), starts(shard)[7]
    node.driver.high_watermark = at
    damage(shard, "b", at + 150)
    node.repairs.found(at, at + 1)
    shard.until(lambda: is_whole(shard))
    shard.check_equal_logs()


def test_what_a_replica_that_is_gone_may_have_is_not_given_up() -> None:
    """Also not by one that would lead: it waits for the other, or for an operator."""
    shard = filled()
    node, at = follower(shard), starts(shard)[7]
    damage(shard, "b", at + 150)
    damage(shard, "c", at + 151)
    files = shard.kill("a")
    node.repairs.begin()
    node.repairs.found(at, at + 1)
    shard.until(lambda: node.alarms.count("LOG_DAMAGED") > 20)
    assert "a may have it" in node.alarm_details["LOG_DAMAGED"]
    assert not node.repairs.is_hopeless(at)
    with pytest.raises(ShardUnavailable, match="may be whole at a, which"):
        node.repairs.refuse_unasked(at)
    shard.start("a", files)
    shard.until(lambda: is_whole(shard))
    assert node.reader.is_good(at)


def test_what_a_reader_has_found_is_asked_for_until_all_have_answered() -> None:
    """The reader may not come again."""
    shard = filled()
    node, at = follower(shard), starts(shard)[7]
    damage(shard, "b", at + 150)
    damage(shard, "c", at + 150)
    files = shard.kill("a")
    node.repairs.begin()
    assert not node.repairs.fetch(at), "its own thread does not wait"
    shard.pass_time(200)
    shard.start("a", files)
    shard.until(lambda: node.reader.is_good(at))


def test_places_that_only_a_replica_that_is_gone_may_have_keep_no_other_one_waiting() -> None:
    shard = filled()
    node, (*lost, at) = shard.leader, starts(shard)[3:39:3]
    for each in lost:
        damage(shard, "a", each + 150)
        damage(shard, "c", each + 150)
    damage(shard, "a", at + 150)
    shard.kill("b")
    for each in (*lost, at):
        node.repairs.found(each, each + 1)
    shard.until(lambda: node.reader.is_good(at))
    assert node.repairs.damaged_count == len(lost)


def test_many_places_wait_for_a_silent_replica_once() -> None:
    """The others say meanwhile what they have of them."""
    shard = filled()
    node, places = shard.leader, starts(shard)[3:39:3]
    for name in "ac":
        for each in places:
            damage(shard, name, each + 150)
    shard.kill("b")
    node.repairs.begin()
    for each in places:
        node.repairs.found(each, each + 1)
    began_ms = shard.now_ms
    shard.until(lambda: not any(map(node.repairs.is_worth_asking, places)))
    assert shard.now_ms - began_ms < 2 * log_repairs.ANSWER_MS


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_silent_replica_is_passed_over_for_a_time_or_until_it_is_heard(is_heard: bool) -> None:
    shard = filled()
    node, (first, second) = shard.leader, starts(shard)[7:10:2]
    damage(shard, "a", first + 150)
    files = shard.kill("b")
    node.repairs.found(first, first + 1)
    shard.until(lambda: is_whole(shard))
    silent_until_ms = shard.now_ms + log_repairs.SILENT_MS
    for name in "ac":
        damage(shard, name, second + 150)
    shard.start("b", files)
    if is_heard:
        node.repairs.heard("b", BlocksNotGiven(0, "late", is_final=False), b"")
    node.repairs.found(second, second + 1)
    shard.until(lambda: is_whole(shard))
    assert (shard.now_ms < silent_until_ms - log_repairs.AGAIN_MS) is is_heard


def test_an_operator_may_give_it_up() -> None:
    """By an unclean election of this replica."""
    shard = filled()
    node, at = follower(shard), starts(shard)[7]
    for name in "bc":
        damage(shard, name, at + 150)
    shard.kill("a")
    node.repairs.found(at, at + 1)
    shard.until(lambda: "LOG_DAMAGED" in node.alarms)
    node.repairs.is_loss_accepted = True
    assert node.repairs.is_hopeless(at)
    node.repairs.refuse_unasked(at)


def test_what_all_were_asked_for_in_vain_is_given_up() -> None:
    shard = filled()
    node, at = follower(shard), starts(shard)[7]
    for name in shard.nodes:
        damage(shard, name, at + 150)
    node.repairs.begin()
    with pytest.raises(ShardUnavailable, match="a, c, which"):
        node.repairs.refuse_unasked(at)
    node.repairs.found(at, at + 1)
    shard.until(lambda: node.repairs.is_hopeless(at))
    node.repairs.refuse_unasked(at)


def test_a_place_for_which_there_is_no_room_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = filled()
    node, (first, at) = follower(shard), starts(shard)[7:9]
    shard.kill("a")
    shard.kill("c")
    for each in (first, at):
        damage(shard, "b", each + 150)
    node.repairs.begin()
    node.repairs.found(first, first + 1)
    monkeypatch.setattr(log_repairs, "PLACES_MAX", 1)
    assert not node.repairs.fetch(at)
    with pytest.raises(ShardUnavailable, match="a, c, which"):
        node.repairs.refuse_unasked(at)


def test_intact_neighbours_are_not_written_over() -> None:
    """One that is another record at the other replica says that nothing of it is to be trusted."""
    shard = filled()
    node, at, behind = follower(shard), *starts(shard)[2:4]
    damage(shard, "b", at + 150)
    record = encode_record(
        topic=b"orders",
        queue_id=0,
        queue_offset=0,
        physical_offset=behind,
        body=b"?" * 300,
        properties=b"",
        born_time_ms=1,
        store_time_ms=1,
        store_host=SMALL.store_host,
    )
    put(shard, "b", behind, record)
    before = node.log.read(behind, len(record))
    assert before == record
    assert node.reader.is_good(behind)
    node.repairs.found(at, at + 1)
    shard.until(lambda: "LOG_DAMAGED" in node.alarms)
    assert node.log.read(behind, len(record)) == before
    assert "has another log" in node.alarm_details["LOG_DAMAGED"]


def test_only_damaged_records_are_written() -> None:
    shard = filled()
    node, places = follower(shard), starts(shard)
    for number in (2, 3):
        damage(shard, "b", places[number] + 150)
    node.repairs.found(places[2], places[2] + 1)
    shard.until(lambda: is_whole(shard))
    shard.check_equal_logs()
    assert node.repairs.mended_bytes == 2


def test_what_is_not_known_to_be_confirmed_is_given_where_the_histories_agree() -> None:
    """As behind a loss of power of all: each knows the watermark of its checkpoint alone."""
    shard = filled()
    node, at = follower(shard), starts(shard)[7]
    damage(shard, "b", at + 150)
    for each in shard.nodes.values():
        each.driver.high_watermark = 0
    node.repairs.found(at, at + 1)
    shard.until(lambda: is_whole(shard))
    shard.check_equal_logs()


def test_blocks_of_another_history_are_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an unclean election has given up was confirmed once, and is other bytes than now."""
    shard = filled()
    said: list[object] = []
    leader = shard.leader
    monkeypatch.setattr(leader, "send", lambda _node, message: said.append(message))
    monkeypatch.setattr(leader, "send_blocks", lambda _node, message, _: said.append(message))
    one, two = starts(shard)[5:7]
    end, history = leader.shown, leader.driver.history()
    leader.repairs.heard("b", AskBlocks(1, one, end, history), b"")
    leader.repairs.heard("b", AskBlocks(2, one, two, history), b"")
    other = (TermStart(Term(9, 9), 0),)
    leader.repairs.heard("b", AskBlocks(3, one, end, other), b"")
    leader.repairs.heard("b", AskBlocks(4, end, end + 9, history), b"")
    kinds = [type(each) is GivenBlocks for each in said]
    assert kinds == [True, True, False, False]
    assert isinstance(said[1], GivenBlocks)
    assert (said[1].start, said[1].end) == (one, two)


@pytest.mark.parametrize("change", ["shifted", "flipped", "cut"])
def test_bytes_that_are_not_the_good_ones_of_the_place_are_not_written(change: str) -> None:
    shard = filled()
    at = starts(shard)[7]
    damage(shard, "b", at + 150)
    before = shard.log_bytes("b", at)

    def spoil(receiver: str, data: bytes) -> bytes:
        if receiver != "b" or len(data) < 300:
            return data
        if change == "shifted":
            return data[1:] + data[:1]
        return data[:200] + b"?" + data[201:] if change == "flipped" else data[:-1]

    shard.damage = spoil
    node = follower(shard)
    node.repairs.found(at, at + 1)
    shard.until(lambda: "LOG_DAMAGED" in node.alarms)
    assert not node.reader.is_good(at)
    assert shard.log_bytes("b", at) == before
    shard.damage = lambda _receiver, data: data
    shard.until(lambda: is_whole(shard))
    shard.check_equal_logs()


@pytest.mark.parametrize(("kind", "has_failed"), [("write", False), ("sync", True)])
def test_a_disk_that_does_not_take_it(kind: str, has_failed: bool) -> None:
    shard = filled()
    at, node = starts(shard)[7], follower(shard)
    damage(shard, "b", at + 150)
    simulated(shard, "b").fault = Fault(kind, 1, errno.EIO)
    node.repairs.found(at, at + 1)
    shard.until(lambda: node.log_has_failed or is_whole(shard))
    assert node.log_has_failed == has_failed
    assert (node.repairs.mended_bytes == 0) == has_failed
    mended = node.repairs.mended_bytes
    shard.pass_time(50)
    assert node.repairs.mended_bytes == mended, "nothing is written behind a sync that failed"


def test_a_reader_waits_for_it_and_reads_again() -> None:
    shard = filled()
    at, node = starts(shard)[7], follower(shard)
    damage(shard, "b", at + 150)
    posted: list[object] = []
    work = threading.Event()

    def post(call: object) -> None:
        posted.append(call)
        work.set()

    node.repairs._post = post
    assert not node.repairs.is_worth_asking(at)
    node.repairs.begin()
    assert node.repairs.is_worth_asking(at)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(node.repairs.fetch, at)
        assert work.wait(10)
        (call,) = posted
        assert callable(call)
        call()
        shard.until(lambda: is_whole(shard) and not node.repairs._places)
        assert reading.result(10)
    assert node.reader.is_good(at)
    assert not node.repairs.fetch(at), "its own thread does not wait"


def test_nobody_waits_any_more_where_reading_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_repairs, "READER_S", 60)
    shard = filled()
    at, node = starts(shard)[7], follower(shard)
    damage(shard, "b", at + 150)
    work = threading.Event()
    node.repairs._post = lambda _call: work.set()
    node.repairs.begin()
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(node.repairs.fetch, at)
        assert work.wait(10)
        node.repairs.shut()
        assert not reading.result(10)
    assert not node.repairs.fetch(at)
    assert not node.repairs.is_worth_asking(at)


def test_a_place_that_a_reader_has_wrong_is_no_damage() -> None:
    """The unit of a queue may be what is wrong; the others say that no block begins there."""
    shard = filled()
    node = follower(shard)
    node.repairs.begin()
    within = starts(shard)[7] + 9
    node.repairs._thread = None
    with ThreadPoolExecutor(1) as threads:
        calls: list[object] = []
        asked = threading.Event()

        def post(call: object) -> None:
            calls.append(call)
            asked.set()

        node.repairs._post = post
        reading = threads.submit(node.repairs.fetch, within)
        assert asked.wait(10)
        assert callable(calls[0])
        calls[0]()
        shard.until(lambda: not node.repairs._places)
        assert not reading.result(10)
    assert (node.repairs.damaged_count, node.alarms) == (0, [])
    assert not node.repairs.is_worth_asking(within)
    shard.pass_time(100)
    assert node.repairs.is_worth_asking(within)


def test_a_catching_up_follower_gets_no_damaged_block_and_the_leader_is_put_right() -> None:
    shard = filled()
    files = shard.kill("b")
    shard.until(lambda: len(shard.row.in_sync) == 2)
    at = shard.leader.replica_log.written
    load(shard, 3)
    damage(shard, "a", at + 150)
    shard.start("b", files)
    shard.until(shard.are_equal)
    assert shard.leader.reader.is_good(at)
    assert shard.leader.repairs.mended_bytes == 1
    assert "BLOCKS_REFUSED" not in shard.nodes["b"].alarms
    shard.check_equal_logs()


def test_what_an_opening_finds_is_put_right_when_the_others_are_heard() -> None:
    shard = filled()
    at = starts(shard)[-5]
    damage(shard, "b", at + 150)
    shard.start("b", shard.kill("b"))
    assert shard.nodes["b"].repairs.damaged_count == 1
    shard.until(lambda: is_whole(shard) and shard.are_equal())
    shard.check_equal_logs()
    assert shard.nodes["b"].repairs.mended_bytes == 1

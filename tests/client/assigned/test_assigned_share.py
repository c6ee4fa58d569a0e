"""What a member says and hears, its queues, its file, and frames: without a node."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from curlew_client.aio.pool import AsyncPool
from curlew_client.aio.sending import AsyncSender
from curlew_client.assigned.offset_file import OffsetFile
from curlew_client.assigned.options import MemberOptions, member_options
from curlew_client.assigned.records import Damaged, Polled, QueueName, Source, read_poll
from curlew_client.assigned.running import RunningMember
from curlew_client.assigned.share import News, Said, Share
from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.working import Handler
from curlew_client.errors import OffsetExpired
from curlew_client.options import Options
from curlew_client.session import Session
from curlew_client.wire import frames
from curlew_client.wire.http1 import Answer

ONE = QueueName("orders", 0)
TWO = QueueName("orders", 1)


def message(offset: int, queue: QueueName = ONE) -> Polled:
    return Polled(b"x", Source(queue, b"", lambda decision: decision), offset, bytes(88), b"")


def told(
    *assigned: tuple[QueueName, int],
    generation: int = 1,
    revoked: tuple[QueueName, ...] = (),
    queues: dict[QueueName, int] | None = None,
    since: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """An answer: queues with their offsets, and `next_offset` by queue."""
    name = QueueName._asdict
    return {
        "mode": "clustering",
        "generation": generation,
        "assignment_id": f"a{generation}",
        "assigned": [
            {**name(queue), "since_generation": since, "offset": offset}
            for queue, offset in assigned
        ],
        "revoked": [name(queue) for queue in revoked],
        "queues": [
            {**name(queue), "status": "FOUND", "next_offset": offset}
            | {"min_offset": 0, "max_offset": 100}
            for queue, offset in (queues or {}).items()
        ],
        "committed": [],
        "refused": [],
        "conflicts": [],
        **more,
    }


def joined(options: MemberOptions | None = None, count: int = 5) -> tuple[Share, list[Polled]]:
    """A member of two queues with messages of the first."""
    share = Share(options or member_options("billing", "orders"), "w1")
    _, said = share.poll(100, 0)
    read = [message(offset) for offset in range(count)]
    share.hear(told((ONE, 0), (TWO, 0), queues={ONE: count, TWO: 0}), [(ONE, read)], said)
    return share, read


def said_by(share: Share) -> tuple[dict[str, Any], Said]:
    body, said = share.poll(100, 1)
    return json.loads(body), said


def hear(share: Share, said: Said, **more: Any) -> News:
    return share.hear(told((ONE, 0), (TWO, 0), **more), [], said)


def committed(share: Share) -> dict[int, int]:
    body, _ = said_by(share)
    return {each["queue_id"]: each["offset"] for each in body.get("commits", ())}


def test_all_below_the_commit_is_done() -> None:
    share, read = joined()
    queue = share.queues[ONE]
    assert (committed(share), share.has_to_say) == ({}, False)
    queue.done(read[1])
    queue.done(read[2])
    assert committed(share) == {}, "the first is not done"
    queue.done(read[0])
    assert committed(share) == {0: 3}
    body, said = said_by(share)
    assert body["commits"][0]["since_generation"] == 1
    assert body["positions"] == [
        {"topic": "orders", "queue_id": 0, "offset": 5},
        {"topic": "orders", "queue_id": 1, "offset": 0},
    ]
    hear(share, said, committed=[{**ONE._asdict(), "offset": 3}])
    assert committed(share) == {}, "it is said once"
    assert share.held == (2, 2)


def test_a_queue_of_a_node_that_does_not_answer_is_kept() -> None:
    share, read = joined()
    share.queues[ONE].done(read[0])
    _, said = said_by(share)
    share.hear(told((TWO, 0), partial=["b"], queues={TWO: 0}), [], said)
    assert committed(share) == {0: 1}
    body, said = said_by(share)
    assert {each["queue_id"]: each["offset"] for each in body["positions"]} == {0: 5, 1: 0}
    share.hear(told((TWO, 0), queues={TWO: 0}), [], said)
    assert set(share.queues) == {TWO}


def test_a_message_that_is_taken_back_lets_the_commit_pass() -> None:
    share, read = joined(count=2)
    share.hand_back(Decision("nack", read[0], 500, "bank closed"))
    share.queues[ONE].done(read[1])
    body, said = said_by(share)
    (entry,) = body["hand_backs"]
    assert (entry["queue_offset"], entry["delay_ms"], entry["reason"]) == (0, 500, "bank closed")
    assert body["commits"][0]["offset"] == 2
    share.unanswered(said)
    again, said = said_by(share)
    assert (again["hand_backs"], again["commits"]) == (body["hand_backs"], body["commits"])
    done = {**ONE._asdict(), "offset": 0, "code": "STATE_CONFLICT", "detail": "offset 0 is done"}
    news = hear(share, said, refused=[done])
    assert (news.refused, share.held) == ([], (0, 0)), "the lost answer had taken it"


def test_a_message_that_is_not_taken_back_is_tried_again_here() -> None:
    share, read = joined(count=2)
    share.hand_back(Decision("nack", read[0]))
    _, said = said_by(share)
    full = {**ONE._asdict(), "offset": 0, "code": "DISK_FULL", "detail": "no room"}
    news = hear(share, said, refused=[full])
    assert news.refused == [read[0]]
    assert "no room" in news.warnings[0]
    assert share.queues[ONE].commit_offset() == 0, "nothing passes it"
    share.queues[ONE].again(read[0])
    assert (read[0].attempt, read[0].is_settled) == (2, False)


@pytest.mark.parametrize("code", ["RELAY_INTERRUPTED", "SHARD_UNAVAILABLE"])
def test_what_a_shard_took_back_without_an_answer_is_over_when_said_again(code: str) -> None:
    share, read = joined(count=1)
    share.hand_back(Decision("nack", read[0]))
    _, said = said_by(share)
    cut = {**ONE._asdict(), "offset": 0, "code": code, "detail": "cut"}
    assert hear(share, said, refused=[cut]).refused == [read[0]]
    share.hand_back(Decision("nack", read[0]))
    _, said = said_by(share)
    done = {**ONE._asdict(), "offset": 0, "code": "STATE_CONFLICT", "detail": "offset 0 is done"}
    news = hear(share, said, refused=[done])
    assert (news.refused, news.warnings, share.held) == ([], [], (0, 0))


def test_a_queue_that_leaves_waits_for_its_handlers() -> None:
    share, read = joined(count=3)
    queue = share.queues[ONE]
    assert queue.begins(read[0])
    _, said = said_by(share)
    news = share.hear(told((TWO, 0), generation=2, revoked=(ONE,)), [], said)
    assert news.rebalance is not None
    assert (news.rebalance.lost, news.rebalance.assigned) == ([ONE], [TWO])
    assert not queue.begins(read[1]), "nothing begins any more"
    body, said = said_by(share)
    assert (body["generation"], body["assignment_id"]) == (1, "a2"), "not in effect yet"
    queue.done(read[0])
    share.put_into_effect()
    body, said = said_by(share)
    assert (body["generation"], committed(share)) == (2, {0: 1})
    share.hear(told((TWO, 0), generation=2), [], said)
    assert set(share.queues) == {TWO}
    assert queue.is_dropped


def test_handlers_that_take_too_long_do_not_keep_a_queue() -> None:
    share, read = joined(count=1)
    assert share.queues[ONE].begins(read[0])
    share.hear(told((TWO, 0), generation=2, revoked=(ONE,)), [], said_by(share)[1])
    assert share.is_letting_go
    share.let_go()
    assert (share.generation, read[0].owner.is_dropped) == (2, True)


def test_a_queue_that_begins_anew_drops_what_was_read() -> None:
    share, read = joined()
    share.hear(
        told((ONE, 2), (TWO, 0), generation=2, since=2, queues={ONE: 3}),
        [(ONE, [message(2)])],
        said_by(share)[1],
    )
    queue = share.queues[ONE]
    assert (read[0].owner.is_dropped, queue.commit_offset(), queue.next_offset) == (True, 2, 3)


def test_what_was_lost_meanwhile_is_not_read_from_an_old_answer() -> None:
    share, _ = joined()
    _, said = said_by(share)
    rebalance = share.lose()
    assert rebalance is not None
    assert rebalance.lost == [ONE, TWO]
    news = share.hear(told((ONE, 0), queues={ONE: 9}), [(ONE, [message(8)])], said)
    assert (news.messages, share.queues) == ([], {})
    body, _ = said_by(share)
    assert (body["generation"], body["positions"]) == (0, [])


@pytest.mark.parametrize(
    ("how", "after", "words"),
    [("nearest", 40, "35 messages are left out"), ("earliest", 40, "35"), ("latest", 90, "85")],
)
def test_a_place_that_is_gone(how: str, after: int, words: str) -> None:
    share, _ = joined(member_options("billing", "orders", offset_reset=how))
    gone = {**ONE._asdict(), "status": "OFFSET_EXPIRED"}
    bounds = {"next_offset": 40, "min_offset": 40, "max_offset": 90}
    answer = told((ONE, 0), (TWO, 0)) | {"queues": [gone | bounds]}
    news = share.hear(answer, [], said_by(share)[1])
    assert words in news.warnings[0]
    assert share.queues[ONE].next_offset == after


def test_a_place_that_is_gone_can_be_the_end() -> None:
    share, _ = joined(member_options("billing", "orders", offset_reset="fail"))
    gone = {**ONE._asdict(), "status": "OFFSET_EXPIRED"}
    bounds = {"next_offset": 40, "min_offset": 40, "max_offset": 90}
    with pytest.raises(OffsetExpired, match="offset 5 of orders/0 cannot be read"):
        share.hear(told((ONE, 0)) | {"queues": [gone | bounds]}, [], said_by(share)[1])


def test_a_place_behind_the_end_goes_back() -> None:
    share, _ = joined()
    gone = {**ONE._asdict(), "status": "OFFSET_OUT_OF_RANGE"}
    bounds = {"next_offset": 3, "min_offset": 0, "max_offset": 3}
    news = share.hear(told((ONE, 0), (TWO, 0)) | {"queues": [gone | bounds]}, [], said_by(share)[1])
    assert "goes back" in news.warnings[0]
    assert share.queues[ONE].next_offset == share.queues[ONE].commit_offset() == 3


def test_what_is_paused_or_far_ahead_is_not_read() -> None:
    share, _ = joined()
    assert share.unread(max_span=5) == []
    assert share.unread(max_span=4) == [ONE]
    share.is_paused = True
    assert share.unread(max_span=5) == [ONE, TWO]
    news = share.hear(
        told((ONE, 0), (TWO, 0), queues={ONE: 6}), [(ONE, [message(5)])], said_by(share)[1]
    )
    assert (news.messages, share.queues[ONE].next_offset) == ([], 5), "it is read after the pause"


def test_a_broadcast_member_keeps_its_own_place() -> None:
    options = member_options("prices", "orders", broadcast=True)
    share = Share(options, "w1", {ONE: 7, QueueName("other", 0): 3})
    body, said = said_by(share)
    assert body["positions"] == [{"topic": "orders", "queue_id": 0, "offset": 7}]
    answer = told((ONE, 0), queues={ONE: 8}) | {"mode": "broadcast"}
    share.hear(answer, [(ONE, read := [message(7)])], said)
    share.queues[ONE].done(read[0])
    assert share.places() == {ONE: 8, QueueName("other", 0): 3}
    assert not share.has_to_say, "the node is told nothing"


def test_the_mode_of_a_group_is_checked() -> None:
    share = Share(member_options("prices", "orders", broadcast=True), "w1")
    with pytest.raises(ValueError, match="mode 'clustering'; use another group"):
        share.hear(told((ONE, 0)), [], said_by(share)[1])


# --- the file


def test_an_offset_file_is_what_was_saved_last(tmp_path: Path) -> None:
    path = tmp_path / "places" / "prices.json"
    file = OffsetFile(path, "prices")
    assert file.places == {}
    file.save({ONE: 7, TWO: 0})
    (path.parent / "prices.json.new").write_text("cut sho")  # a crash in the middle of the next one
    with pytest.raises(ValueError, match="another consumer keeps its offsets"):
        OffsetFile(path, "prices")
    file.close()
    again = OffsetFile(path, "prices")
    assert again.places == {ONE: 7, TWO: 0}
    again.save({ONE: 8})
    again.close()
    with pytest.raises(ValueError, match="offsets of group 'prices'"):
        OffsetFile(path, "other")
    path.write_text("{}")
    with pytest.raises(ValueError, match="is no offset file"):
        OffsetFile(path, "prices")


@pytest.mark.parametrize(
    ("kept", "asked", "said"),
    [
        (None, "eu", "of no namespace"),
        ("eu", None, "of namespace 'eu'"),
        ("eu", "us", "of namespace 'eu'"),
    ],
)
def test_an_offset_file_is_of_one_namespace(
    tmp_path: Path, kept: str | None, asked: str | None, said: str
) -> None:
    path = tmp_path / "prices.json"
    file = OffsetFile(path, "prices", kept)
    file.save({ONE: 7})
    file.close()
    with pytest.raises(ValueError, match=said):
        OffsetFile(path, "prices", asked)
    again = OffsetFile(path, "prices", kept)
    assert again.places == {ONE: 7}
    again.close()


def test_an_assigned_consumer_keeps_the_namespace_of_its_client_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    of_none = OffsetFile(path, "prices")
    of_none.save({ONE: 7})
    of_none.close()
    session = Session(options=Options(namespace="eu"))

    async def run() -> None:
        RunningMember(
            session,
            AsyncSender(session, AsyncPool(None, 1.0)),
            member_options("prices", "orders", broadcast=True, offset_file=path),
            Handler(print, False, 1, None, 1_000, 1_000_000, 1_000),
        )

    with pytest.raises(ValueError, match="of no namespace"):
        asyncio.run(run())


def test_an_offset_file_is_synced_before_it_is_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    replace = Path.replace

    def noted(self: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(self, target)

    monkeypatch.setattr("os.fsync", lambda _: steps.append("sync"))
    monkeypatch.setattr(Path, "replace", noted)
    file = OffsetFile(tmp_path / "f", "g")
    file.save({ONE: 1})
    file.save({ONE: 1})
    file.close()
    assert steps == ["sync", "replace", "sync"], "and nothing when nothing has changed"


# --- frames


def record(body: bytes = b"hello") -> bytes:
    properties = frames.encode_properties("created", ("a", "b"), {"x": "ü"}, "text/plain", "u-1")
    return frames.RecordMaker("orders").make(body, properties, born_ms=1_700_000_000_000)


def answer(change: Callable[[bytes], bytes] = lambda body: body) -> Answer:
    # What a client sends has no checksum of the body; a node puts it in.
    raw = bytearray(frames.encode_frame([record()]))
    at = 32 + 4
    raw[at + 8 : at + 12] = (crc32(b"hello") & 0x7FFFFFFF).to_bytes(4, "big")
    raw[12:16] = crc32(raw[32:]).to_bytes(4, "big")
    frame = bytes(raw)
    names = "MQ-Topic: orders\r\nMQ-Queue-Id: 0\r\nMQ-Next-Offset: 1\r\n"
    body = (
        b"--b\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}\r\n"
        + f"--b\r\nContent-Type: {frames.CONTENT_TYPE}\r\n".encode()
        + f"Content-Length: {len(frame)}\r\n{names}\r\n".encode()
        + frame
        + b"\r\n--b--\r\n"
    )
    head = b"HTTP/1.1 200 OK\r\nMQ-Store-Id: 01020304\r\nContent-Type: multipart/mixed; boundary=b"
    return Answer(200, head, change(body), keep_alive=True)


def test_a_frame_gives_messages() -> None:
    shown, ((queue, (found,)),) = read_poll(answer(), "http://n", lambda decision: decision)
    assert (shown, queue) == ({}, ONE)
    assert (found.text, found.tag, found.keys) == ("hello", "created", ["a", "b"])
    assert (found.properties, found.content_type) == ({"x": "ü"}, "text/plain")
    assert (found.unique_id, found.attempt, found.max_attempts) == ("u-1", 1, None)
    assert found.born_time_ms == 1_700_000_000_000
    assert found.message_id.startswith("0101020304")
    assert (found.sharding_key, found.correlation_id) == (None, None)
    assert "orders/0@0" in repr(found)
    with pytest.raises(AttributeError, match="no 'bodi'"):
        _ = found.bodi


def test_a_frame_of_a_cluster_says_whose_it_is() -> None:
    def change(body: bytes) -> bytes:
        return body.replace(b"Next-Offset: 1\r\n", b"Next-Offset: 1\r\nMQ-Store-Id: 0A0B0C0D\r\n")

    _, ((_, (found,)),) = read_poll(answer(change), "http://n", lambda decision: decision)
    assert found.message_id.startswith("010A0B0C0D")


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b"hello", b"hellO"),
        lambda body: body[:-40],
        lambda body: body.replace(b"CRLW", b"CRLX"),
        lambda body: body.replace(b"--b\r\nContent-Type: app", b"--c\r\nContent-Type: app"),
    ],
)
def test_what_came_damaged_is_asked_for_again(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(Damaged) as caught:
        read_poll(answer(change), "http://n", lambda decision: decision)
    assert caught.value.retryable


# --- options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topics": []}, "names no topic"),
        ({"topics": 3}, "topic is a str, several of them"),
        ({"topics": {"orders": "a"}, "filter_text": "b"}, "say the same twice"),
        ({"topics": {"orders": 3}}, "filter is a str"),
        ({"offset_reset": "newest"}, "offset_reset is 'newest'"),
        ({"strategy": "fair"}, "strategy is 'fair'"),
        ({"start": "begin"}, "start is 'begin'"),
        ({"max_attempts": 0, "in_order": True}, "max_attempts is 0"),
        ({"max_attempts": 3}, "counts tries in order"),
        ({"offset_file": "f"}, "is for broadcast=True"),
        ({"offset_file": 3, "broadcast": True}, "offset_file is a path"),
        ({"listener": 3}, "on_rebalance is a function"),
        ({"in_order": 1}, "in_order is True or False"),
    ],
)
def test_wrong_options_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        member_options("g", **{"topics": "orders", **given})

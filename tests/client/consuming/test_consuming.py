"""What a consumer decides without I/O: loops, leases, flow, results of handlers."""

import json
from base64 import b64encode
from typing import Any

import pytest
from curlew_client import DeadLetter, Received, Retry
from curlew_client.consuming.decisions import Decision, settle_body, settled_of
from curlew_client.consuming.flow import Flow
from curlew_client.consuming.handlers import decisions_of
from curlew_client.consuming.leases import Leases
from curlew_client.consuming.taken import BATCH, TakenMessages


def message(offset: int = 0, body: bytes = b"x", queue_id: int = 0) -> Received[None]:
    shown = {
        "message_id": f"A{offset}",
        "topic": "orders",
        "queue_id": queue_id,
        "queue_offset": offset,
        "born_time_ms": 1,
        "store_time_ms": 2,
        "keys": ["k"],
        "properties": {"a": "b"},
        "body_base64": b64encode(body).decode(),
        "receipt_handle": f"h{offset}",
        "delivery_attempt": 2,
        "max_attempts": 16,
    }
    by_hand: list[Decision] = []
    return Received(shown, by_hand.append)


def messages(count: int) -> list[Received[Any]]:
    return [message(offset) for offset in range(count)]


def said(decisions: Any) -> list[tuple[str, str]]:
    return [(each.kind, each.message.receipt_handle) for each in decisions]


# --- messages


def test_a_message_is_what_the_node_shows() -> None:
    one = message(7, b'{"a": "\xc3\xbc"}')
    assert (one.json(), one.text, one.attempt) == ({"a": "ü"}, '{"a": "ü"}', 2)
    assert (one.keys, one.properties, one.tag, one.sharding_key) == (["k"], {"a": "b"}, None, None)
    assert "orders/0@7" in repr(one)


def test_a_message_is_settled_once() -> None:
    one = message()
    one.ack()
    with pytest.raises(ValueError, match="settled already"):
        one.nack()


# --- the loop of a block


def stepped(count: int, turns: int) -> TakenMessages:
    taken = TakenMessages(None)
    taken.add(messages(count))
    for _ in range(turns):
        taken.step()
    return taken


def test_the_next_turn_acks_the_message_before() -> None:
    assert said(stepped(3, 1).decided) == []
    assert said(stepped(3, 2).decided) == [("ack", "h0")]
    assert said(stepped(2, 3).decided) == [("ack", "h0"), ("ack", "h1")]


@pytest.mark.parametrize(
    ("error", "kind", "delay_ms", "reason"),
    [
        (None, "ack", None, ""),
        (GeneratorExit(), "ack", None, ""),
        (ValueError("boom"), "nack", None, "ValueError: boom"),
        (Retry("busy", delay="5s"), "nack", 5_000, "busy"),
        (DeadLetter("no account"), "dead_letter", None, "no account"),
        (KeyboardInterrupt(), "release", None, ""),
        (SystemExit(1), "release", None, ""),
    ],
)
def test_how_a_block_is_left_decides_about_its_message(
    error: BaseException | None, kind: str, delay_ms: int | None, reason: str
) -> None:
    taken = stepped(3, 1)
    taken.leave(error)
    first, *others = taken.decided
    assert (first.kind, first.delay_ms, first.reason) == (kind, delay_ms, reason)
    assert said(others) == [("release", "h1"), ("release", "h2")]


def test_what_is_settled_by_hand_is_let_be() -> None:
    taken = TakenMessages(None)
    taken.add(messages(2))
    first = taken.step()
    assert first is not None
    first.nack()
    taken.step()
    taken.leave(None)
    assert said(taken.decided) == [("ack", "h1")]


def test_a_limit_bounds_what_is_fetched() -> None:
    taken = TakenMessages(BATCH + 2)
    wanted = [taken.wanted]
    taken.add(messages(BATCH))
    wanted.append(taken.wanted)
    taken.add(messages(2))
    assert [*wanted, taken.wanted] == [BATCH, 2, 0]


# --- handlers


@pytest.mark.parametrize(
    ("returned", "error", "kinds"),
    [
        (None, None, ["ack"]),
        (17, None, ["ack"]),
        (Retry(), None, ["nack"]),
        (DeadLetter(), None, ["dead_letter"]),
        (None, Retry(), ["nack"]),
        (None, DeadLetter(), ["dead_letter"]),
        (None, OSError("x"), ["nack"]),
        (None, KeyboardInterrupt(), ["release"]),
    ],
)
def test_the_end_of_a_handler(
    returned: object, error: BaseException | None, kinds: list[str]
) -> None:
    found = decisions_of(messages(1), returned, error, is_batch=False)
    assert [each.kind for each in found] == kinds


def test_the_end_of_a_handler_of_batches() -> None:
    def kinds(batch: list[Received[Any]], returned: object) -> list[str]:
        return [each.kind for each in decisions_of(batch, returned, None, is_batch=True)]

    assert kinds(messages(3), None) == ["ack"] * 3
    assert kinds(messages(3), 0) == ["ack", "nack", "nack"]
    assert kinds(messages(3), -1) == ["nack"] * 3
    assert kinds(messages(3), True) == ["ack"] * 3
    assert kinds(messages(2), Retry(delay=1)) == ["nack"] * 2
    some = messages(3)
    some[0].ack()
    assert kinds(some, {some[1]: Retry(), some[2]: DeadLetter()}) == ["nack", "dead_letter"]


# --- settling


def test_a_settle_says_all_kinds_in_the_order_of_its_results() -> None:
    one, two, three, four = messages(4)
    given = [
        Decision("release", one),
        Decision("nack", two, 5, "why" * 1_000),
        Decision("ack", three),
        Decision("dead_letter", four, None, "no"),
    ]
    body, ordered = settle_body(given)
    assert said(ordered) == [
        ("ack", "h2"),
        ("nack", "h1"),
        ("dead_letter", "h3"),
        ("release", "h0"),
    ]
    shown = json.loads(body)
    assert (shown["acks"], shown["releases"]) == (["h2"], ["h0"])
    assert (shown["nacks"][0]["delay_ms"], len(shown["nacks"][0]["reason"])) == (5, 500)
    results = [{"status": 200}, {"status": 410, "error": {"code": "X"}}, {"status": 200}]
    found = settled_of({"results": [*results, {"status": 200}]}, ordered)
    assert [each.status for each in found] == [200, 410, 200, 200]
    assert settled_of({}, ordered)[0].status == 500


# --- leases


def test_a_lease_is_extended_when_a_third_is_over_and_not_for_ever() -> None:
    leases = Leases(invisible_s=30, hold_s=100)
    one = message()
    leases.add([one], 0)
    assert leases.due(9.9) == []
    assert leases.due(10) == [one]
    leases.extended(one, "h'", 10)
    assert (one.receipt_handle, leases.due(19), leases.due(20)) == ("h'", [], [one])
    assert leases.due(100) == []
    assert (leases.overdue(99), leases.overdue(100), leases.overdue(101)) == ([], [one], [])


def test_what_is_settled_is_not_extended() -> None:
    leases = Leases(invisible_s=30, hold_s=100)
    one, two = messages(2)
    leases.add([one], 0)
    leases.add([two], 0)
    one.ack()
    leases.drop(two)
    assert leases.due(10) == []


# --- flow


def flow(**bounds: int) -> Flow:
    known = {"handlers": 500, "messages_max": 1_000, "bytes_max": 1_000, "span_max": 2_000}
    return Flow(**{**known, **bounds})


def test_a_consumer_holds_so_many_messages_bytes_and_offsets() -> None:
    held = flow(bytes_max=100)
    assert held.room() == (256, 100)
    big = message(0, bytes(100))
    held.take([big])
    assert held.room() == (0, 0), "bytes"
    held.give([big])
    assert held.room() == (256, 100)
    wide = flow()
    ends = [message(0), message(2_001)]
    for each in ends:
        wide.take([each])
    assert (wide.span, wide.room()) == (2_001, (0, 0))
    wide.take([message(5_000, queue_id=1)])
    wide.give([ends[0]])
    assert wide.span == 0
    assert wide.room()[0] > 0


def test_a_consumer_learns_how_much_its_handlers_need() -> None:
    held = flow(handlers=1, messages_max=100)
    assert held.room()[0] == 16
    for _ in range(9):
        held.starved()
    assert held.room()[0] == 100
    for each in messages(100):
        held.take([each])
    assert (held.count, held.room()) == (100, (0, 0))

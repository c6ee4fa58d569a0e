"""How many unsettled messages a stream may hold."""

from app.broker.results import SettleAction, SettleResult
from app.broker.streams.credit import Credit, Credits
from app.domain.errors import ReceiptHandleExpired


class Books:
    """Credits, and a credit of three that notes when it hears of room."""

    def __init__(self) -> None:
        self.credits = Credits()
        self.heard = 0
        self.credit = Credit(3, self.hear)

    def hear(self) -> None:
        self.heard += 1

    def settle(self, handle: str, action: SettleAction, new_handle: str | None = None) -> None:
        until_ms = None if new_handle is None else 50_000
        result = SettleResult(handle, action, None, new_handle, until_ms)
        self.credits.note([result], lambda ms: ms / 1_000)


def test_acks_and_nacks_make_room() -> None:
    books = Books()
    books.credits.take(books.credit, ["a", "b", "c"], 30.0)
    assert (books.credit.room, books.credits.held_count) == (0, 3)
    books.settle("a", "ack")
    books.settle("b", "nack")
    assert (books.credit.room, books.heard) == (2, 2)
    books.settle("a", "ack")
    books.settle("of somebody else", "ack")
    assert (books.credit.room, books.heard) == (2, 2)


def test_what_did_not_succeed_makes_no_room() -> None:
    books = Books()
    books.credits.take(books.credit, ["a"], 30.0)
    failed = SettleResult("a", "ack", ReceiptHandleExpired("too late"), None, None)
    books.credits.note([failed], float)
    assert (books.credit.room, books.heard) == (2, 0)


def test_an_extended_message_is_still_held_under_its_new_handle() -> None:
    books = Books()
    books.credits.take(books.credit, ["a"], 30.0)
    books.settle("a", "extend", "a2")
    books.credits.expire(30.0)
    assert (books.credit.room, books.heard) == (2, 1)
    books.settle("a2", "ack")
    assert (books.credit.room, books.heard) == (3, 2)


def test_leases_that_end_make_room() -> None:
    books = Books()
    books.credits.take(books.credit, ["a", "b"], 30.0)
    books.credits.take(books.credit, ["c"], 40.0)
    books.credits.expire(29.9)
    assert books.credit.room == 0
    books.credits.expire(30.0)
    assert (books.credit.room, books.heard) == (2, 1)


def test_a_stream_that_ended_holds_nothing() -> None:
    books, other = Books(), Credit(1, lambda: None)
    books.credits.take(books.credit, ["a", "b"], 30.0)
    books.credits.take(other, ["c"], 30.0)
    books.credits.drop(books.credit)
    assert (books.credits.held_count, books.credit.held, other.held) == (1, 0, 1)


def test_expiries_of_settled_messages_do_not_pile_up() -> None:
    books = Books()
    for number in range(10_000):
        books.credits.take(books.credit, [str(number)], 30.0)
        books.settle(str(number), "ack")
    assert len(books.credits._expiries) <= 1_026
